"""What the minimiser of a randomly tilted objective tells of one record: in decimals, rounded up.

w = argmin sum l(<w, x_i>, y_i) + (strong/2) ||w||^2 + <b, w>, b normal. In units of b's standard
deviation a replaced record moves the gradient by a vector of the parallelogram of two records' slopes
times rows, each of norm at most mu/2; `sides` is 1 where, given its label, a slope has one sign, and
else 2. c = curvature X2^2/strong, C = log(1 + c), k = a - 1 for an integer order a,
psi(x) = e^(k x) - 1 - k (1 - e^(-x)).

**Theorem.** k D_a <= log(1 + U + V), with sums over v in (mu, mu/2, mu/2), or for two sides over
(mu, mu, mu/sqrt 2, mu/sqrt 2):

    U = psi(C) + sum of e^(kC) T(v) - k e^(-C) (2 Phi(v/2) - 1),
    T(v) = e^(a k v^2/2) Phi((a - 1/2) v) - Phi(v/2),
    V = psi(-C) + sum of k e^C (e^(v^2/2) Phi(v) - 1/2) + e^(-kC) (e^(k^2 v^2/2) Phi(-kv) - 1/2);

D_a <= C + a mu^2/2 + log(5)/k; and w is m-GDP for m = 2 (h + C M(h/2)), h = sides mu/2, M being Mills'
ratio, so that D_a <= a m^2/2 too.

**Proof.** docs/proofs/perturbed-minimum.md.
"""

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

from service.planning.amplification import LOG_DECIMAL_MAX, ROUND_UP, as_decimal
from service.planning.normal import DIGITS, PI, mills, tail

_SLACK = Decimal("1e-40")  # 10^8 times what the terms below can err, relative to the largest
_HALF = Decimal("0.5")
_LOG_5 = Decimal("1.60943791243410037460075933322618763952560135426851772191265")


def log_determinant(c: Fraction) -> Fraction:
    """log(1 + c), rounded up."""
    return Fraction(_log_determinant(c))


@lru_cache(maxsize=4096)
def _log_determinant(c: Fraction) -> Decimal:
    with localcontext(prec=DIGITS):
        return min(as_decimal(c), ((1 + as_decimal(c)) * ROUND_UP).ln() * ROUND_UP)


@lru_cache(maxsize=4096)
def renyi(mu: Fraction, c: Fraction, sides: int, order: int) -> Fraction:
    """The divergence of this order, rounded up."""
    bound = order * gdp_squared(mu, c, sides) / 2
    with localcontext(prec=DIGITS):
        k, C, m = order - 1, _log_determinant(c), as_decimal(mu)
        simple = C + order * m * m / 2 + _LOG_5 / k
        bound = min(bound, Fraction(simple * ROUND_UP))
        if k * (C + order * m * m) > LOG_DECIMAL_MAX:
            return bound
        total, size = _moments(m, C, sides, order)
        total += _SLACK * size
        return min(bound, Fraction((1 + total).ln() / k * ROUND_UP))


def _moments(mu: Decimal, C: Decimal, sides: int, order: int) -> tuple[Decimal, Decimal]:
    """U + V, and the sum of their terms' sizes."""
    k, root = order - 1, (2 * PI).sqrt()
    grown, shrunk, up, down = (k * C).exp(), (-k * C).exp(), C.exp(), (-C).exp()
    small = mu / 2 if sides == 1 else mu / Decimal(2).sqrt()
    counts = ((mu, 1), (small, 2)) if sides == 1 else ((mu, 2), (small, 2))
    terms = [grown, Decimal(-1 - k), k * down, shrunk, k * up, Decimal(-1 - k)]
    for v, times in counts:
        middle, power = 1 - tail(v / 2), (order * k * v * v / 2).exp()
        of_each = [
            grown * power * (1 - tail((order - _HALF) * v)),
            -grown * middle,
            -k * down * (2 * middle - 1),
            k * up * ((v * v / 2).exp() - mills(v) / root),
            -k * up * _HALF,
            shrunk * mills(k * v) / root,
            -shrunk * _HALF,
        ]
        terms += [times * term for term in of_each]
    return sum(terms, Decimal(0)), sum((abs(term) for term in terms), Decimal(0))


@lru_cache(maxsize=4096)
def gdp_squared(mu: Fraction, c: Fraction, sides: int) -> Fraction:
    """m^2 of the theorem, rounded up."""
    with localcontext(prec=DIGITS):
        h = sides * as_decimal(mu) / 2
        m = 2 * (h + _log_determinant(c) * mills(h / 2) * ROUND_UP) * ROUND_UP
        return Fraction(m * m * ROUND_UP)
