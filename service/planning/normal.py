"""The normal distribution in decimals: tails to 50 digits, however far out, and what a Gaussian
mechanism of ratio mu = sensitivity/sigma is worth as (epsilon, delta).

With x = epsilon/mu - mu/2 and y = epsilon/mu + mu/2 the exact trade-off (Balle and Wang 2018, Theorem
8) is delta = Phi(-x) - e^epsilon Phi(-y), and e^epsilon phi(y) = phi(x), so that

    delta = phi(x) (M(x) - M(y)),    M(x) = Phi(-x)/phi(x),  Mills' ratio,

without an e^epsilon to lose digits by. M has the series sqrt(2 pi) e^(x^2/2)/2 - x - x^3/3 - x^5/15 -
... near 0, and 1/(x + 1/(x + 2/(x + 3/(x + ...)))) far out, whose convergents lie on both sides of it
by turns. M(x) - M(y) loses no more than log10(x/mu) + 2 of the 60 digits, and mu is at least 10^-6.

Decimals are the same on every machine, so what follows from them is too.
"""

from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache

DIGITS = 60
SLACK = Decimal("1e-30")  # relative: what is decided here errs by less than 10^-40
_GUARD = 12  # e^(_NEAR^2/2) in digits, and some
_NEAR = 6
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620900")
PI_ABOVE = Decimal("3.1415926535897932384626433832795029")


@lru_cache(maxsize=4096)
def mills(x: Decimal) -> Decimal:
    """Phi(-x)/phi(x)."""
    if x < 0:
        with localcontext(prec=DIGITS + _GUARD):
            return (2 * PI).sqrt() * (x * x / 2).exp() - mills(-x)
    if x <= _NEAR:
        with localcontext(prec=DIGITS + _GUARD):
            square, term, total, odd = x * x, x, x, 1
            while odd < square or term > total.scaleb(-DIGITS - _GUARD):
                odd += 2
                term = term * square / odd
                total += term
            return (2 * PI).sqrt() * (square / 2).exp() / 2 - total
    with localcontext(prec=DIGITS):
        # n levels leave about e^(-2 x sqrt(2 n)) of it
        levels = 20 + int((Decimal(80) / x) ** 2)
        below = x
        for level in range(levels, 0, -1):
            below = x + level / below
        return 1 / below


def density(x: Decimal) -> Decimal:
    return (-x * x / 2).exp() / (2 * PI).sqrt()


def tail(x: Decimal) -> Decimal:
    """Phi(-x)."""
    with localcontext(prec=DIGITS):
        return 1 - tail(-x) if x < 0 else density(x) * mills(x)


def delta_of(epsilon: Decimal, mu: Decimal) -> Decimal:
    """The smallest delta at which a Gaussian mechanism of this ratio is (epsilon, delta)-DP."""
    with localcontext(prec=DIGITS):
        x, y = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        if x < 0:
            return tail(x) - density(x) * mills(y)
        return density(x) * (mills(x) - mills(y))


def implies(mu_squared: Decimal, epsilon: Decimal, delta: float) -> bool:
    """Whether mu-GDP certainly implies (epsilon, delta)-DP."""
    if mu_squared == 0:
        return True
    with localcontext(prec=DIGITS):
        return delta_of(epsilon, mu_squared.sqrt()) * (1 + SLACK) <= Decimal(delta)


@lru_cache(maxsize=4096)
def largest_rho(epsilon: float, delta: float, units: int) -> int:
    """The largest integer n for which mu^2/2 = n/units certainly implies (epsilon, delta)-DP.

    Newton's steps on log delta find the place, and the decision above settles the last integer.
    """
    e, wanted = Decimal(epsilon), Decimal(delta)

    def excess(mu: Decimal) -> tuple[Decimal, Decimal]:
        """The logarithm of delta(mu) over the wanted one, and its slope: d delta/d mu = phi(x)."""
        found = delta_of(e, mu)
        return (found / wanted).ln(), density(e / mu - mu / 2) / found

    def fits(n: int) -> bool:
        return implies(Decimal(2 * n) / units, e, delta)

    with localcontext(prec=DIGITS):
        mu = root(excess, *_between(e, wanted), Decimal("1e-20"))
        n = int(mu * mu / 2 * units)
    while n > 0 and not fits(n):
        n -= 1
    while fits(n + 1):
        n += 1
    return n


@lru_cache(maxsize=4096)
def smallest_millionths(mu_squared: Fraction, delta: float) -> int:
    """The smallest n for which mu-GDP certainly implies (n/10^6, delta)-DP."""
    wanted = Decimal(delta)
    with localcontext(prec=DIGITS):
        square = Decimal(mu_squared.numerator) / mu_squared.denominator * (1 + SLACK)
        mu = square.sqrt()

        def excess(e: Decimal) -> tuple[Decimal, Decimal]:
            """d delta/d epsilon = -e^epsilon Phi(-y) = -phi(x) M(y)."""
            found = delta_of(e, mu)
            slope = density(e / mu - mu / 2) * mills(e / mu + mu / 2) / found
            return (wanted / found).ln(), slope

        def fits(n: int) -> bool:
            return implies(square, Decimal(n / 10**6), delta)

        if fits(0):
            return 0
        high = square / 2 + mu * ((-2 * wanted.ln()).sqrt() + 1)
        n = max(1, int(root(excess, Decimal(0), high, Decimal("1e-20")) * 10**6))
        while not fits(n):
            n += 1
        while fits(n - 1):
            n -= 1
    return n


def _between(e: Decimal, delta: Decimal) -> tuple[Decimal, Decimal]:
    """A mu that is too small and one that is too large. delta(mu) <= Phi(-x) <= e^(-x^2/2), delta(mu)
    <= mu/sqrt(2 pi), which is what it is for epsilon = 0 at most, and it tends to 1 as mu grows."""
    far = (-2 * delta.ln()).sqrt() + 1  # x here: mu = sqrt(x^2 + 2 e) - x, written without loss
    low = max(delta, 2 * e / ((far * far + 2 * e).sqrt() + far))
    high = 2 * low
    while delta_of(e, high) < delta:
        high *= 2
    return low, high


def root(
    at: Callable[[Decimal], tuple[Decimal, Decimal]], low: Decimal, high: Decimal, accuracy: Decimal
) -> Decimal:
    """Where an increasing function, given with its slope, is 0: Newton's steps, and halves where these
    would leave what is known to hold the root."""
    x = low
    for _ in range(400):
        value, slope = at(x)
        low, high = (x, high) if value < 0 else (low, x)
        step = x - value / slope if slope > 0 else high
        if slope > 0 and abs(step - x) <= accuracy * x:
            return step
        x = step if low < step < high else (low + high) / 2
    return low
