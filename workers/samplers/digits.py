"""Normal and Laplace deviates with as many digits as it takes; see the package.

The definition of what real.py computes faster: word for word the same draws, with deviates as strings
of 64-bit digits that grow whenever a comparison needs it.
"""

from collections.abc import Callable
from decimal import Decimal, localcontext

Draw = Callable[[], int]
Digit = Callable[[int], int]  # the k-th digit of a number, drawn or computed when first asked for


def deviate(draw: Draw) -> Digit:
    """A uniform number, of which the first digit is drawn now and the others when needed."""
    digits = [draw()]

    def digit(k: int) -> int:
        if k == len(digits):
            digits.append(draw())
        return digits[k]

    return digit


def root_e(k: int) -> int:
    """The k-th digit of exp(-1/2), from a decimal expansion that is long enough to be sure."""
    bits = 64 * (k + 1)
    precision = bits // 3 + 20
    while True:
        with localcontext(prec=precision):
            low, high = (
                int((Decimal("-0.5").exp() + Decimal(slack).scaleb(2 - precision)) * 2**bits)
                for slack in (-1, 1)
            )
        if low == high:
            return low % 2**64
        precision *= 2


def less(a: Digit, b: Digit) -> bool:
    """a < b; equal digits ask for the next ones, first of a, then of b."""
    k = 0
    while (left := a(k)) == (right := b(k)):
        k += 1
    return left < right


def slow_normal(draw: Draw, bits: int) -> int:
    while True:
        k = 0
        while less(deviate(draw), root_e):
            k += 1
        if not all(less(deviate(draw), root_e) for _ in range(k * (k - 1))):
            continue
        x = deviate(draw)
        if all(_accept(draw, x, k) for _ in range(k + 1)):
            return _signed(draw, k, x, bits)


def slow_laplace(draw: Draw, bits: int) -> int:
    k = 0
    while True:
        x = above = deviate(draw)
        length = 1
        while less(below := deviate(draw), above):
            above = below
            length += 1
        if length % 2 == 1:
            return _signed(draw, k, x, bits)
        k += 1


def _accept(draw: Draw, x: Digit, k: int) -> bool:
    """True with probability exp(-x (2k + x)/(2k + 2))."""
    m, above, length = 2 * k + 2, x, 0
    while less(below := deviate(draw), above):
        while (word := draw()) >= 2**64 - 2**64 % m:
            pass
        if word % m == 0 or (word % m == 1 and not less(deviate(draw), x)):
            break
        length += 1
        above = below
    return length % 2 == 0


def _signed(draw: Draw, k: int, x: Digit, bits: int) -> int:
    magnitude = (k << bits) + (((x(0) >> (63 - bits)) + 1) >> 1)
    return magnitude if draw() >= 2**63 else -magnitude
