"""From (epsilon, delta) to what the ledger counts, and back.

The ledger counts integers: pico-units of rho (a `renyi` account), of mu^2/2 (a `gaussian` one, where
that is the rho of the one Gaussian that everything is no worse than) or of epsilon (a `pure` one).
Budgets round down and costs round up, so every rounding here favours the people in the data.

A mechanism whose Renyi divergence at order a is at most tau satisfies (eps, delta)-DP with
eps = tau + log(1 - 1/a) - log(delta * a)/(a - 1)  (Canonne, Kamath, Steinke 2020, Prop. 12).
Solved for tau this is `renyi_budget`; the order that makes tau / a largest is the one at which an
account of that (eps, delta) holds the most zero-concentrated (zCDP) budget. Any order is sound, the
best one is merely the most useful; it is fixed once, never chosen after seeing outputs.

Arithmetic is `decimal` at 40 digits, whose logarithm is correctly rounded: the same integers on
every machine, and an error (below 1e-35) that the explicit slack of 1e-30 covers. What mu-GDP is
worth as (epsilon, delta) is exact, in decimals too (normal.py).
"""

from collections.abc import Callable
from decimal import ROUND_CEILING, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import erfc, exp, inf, log, log1p, sqrt
from typing import Literal

from service.planning.normal import largest_rho, smallest_millionths

Kind = Literal["renyi", "pure", "gaussian"]
UNITS = 10**12
EPSILON_MAX = 100.0  # beyond this the word privacy no longer applies
_DIGITS = 40
_SLACK = Decimal("1e-30")
_ORDER_MAX = 2**34  # the best is about 2 log(1/delta)/eps, and a pico-unit needs eps > 1e-6


def renyi_budget(epsilon: float, delta: float, order: int) -> Decimal:
    """The largest Renyi divergence at `order` that still implies (epsilon, delta)-DP."""
    with localcontext(prec=_DIGITS):
        first, second = _logarithms(delta, order)
        return Decimal(epsilon) - first + second - _SLACK


@lru_cache(maxsize=1 << 14)  # jobs of one account ask at the same orders, whatever their epsilon
def _logarithms(delta: float, order: int) -> tuple[Decimal, Decimal]:
    """log(1 - 1/a) and log(delta a)/(a - 1)."""
    with localcontext(prec=_DIGITS):
        a = Decimal(order)
        return (1 - 1 / a).ln(), (Decimal(delta) * a).ln() / (a - 1)


@lru_cache(maxsize=4096)
def best_order(epsilon: float, delta: float) -> int:
    """The integer order at which (epsilon, delta) holds the most rho.

    A float search finds the neighbourhood, exact steps uphill decide: the same order everywhere.
    """

    def rho(order: int) -> Decimal:
        with localcontext(prec=_DIGITS):
            return renyi_budget(epsilon, delta, order) / order

    log_delta = log(delta)
    order = _argmin(lambda a: -(epsilon - log1p(-1 / a) + (log_delta + log(a)) / (a - 1)) / a)
    while order < _ORDER_MAX and rho(order + 1) > rho(order):
        order += 1
    while order > 2 and rho(order - 1) > rho(order):
        order -= 1
    return order


@lru_cache(maxsize=4096)
def budget_units(epsilon: float, delta: float, kind: Kind = "renyi") -> int:
    """The ledger units that (epsilon, delta) buys, rounded down; delta = 0 means pure epsilon."""
    with localcontext(prec=_DIGITS):
        if delta == 0:
            return int(Decimal(epsilon) * UNITS)
        if kind == "gaussian":
            return largest_rho(epsilon, delta, UNITS)
        order = best_order(epsilon, delta)
        return max(0, int(renyi_budget(epsilon, delta, order) / order * UNITS))


@lru_cache(maxsize=4096)
def largest_epsilon(units: int, delta: float, kind: Kind = "renyi") -> float:
    """The largest epsilon, to six decimals, whose budget does not exceed `units` (0.0 if none)."""
    if delta > 0 and kind == "gaussian":  # the next one holds a unit more
        guess = smallest_millionths(Fraction(2 * (max(0, units) + 1), UNITS), delta) - 1
    else:
        guess = _millionths(units, delta) + 2
    millionths = max(0, min(guess, int(EPSILON_MAX * 10**6)))
    while millionths > 0 and budget_units(millionths / 10**6, delta, kind) > units:
        millionths -= 1
    epsilon = millionths / 10**6
    return epsilon if millionths and budget_units(epsilon, delta, kind) > 0 else 0.0


@lru_cache(maxsize=4096)
def epsilon_of_units(units: int, delta: float, kind: Kind = "renyi") -> float:
    """The smallest epsilon, to six decimals, whose budget would hold `units`: how an account's
    spending reads in the currency that jobs ask in. Informative; epsilons of jobs do not add up."""
    if units == 0:
        return 0.0
    if delta > 0 and kind == "gaussian":
        return max(1, smallest_millionths(Fraction(2 * units, UNITS), delta)) / 10**6
    millionths = max(1, _millionths(units, delta) - 2)
    while budget_units(millionths / 10**6, delta) < units:
        millionths += 1
    return millionths / 10**6


def epsilon_at_order(tau: Fraction, delta: float, order: int) -> float:
    """The epsilon that a Renyi divergence of at most tau at `order` implies, rounded up."""
    with localcontext(prec=_DIGITS):
        first, second = _logarithms(delta, order)
        divergence = Decimal(tau.numerator) / Decimal(tau.denominator)
        epsilon = divergence + first - second + _SLACK
        return max(0, int((epsilon * 10**6).to_integral_value(ROUND_CEILING))) / 10**6


def epsilon_of_gaussian(mu_squared: Fraction, delta: float) -> float:
    """The exact epsilon of a Gaussian mechanism with sensitivity/sigma = mu, rounded up; infinite
    beyond EPSILON_MAX.

    delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)  (Balle and Wang 2018, Thm. 8) is
    decreasing in eps. Informative only: the ledger never charges by it, because it does not compose
    under adaptive choice of later jobs.
    """
    mu = sqrt(mu_squared)

    def excess(epsilon: float) -> float:
        tail = 0.5 * erfc((mu / 2 + epsilon / mu) / sqrt(2))
        scaled = exp(epsilon) * tail if tail > 0 else 0.0
        return 0.5 * erfc((epsilon / mu - mu / 2) / sqrt(2)) - scaled - delta * (1 - 1e-9)

    if excess(EPSILON_MAX) > 0:
        return inf
    low, high = 1, int(EPSILON_MAX * 10**6)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if excess(middle / 10**6) <= 0 else (middle + 1, high)
    return low / 10**6


def _millionths(units: int, delta: float) -> int:
    """Roughly the epsilon, in millionths, whose budget is `units`; callers step to the exact one."""
    if delta == 0:
        return units * 10**6 // UNITS
    rho, log_delta = units / UNITS, log(delta)

    def epsilon(a: int) -> float:
        return rho * a + log1p(-1 / a) - (log_delta + log(a)) / (a - 1)

    return int(epsilon(_argmin(epsilon)) * 10**6)


def _argmin(value: Callable[[int], float]) -> int:
    """The order in [2, 2^34] with the smallest value of a unimodal function."""
    low, high = 2, _ORDER_MAX
    while high - low > 2:
        third = (high - low) // 3
        low, high = (
            (low + third, high) if value(low + third) > value(high - third) else (low, high - third)
        )
    return min(range(low, high + 1), key=value)
