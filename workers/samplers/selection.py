"""The exponential mechanism as a race, decided by intervals; see the package.

Candidate v draws an exponential deviate E_v = -log(1 - U_v); the least log E_v + score_v/scale wins,
which is v with probability proportional to exp(-score_v/scale). That holds for exact uniform numbers
U_v, and exact they are: a string of binary digits of which 64 are drawn at first. These put each entry
of the race into an interval, and where one interval lies below all others the winner is known. Else
those that may still win draw 64 more digits each, as often as it takes.

First round, in float64, u = 2^-53. The word w says w <= 2^64 U <= w + 1. Its conversion to a float is
off by a factor within 1 +- 2u, which the factors 1 -+ 2^-50 outweigh, so U is enclosed. The library's
logarithms are taken to err by at most 2^-46 of their value (64 units in the last place; they err by
less than four). So log E errs by at most 2^-45.9 (from E) + 2^-46 |log E|, the quotient of integers by
3u of its value, sums by 2u of theirs: in all less than SLACK (1 + |log E| + excess/scale).

The time depends on the scores only where a second round is needed. Two entries are then within
2 SLACK (1 + |log E| + excess/scale) < 2^-36 of each other, besides the width of 64 digits, which is
2^-58 on average; the difference of the best two has a density of at most 1. So that happens less than
once in 2^35 races.
"""

from collections.abc import Callable
from decimal import Decimal, localcontext

import numpy as np
from numpy.typing import NDArray

SLACK = 2.0**-44
_DIGIT = 64

Take = Callable[[int], NDArray[np.uint64]]  # the next so many random words
Floats = NDArray[np.float64]


def race(take: Take, scores: NDArray[np.int64], scale: int) -> int:
    """The winner, for any scores and any positive scale."""
    excess = scores.view(np.uint64) - scores.min().view(np.uint64)  # exact, whatever the range
    words = take(scores.size)
    low, high = first_round(words, excess, scale)
    alive = [int(v) for v in np.flatnonzero(low <= high.min())]
    digits, drawn = _DIGIT, {v: int(words[v]) for v in alive}
    while len(alive) > 1:
        digits += _DIGIT
        for v, word in zip(alive, take(len(alive)), strict=True):
            drawn[v] = drawn[v] << _DIGIT | int(word)
        bounds = {v: further_round(drawn[v], digits, int(excess[v]), scale) for v in alive}
        best = min(upper for _, upper in bounds.values())
        alive = [v for v in alive if bounds[v][0] <= best]
    return alive[0]


def first_round(
    words: NDArray[np.uint64], excess: NDArray[np.uint64], scale: int
) -> tuple[Floats, Floats]:
    """Bounds on log E + excess/scale for every candidate, infinite where 64 digits give none."""
    near = words.astype(np.float64) * 2.0**-_DIGIT
    x = excess.astype(np.float64) / float(scale)
    with np.errstate(divide="ignore"):  # the logarithm of zero is -inf, as it should be
        below = np.log(-np.log1p(-near * (1 - 2.0**-50)))
        above = np.log(-np.log1p(-np.minimum((near + 2.0**-_DIGIT) * (1 + 2.0**-50), 1.0)))
    return (
        below + x - SLACK * (1 + np.abs(below) + x),
        above + x + SLACK * (1 + np.abs(above) + x),
    )


def further_round(drawn: int, digits: int, excess: int, scale: int) -> tuple[Decimal, Decimal]:
    """The same from `digits` >= 128 binary digits of U, in as many decimal ones.

    The quotient errs by 10^(1 - digits) of its value, so E by as much and, being at least 2^-digits,
    by less than 10^(2 - 0.69 digits) of its own; Decimal rounds logarithms correctly, and
    excess < 2^64. In all that is less than the slack of 10^(-digits/2).
    """
    with localcontext(prec=digits):
        whole, slack = 1 << digits, Decimal(1).scaleb(-digits // 2)

        def entry(uniform: int, none: str) -> Decimal:
            if not 0 < uniform < whole:
                return Decimal(none)
            e = -(Decimal(whole - uniform) / Decimal(whole)).ln()
            return e.ln() + Decimal(excess) / Decimal(scale)

        return entry(drawn, "-Infinity") - slack, entry(drawn + 1, "Infinity") + slack
