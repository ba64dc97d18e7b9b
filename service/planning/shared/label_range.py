"""A range for labels that use a small part of the one that was declared.

An owner declares bounds that no label leaves, and often labels fill a small part of them: incomes
declared up to a million, visits up to a thousand. Noise is in proportion to the range. So an interval
is chosen from the data for a small share of the budget, and labels are clipped to it, somewhat
widened, and stretched to [-1, 1] (`workers/label_range.py` counts).

**Candidates.** With h = 2^-j, j = 0..OCTAVES, the intervals [m - h, m + h] with m a multiple of h/2 in
[-1, 1] (for j = 0 only m = 0), as far as they lie in it. Labels are counted in cells of equal length,
the last of which has 1 itself; every candidate is made of whole cells.

**Scores.** c_k labels are in candidate k. Wanted is a short one with `rank` labels:

    score(k) = max(rank - c_k, 0) + penalty (OCTAVES - j_k).

*Sensitivity.* A label is in one cell, so replacing a record takes 1 from one cell and adds 1 to
another: every c_k moves by at most 1, so does every score, and the difference of two scores by at
most 2. That is attained, by a label that moves from one candidate into another, where both are short.

*Price.* One choice of range 2/scale over all rows. Everything that is done with the interval is
post-processing of it: another label is a function of one record and of the choice.

**When.** A choice is off by more than ten scales in its score with probability below 2049 exp(-10), a
tenth. Where ten scales (`off`) are more than four tenths of the rows no range is chosen. Who has
little to lose by a choice that is off asks less: with six or seven scales in four tenths of the rows,
no empty interval is taken for a full one but once in 20 or 600 times.
"""

from collections.abc import Sequence
from dataclasses import replace

from service.planning.draft import LabelRange
from service.planning.lattice import Target, choice_scale

SHARE = 0.05  # of the budget
QUANTILE = 0.95  # of labels in a range before it is widened
PENALTY = 0.03  # of the rows, that a range of half the length may lose
OFF = 10  # scales by which a choice hardly ever misses
WIDER = 1.5  # than the interval chosen, so that tails are not cut off


def label_range(
    goal: Target, rows: int, shares: Sequence[float] = (SHARE,), off: int = OFF
) -> LabelRange | None:
    """What is chosen for the first of these shares of `goal` for which so few rows at this privacy let
    it be chosen, if there is one."""
    for share in shares:
        part = replace(goal, units=int(goal.units * share))
        if part.units == 0:
            continue
        scale = choice_scale(part, LabelRange.SENSITIVITY, 1)
        if 10 * off * scale <= 4 * rows:
            return LabelRange(rank=int(QUANTILE * rows), penalty=int(PENALTY * rows), scale=scale)
    return None
