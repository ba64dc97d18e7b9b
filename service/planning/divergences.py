"""Exact divergences of mechanisms with a pure epsilon or a bounded range, rounded up.

At an integer order a >= 2, with e the epsilon or the range (docs/proofs/exact-divergences.md):

    randomised response  D = e + log((1 + e^(-(2a-1)e))/(1 + e^(-e)))/(a-1)
    Laplace noise        D = e + log(a/(2a-1) + (a-1)/(2a-1) e^(-(2a-1)e))/(a-1)
    bounded range        D = e + log((a-1)/a) + log(A/B) + log(A/(a(1 - e^(-e))))/(a-1),
                         A = 1 - e^(-ae), B = 1 - e^(-(a-1)e)

the first being the most of any e-DP release, the last of any whose privacy loss has range e;

and the smallest mu for which any such release is mu-GDP:

    e-DP                 mu = 2 Phi^-1(1/(1 + e^(-e))), and mu^2 <= min(pi e^2/2, 8e)
    range e              mu = 2 Phi^-1(1/(1 + e^(-e/2))), that of (e/2)-DP

No exponential here has a positive exponent, so nothing is too large to say. Where e is so small that
60 digits cannot tell D from its first term, that term is the price: a e^2/2, a e^2/8, pi e^2/2; it is
never less than D. Decimals err by less than 10^-47 in a logarithm, for which 10^-44 is added.
"""

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from service.planning.amplification import as_decimal
from service.planning.normal import DIGITS, PI, PI_ABOVE, mills, root

_SMALL = Fraction(1, 10**12)
_SLACK = Decimal("1e-44")
_ROUND_UP = Decimal(1) + Decimal("1e-50")
_ABOVE = Decimal(1) + Decimal("1e-25")


@lru_cache(maxsize=4096)
def randomised_response(epsilon: Fraction, order: int) -> Fraction:
    simple = min(order * epsilon**2 / 2, epsilon)
    if epsilon < _SMALL:
        return simple
    with localcontext(prec=DIGITS):
        e = as_decimal(epsilon)
        inside = (1 + _decay((2 * order - 1) * e)) / (1 + _decay(e))
        return min(simple, _rounded_up(e, inside.ln(), order))


@lru_cache(maxsize=4096)
def laplace(epsilon: Fraction, order: int) -> Fraction:
    simple = min(order * epsilon**2 / 2, epsilon)
    if epsilon < _SMALL:
        return simple
    with localcontext(prec=DIGITS):
        e, twice = as_decimal(epsilon), 2 * order - 1
        inside = (order + (order - 1) * _decay(twice * e)) / twice
        return min(simple, _rounded_up(e, inside.ln(), order))


@lru_cache(maxsize=4096)
def bounded_range(epsilon: Fraction, order: int) -> Fraction:
    simple = min(order * epsilon**2 / 8, epsilon)
    if epsilon < _SMALL:
        return simple
    with localcontext(prec=DIGITS):
        e, a = as_decimal(epsilon), Decimal(order)
        whole = 1 - _decay(a * e)
        first = ((a - 1) / a * whole / (1 - _decay((a - 1) * e))).ln()
        second = (whole / (a * (1 - _decay(e)))).ln()
        return min(simple, _rounded_up(e + first, second, order))


@lru_cache(maxsize=4096)
def mu_squared_of_pure(epsilon: Fraction) -> Fraction:
    """h = mu/2 solves Phi(-h) = 1/(1 + e^epsilon). It is rounded up, and then tried."""
    simple = min(Fraction(PI_ABOVE) / 2 * epsilon**2, 8 * epsilon)
    if epsilon < _SMALL:
        return simple
    with localcontext(prec=DIGITS):
        e = as_decimal(epsilon)
        wanted = e + (1 + _decay(e)).ln() - (2 * PI).sqrt().ln()

        def excess(h: Decimal) -> tuple[Decimal, Decimal]:
            """-log Phi(-h) less log(1 + e^epsilon), and its slope."""
            ratio = mills(h)
            return h * h / 2 - ratio.ln() - wanted, 1 / ratio

        h = root(excess, Decimal(0), (2 * e).sqrt() + 1, Decimal("1e-30")) * _ABOVE
        return min(simple, Fraction(4 * h * h)) if excess(h)[0] > 0 else simple


def mu_squared_of_range(epsilon: Fraction) -> Fraction:
    return mu_squared_of_pure(epsilon / 2)


def _decay(x: Decimal) -> Decimal:
    """e^-x, or 0 where no Decimal is so small: the slack is more."""
    return (-x).exp()


def _rounded_up(e: Decimal, logarithm: Decimal, order: int) -> Fraction:
    return Fraction((e + (logarithm + _SLACK) / (order - 1) + _SLACK) * _ROUND_UP)
