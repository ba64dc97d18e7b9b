"""What a release costs on a secret batch: for Gaussian noise by a bound on its Renyi divergence that
is nearly attained, for any other by the theorem of Wang, Balle and Kasiviswanathan (`subsampled`).

A batch of B of n positions is drawn uniformly without replacement. A sum over it moves by at most z
standard deviations of its noise when a record of it is replaced; neighbours replace one record of the
n. Write gamma = B/n, a for an integer order, and R = exp(z g - z^2/2), g normal, for the likelihood
ratio of two unit Gaussians whose means are z apart, u = max(R - 1, 0).

**Theorem.** Between neighbours (a - 1) D_a <= log(1 + I + J), where

    I = E[(1 + gamma u)^a - 1 - a gamma u],    J = E[(1 + gamma u)^(1-a) - 1 + (a - 1) gamma u].

To first order that is D_a <= a gamma^2 z^2/2. It holds given any past, so it composes adaptively.

**Proof.** docs/proofs/amplification.md.

**Evaluation.** With every term positive, and m_j = E[u^j] (m_2 = h_2, m_3 = h_3 - 3 h_2,
m_4 = h_4 - 4 m_3 - 6 m_2),

    I = sum_{k=2..a} C(a,k) gamma^k (1 - gamma)^(a-k) h_k,
    h_k = e^(k(k-1)z^2/2) Phi((k - 1/2) z) - Phi(-z/2) - k (2 Phi(z/2) - 1),
    J <= C(a,2) gamma^2 m_2, and J <= that - C(a+1,3) gamma^3 m_3 + C(a+2,4) gamma^4 m_4.
"""

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import comb, erf, erfc, exp, expm1, inf, isqrt, lgamma, log, log1p, sqrt
from typing import Protocol

ORDER_MAX = 4096  # sums have as many terms; beyond, sampling is not credited
LOG_DECIMAL_MAX = 2_290_000  # the exponential of a little more is beyond any Decimal
DIGITS = 60
ROUND_UP = Decimal(1) + Decimal("1e-40")
_HUGE = Fraction(10**9)
_LOG_2, _LOG_10 = log(2), log(10)
_SLACK = Decimal("1e-40")  # relative and absolute: 10^15 times what 10^4 operations can err
_NEGLIGIBLE = Decimal("1e-50")
_BITS, _BITS_TOLD = 256, 200  # after the point, and 60 digits of a sum
_FAR = 16 << _BITS  # Phi of this is 1 to 57 digits
_LARGE, _NONE_OF_IT = 600.0, 45.0  # e^600 is a float, and e^-45 of a sum of floats is none of it
_TINY = 1e-3  # a ratio at which E[u^2] is half its square
_SMALL = 6e-10  # of 6 z^2: below it floats do not tell m_4 from nothing
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620900")


@lru_cache(maxsize=4096)
def sampled_gaussian(
    z_squared: Fraction, batch: int, population: int, order: int
) -> Fraction | None:
    """The bound on D_order, rounded up, or None where it is made of numbers too large to say."""
    last = max(order, 4)
    if last * (last - 1) * z_squared > 2 * LOG_DECIMAL_MAX:
        return None
    with localcontext(prec=DIGITS):
        square = Decimal(z_squared.numerator) / z_squared.denominator
        each, half = (
            square.exp(),
            isqrt((z_squared.numerator << 2 * _BITS) // (4 * z_squared.denominator)),
        )
        density = (-square / 8).exp() / (2 * _PI).sqrt() / 2**_BITS
        drawn, rest = Decimal(batch), Decimal(population - batch)
        middle = 1 if half > _FAR else Decimal("0.5") + density * _rise(half)
        gamma, less = drawn / population, 2 * middle - 1

        def moment(k: int, power: Decimal, matters: bool) -> Decimal:
            """h_k, for power = e^(k(k-1)z^2/2): the density at (k - 1/2) z is `density`/power."""
            x = (2 * k - 1) * half
            risen = power / 2 + density * _rise(x) if matters and x <= _FAR else power
            return risen - (1 - middle) - k * less

        weight = comb(order, 2) * gamma**2 * (rest / population) ** (order - 2)
        power, growth, total, first = each, each, Decimal(0), []
        for k in range(2, last + 1):
            if k > 2:
                growth *= each
                power *= growth
                weight *= drawn * (order - k + 1) / (rest * k)
            # where it does not matter Phi is taken for 1, which is more
            h = moment(k, power, k <= 4 or weight * power > total * _NEGLIGIBLE)
            total += weight * h
            first += [h] if k <= 4 else []
        m2, m3 = first[0], first[1] - 3 * first[0]
        m4 = first[2] - 4 * m3 - 6 * m2
        second = comb(order, 2) * gamma**2 * m2
        fourth = comb(order + 2, 4) * gamma**4 * m4 - comb(order + 1, 3) * gamma**3 * m3
        total += second + min(Decimal(0), fourth)
        total += total * _SLACK + _SLACK
        return Fraction((1 + total).ln() / (order - 1) * (1 + _SLACK))


def _rise(x: int) -> int:
    """sqrt(2 pi) e^(x^2/2) (Phi(x) - 1/2) = x + x^3/3 + x^5/(3 5) + ... for x >= 0, in units of
    2^-_BITS: integers lose no more here than Decimals would, and are ten times as fast."""
    square, term, total, odd = x * x >> _BITS, x, x, 1
    while term > total >> _BITS_TOLD or odd << _BITS < square:
        odd += 2
        term = (term * square >> _BITS) // odd
        total += term
    return total


@lru_cache(maxsize=1 << 14)  # jobs that differ in other things search through the same ratios
def roughly(z: float, gamma: float, order: int, enough: float = inf) -> float:
    """(order - 1) D_order in floats, for searches: what is charged is the above. Infinite once it is
    seen to exceed `enough`."""
    rho, choices, log_odds = z * z / 2, _log_choices(order), log(gamma) - log1p(-gamma)
    middle, none = erf(z / sqrt(8)), order * log1p(-gamma)

    def log_moment(k: int) -> float:
        """log h_k, of differences that lose few digits where z is small."""
        growth, beyond = k * (k - 1) * rho, erf((k - 0.5) * z / sqrt(2))
        change = (beyond - (2 * k - 1) * middle) / 2
        return growth + log(exp(-growth) * change - expm1(-growth) * (1 + beyond) / 2)

    def log_term(k: int) -> float:
        return none + k * log_odds + choices[k] + log_moment(k)

    logs = [2 * log(gamma) + choices[2] + log_moment(2)]
    if _SMALL < 12 * rho < _LARGE:
        h2, h3, h4 = (exp(log_moment(k)) for k in (2, 3, 4))
        m3 = h3 - 3 * h2
        m4 = h4 - 4 * m3 - 6 * h2
        fourth = comb(order + 2, 4) * gamma**2 * m4 - comb(order + 1, 3) * gamma * m3
        second = comb(order, 2) * h2 + min(0.0, fourth)
        logs = [2 * log(gamma) + log(second)] if second > 0 else logs
    logs.append(log_term(order))
    # The logarithm of term k grows by log((order - k)/(k + 1)) + log_odds + 2 k rho, which falls,
    # rises and falls again: terms have their second top, if any, where it falls through 0. Once
    # they fall and are negligible, as that one is, the rest is none.
    curve = (order + 1) ** 2 - 2 * (order + 1) / rho
    low, high = max(2, int((order - 1 + sqrt(curve)) / 2)) if curve > 0 else order, order
    while high - low > 1:
        k = (low + high) // 2
        grows = log((order - k) / (k + 1)) + log_odds + 2 * k * rho > 0
        low, high = (k, high) if grows else (low, k)
    later = max(logs[-1], log_term(high))
    again = later > logs[0] - _NONE_OF_IT - log(order)
    top = max(logs[0], later)
    for k in range(2, order):
        logs.append(log_term(k))
        top = max(top, logs[-1])
        if top > enough:
            return inf
        if not again and k > 2 and logs[-1] < logs[-2] and logs[-1] < top - _NONE_OF_IT:
            break
    total = sum(exp(each - top) for each in logs)
    return top + log(total + exp(-top)) if top > 0 else log1p(exp(top) * total)


def at_a_glance(z: float, gamma: float, order: int) -> float:
    """The same by the first and the last term of the sum, which is mostly all of it: z at which it is
    a given amount is right to a tenth or so, for choosing schedules and for where a search begins."""
    rho, pairs = z * z / 2, order * (order - 1)
    last = order * log(gamma)
    if last + pairs * rho > _LARGE or rho > _LARGE:
        return inf
    h2 = exp(2 * rho) * (1 + erf(1.5 * z / sqrt(2))) / 2 + 1.5 * erfc(z / sqrt(8)) - 2
    h2 = h2 if z > _TINY else rho
    rest = exp(last + pairs * rho) - exp(last) * (1 + pairs * rho)
    return pairs * gamma**2 * h2 + max(rest, 0.0)


@lru_cache(maxsize=64)
def _log_choices(order: int) -> list[float]:
    of_all = lgamma(order + 1)
    return [of_all - lgamma(j + 1) - lgamma(order - j + 1) for j in range(order + 1)]


class Priced(Protocol):
    """A release, as far as its price goes."""

    def renyi(self, order: int) -> Fraction: ...
    def pure(self) -> Fraction | None: ...
    def __hash__(self) -> int: ...


@lru_cache(maxsize=4096)
def subsampled(release: Priced, batch: int, population: int, order: int) -> Fraction | None:
    """Theorem 9 of Wang, Balle and Kasiviswanathan 2019, as `Subsample` states it, or None where it
    says no less than the inner release, or is made of numbers too large to say.

    A term that could not change a digit of the sum is not evaluated, and once one term alone exceeds
    the inner release the rest is not: estimates in floats, a factor of e apart from the decision, say
    which. Either way the value is that of the whole sum.
    """
    if release.renyi(2) > LOG_DECIMAL_MAX:
        return None
    enough = (order - 1) * float(min(release.renyi(order), _HUGE)) + 1
    log_share, log_choices = log(batch) - log(population), log(order) + log((order - 1) / 2)
    choices = comb(order, 2)
    with localcontext(prec=DIGITS):
        gamma = Decimal(batch) / population
        pure = release.pure()
        range_ = None if pure is None else as_decimal(pure).exp() - 1
        e2 = as_decimal(release.renyi(2)).exp()
        bounded = Decimal(2) if range_ is None else min(Decimal(2), range_**2)
        total = 1 + gamma**2 * choices * min(4 * (e2 - 1), e2 * bounded)
        for j in range(3, order + 1):
            choices = choices * (order - j + 1) // j
            log_choices += log((order - j + 1) / j)
            inner = release.renyi(j)
            exponent = (j - 1) * float(min(inner, _HUGE))
            size = j * log_share + log_choices + exponent + _LOG_2
            if size + 1 < (total.adjusted() - DIGITS) * _LOG_10:
                continue
            if range_ is None and (size > enough or max(size, exponent) > LOG_DECIMAL_MAX):
                return None
            bounded = Decimal(2) if range_ is None else min(Decimal(2), range_**j)
            growth = ((j - 1) * as_decimal(inner)).exp()
            total += gamma**j * choices * growth * bounded
        return Fraction((total * ROUND_UP).ln() / (order - 1) * ROUND_UP)


def as_decimal(value: Fraction) -> Decimal:
    """The fraction in the current precision, never below it."""
    return Decimal(value.numerator) / Decimal(value.denominator) * ROUND_UP
