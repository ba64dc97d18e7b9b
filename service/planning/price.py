"""What a release costs in an account, and what an account can admit.

Three kinds of account. A `renyi` account fixes one integer order a* when it is opened and counts a
release at its Renyi divergence of that order divided by a* (for Gaussian noise that is its rho).
Comparing the sum with one threshold at one fixed order is a privacy filter: it holds although
analysts choose each job after seeing earlier results, and while jobs overlap (Feldman and Zrnic
2021). A `gaussian` account counts mu^2/2 for the mu at which a release is mu-GDP; the sum is a filter
too (docs/proofs/gaussian-filter.md). A `pure` account counts epsilons, which add.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import inf, sqrt
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from service.planning.conversion import (
    EPSILON_MAX,
    UNITS,
    Kind,
    best_order,
    budget_units,
    epsilon_at_order,
    epsilon_of_gaussian,
    largest_epsilon,
    renyi_budget,
)
from service.planning.divergences import mu_squared_of_pure, randomised_response
from service.planning.normal import smallest_millionths
from service.planning.releases import Disjoint, Release

_ORDERS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)


class AccountTerms(BaseModel):
    """The terms of a limit on what may be spent (an account's ceiling or cap, an analyst's share), as
    far as pricing needs them; public, fixed when the limit is set. A limit of its own (epsilon, delta)
    has an order of its own."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Kind
    delta: float = Field(ge=0, lt=1)
    order: int | None = Field(default=None, ge=2)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.delta > 0) == (self.kind == "pure"):
            raise ValueError("a pure account has delta = 0, a renyi or gaussian one delta > 0")
        if (self.order is not None) != (self.kind == "renyi"):
            raise ValueError("a renyi account has an order, and no other has")
        return self

    @classmethod
    def for_ceiling(cls, epsilon: float, delta: float, kind: Kind | None = None) -> Self:
        """Unless it is said, renyi for delta > 0 and pure for delta = 0."""
        kind = kind or ("renyi" if delta > 0 else "pure")
        order = best_order(epsilon, delta) if kind == "renyi" and delta > 0 else None
        return cls(kind=kind, delta=delta, order=order)

    @property
    def key(self) -> str:
        """What sums of prices go by: limits of one key count alike."""
        return self.kind if self.order is None else f"{self.kind}:{self.order}"


def largest_fitting_epsilon(units: int, delta: float, terms: AccountTerms) -> float:
    """An epsilon at which a job at `delta` certainly fits `units`: the largest, where the job and the
    account count in the same currency, for a Plan costs at most what its (epsilon, delta) buys."""
    if delta > 0 or terms.kind == "pure":
        return largest_epsilon(units, delta, terms.kind)
    low, high = 0, int(EPSILON_MAX * 10**6)
    while low < high:
        middle = (low + high + 1) // 2
        fits = _most_of_pure(Fraction(middle / 10**6), terms) <= units
        low, high = (middle, high) if fits else (low, middle - 1)
    return low / 10**6


def _most_of_pure(epsilon: Fraction, terms: AccountTerms) -> int:
    """What no Plan of a pure epsilon costs more than, however it is composed.

    Randomised response has the largest divergence of all epsilon-DP releases, so those of parts add up
    to no more than that of their sum: parts by randomised response are epsilon-DP together. mu^2 of
    epsilon over epsilon does not fall, so the same holds of mu^2. Only `Recursive` is priced by less
    than is known of it: at a e^2/8 and pi e^2/8 for the sum of squares, which is at most epsilon^2.
    """
    if terms.order is None:
        cost = mu_squared_of_pure(epsilon) / 2
    else:
        exact = randomised_response(epsilon, terms.order)
        cost = max(exact, min(terms.order * epsilon**2 / 8, epsilon)) / terms.order
    return _ceil(cost * UNITS * (1 + Fraction(1, 10**20))) + 1


@lru_cache(maxsize=256)
def measures(terms: AccountTerms) -> tuple[AccountTerms, ...]:
    """The terms at which an account's spending is summed up: its own, and some that often say more."""
    if terms.kind == "pure":
        return (terms,)
    orders = (AccountTerms(kind="renyi", delta=terms.delta, order=order) for order in _ORDERS)
    found = (terms, *orders, AccountTerms(kind="gaussian", delta=terms.delta))
    return tuple(dict.fromkeys(found))


class NotPureError(ValueError):
    """A release without a pure epsilon was priced in a pure account."""


def price_units(release: Release, terms: AccountTerms) -> int:
    """The cost of a release in the account's units, rounded up."""
    if terms.order is not None:
        return _ceil(release.renyi(terms.order) / terms.order * UNITS)
    if terms.kind == "gaussian":
        return _ceil(release.mu_squared() / 2 * UNITS)
    epsilon = release.pure()
    if epsilon is None:
        raise NotPureError
    return _ceil(epsilon * UNITS)


def prices(release: Release, terms: Iterable[AccountTerms]) -> dict[str, int]:
    """What the release costs at each of these terms, by their keys: where it has a price."""
    priced = (one for one in terms if one.kind != "pure" or release.pure() is not None)
    return {one.key: price_units(release, one) for one in priced}


def smallest_epsilon(sums: Mapping[str, int], delta: float) -> tuple[float, str]:
    """The smallest epsilon that sums of prices, by keys of terms, prove at delta: rounded up, with the
    method in words. It is proved for releases of these prices that were fixed in advance, each of
    which may read what came before; where prices were chosen by outputs, what holds without condition
    is a filter, whose threshold was fixed before."""
    found = [(_epsilon_of_sum(key, units, delta), key) for key, units in sums.items()]
    proved = [one for one in found if one[0] is not None]
    if not proved:
        raise ValueError("none of these sums says anything at this delta")
    epsilon, key = min(proved, key=lambda one: one[0] or 0.0)
    return epsilon or 0.0, _method(key, sums[key])


def _epsilon_of_sum(key: str, units: int, delta: float) -> float | None:
    kind, _, order = key.partition(":")
    if kind == "pure":
        return _up(Fraction(units, UNITS))
    if delta == 0:
        return 0.0 if units == 0 else None
    if kind == "gaussian":
        return smallest_millionths(Fraction(2 * units, UNITS), delta) / 10**6
    return epsilon_at_order(Fraction(units * int(order), UNITS), delta, int(order))


def _method(key: str, units: int) -> str:
    kind, _, order = key.partition(":")
    if kind == "gaussian":
        return f"Gaussian differential privacy, mu {sqrt(2 * units / UNITS):.3g}"
    return f"Renyi divergence of order {order}" if order else "pure epsilons, added up"


def fits_own_target(release: Release, epsilon: float, delta: float) -> bool:
    """Whether the release, taken alone, is certainly (epsilon, delta)-DP: by its pure epsilon, by its
    divergence at one order, by its mu, or, on disjoint rows, because each part is: the replaced record
    is in the rows of one, and the rest is post-processing.

    A sampled release may do better at a lower order than the one at which (epsilon, delta) holds the
    most rho; lower ones are tried while they come nearer.
    """
    pure = release.pure()
    if delta == 0 or (pure is not None and pure <= Fraction(epsilon)):
        return pure is not None and pure <= Fraction(epsilon)
    order = best_order(epsilon, delta)
    if _ceil(release.renyi(order) / order * UNITS) <= budget_units(epsilon, delta):
        return True
    if isinstance(release, Disjoint):
        return all(fits_own_target(part, epsilon, delta) for part in release.parts)
    by_mu = release.mu_squared() * UNITS <= 2 * budget_units(epsilon, delta, "gaussian")
    return by_mu or _fits_lower(release, epsilon, delta)


def _fits_lower(release: Release, epsilon: float, delta: float) -> bool:
    nearest = inf
    for order in own_orders(epsilon, delta):
        tau = release.renyi(order)
        if tau <= Fraction(renyi_budget(epsilon, delta, order)):
            return True
        proved = epsilon_at_order(tau, delta, order)
        if proved > nearest:
            return False
        nearest = proved
    return False


def own_orders(epsilon: float, delta: float) -> tuple[int, ...]:
    """Orders by which a job may satisfy its (epsilon, delta): the one that holds the most rho, and
    lower ones that hold something, each by one or a fortieth."""
    orders = [best_order(epsilon, delta)]
    while orders[-1] > 2 and renyi_budget(epsilon, delta, orders[-1]) > 0:
        orders.append(orders[-1] - 1 - orders[-1] // 40)
    return tuple(orders[:-1]) or tuple(orders)


def epsilon_alone(release: Release, epsilon: float, delta: float) -> float:
    """The tightest epsilon we can state for this release alone, where it is known to satisfy
    (epsilon, delta): informative, never charged."""
    candidates = [epsilon]
    pure = release.pure()
    if pure is not None:
        candidates.append(_up(pure))
    if delta > 0:
        candidates.append(epsilon_of_gaussian(release.mu_squared(), delta))
    if delta > 0 and release.gaussian() is None:  # else that is exact, and no order does better
        candidates.append(_by_orders(release, delta, best_order(epsilon, delta)))
    return min(candidates)


def _by_orders(release: Release, delta: float, start: int) -> float:
    """What the divergence at some order proves: from the one nearest to `start` up, and down, while
    that comes nearer, for it has one valley and large orders take long."""
    low = max((i for i, order in enumerate(_ORDERS) if order <= start), default=0)
    best = inf
    for orders in (_ORDERS[low:], _ORDERS[:low][::-1]):
        for order in orders:
            proved = epsilon_at_order(release.renyi(order), delta, order)
            if proved >= best:
                break
            best = proved
    return best


def _up(epsilon: Fraction) -> float:
    return _ceil(epsilon * 10**6) / 10**6


def _ceil(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)
