"""What the two stochastic Frank-Wolfe algorithms for smooth losses share: rounds of batches.

Round r has 2^r steps of size 1/sqrt(t + 1). Its batch t has floor(b/(t + 1)) rows, and the gradient
is estimated recursively: d_0 is the mean gradient of batch 0, and with a = 1/sqrt(t + 1)

    d_t = (1 - a) (d_(t-1) + D_t) + a g_t,   D_t, g_t the means over batch t of the gradients' change
                                             from w_(t-1) to w_t, and of the gradients at w_t.

So a record enters one batch, with its slope at w_t less (1 - a) times that at w_(t-1), times its
row. With L0 and L1 bounding slope and curvature in the margin and M the change of its margin, that
slope is at most (1 - a) min(L1 M, 2 L0) + a L0 (`slope_bound`): kernels clip to it, as integers.

All rows are used once. The papers give every round the same b; here b shrinks by 2^(-3/2) from a
round to the one before it, which keeps the bound of round r proportional to 2^(-r/2), and the
output is drawn uniformly from the iterates after each step of the last round. BGM's proofs bound
the mean stationarity of each round by itself, from the range of the loss alone, so no earlier round
is part of that bound. Shifting their sum over t = 0..T-1 by one (the estimate at the last iterate
is one that could be made) gives, with A bounding |<v - w, x>| over the set and the rows,

    mean gap <= (1/T) sum over t = 1..T of (telescoped) L0 A sqrt(T + 1) + L1 A^2/(2 sqrt(t + 1))
                + the error of d_t on the directions v - w + that of the choice of v.
"""

from collections.abc import Iterator
from itertools import pairwise
from math import isfinite, sqrt

from pydantic import NonNegativeInt, PositiveInt

from service.errors import PlanRefused
from service.planning.draft import Part
from service.planning.problem import Problem
from service.planning.spec import JobSpec

ROUNDS_MAX = 11  # 1024 steps in the last


class Round(Part):
    """`steps` steps of size 1/sqrt(t + 1), one batch each, from the row `start` on: batch t has
    rows // (t + 1) rows."""

    start: NonNegativeInt
    rows: PositiveInt
    steps: PositiveInt

    def batches(self) -> Iterator[range]:
        start = self.start
        for t in range(self.steps):
            stop = start + self.rows // (t + 1)
            yield range(start, stop)
            start = stop

    @property
    def stop(self) -> int:
        return self.start + sum(self.rows // (t + 1) for t in range(self.steps))


def rounds_over(rows: int, rounds: int) -> tuple[Round, ...] | None:
    """The layout of so many rounds on so many rows, or None if a batch would be empty."""
    shares = [2.0 ** -(3 * (rounds - 1 - r) // 2) for r in range(rounds)]
    shares = [s / (sqrt(2.0) if (rounds - 1 - r) % 2 else 1.0) for r, s in enumerate(shares)]
    largest = rows / sum(
        share * sum(1 / (t + 1) for t in range(2**r)) for r, share in enumerate(shares)
    )
    made, start = [], 0
    for r, share in enumerate(shares):
        one = Round(start=start, rows=max(1, int(largest * share)), steps=2**r)
        made.append(one)
        start = one.stop
    if start > rows or any(one.rows < one.steps for one in made):
        return None
    return tuple(made)


def layouts(name: str, rows: int, rounds: int | None) -> list[tuple[Round, ...]]:
    """The layouts to choose from: of the number of rounds that was asked for, or of all that fit."""
    numbers = range(1, ROUNDS_MAX + 1) if rounds is None else [rounds]
    fitting = [layout for number in numbers if (layout := rounds_over(rows, number))]
    if fitting:
        return fitting
    enough = 1
    while rounds_over(enough, numbers[0]) is None:
        enough *= 2
    low = enough // 2
    while low + 1 < enough:
        middle = (low + enough) // 2
        low, enough = (middle, enough) if rounds_over(middle, numbers[0]) is None else (low, middle)
    raise PlanRefused(
        f"{name} with {rounds} rounds needs at least {enough} rows, so that every batch has one, and "
        f"the dataset has {rows}; ask for fewer rounds, or leave parameters.rounds out."
    )


def step_size(t: int) -> float:
    return 1 / sqrt(t + 1)


def slope_bound(lipschitz: float, change: float, fresh: float) -> float:
    """Of a record's slope at w less (1 - fresh) times that before, where the slope changes by at most
    `change`."""
    return (1 - fresh) * min(change, 2 * lipschitz) + fresh * lipschitz


def slope_bounds(lipschitz: float, curved: float, steps: int) -> list[float]:
    """The same for every batch of a round, where the slope changes by at most `curved` times the
    size of the last step."""
    sizes = [step_size(t) for t in range(steps)]
    return [lipschitz] + [
        slope_bound(lipschitz, curved * last, now) for last, now in pairwise(sizes)
    ]


def descent_bound(L0A: float, L1A2: float, steps: int) -> float:
    """The part of the mean gap that exact gradients would leave."""
    return (
        L0A * sqrt(steps + 1) + L1A2 / 2 * sum(step_size(t) for t in range(1, steps + 1))
    ) / steps


def carried(variances: list[float]) -> list[float]:
    """The standard deviation of every d_t, from the variance that each batch adds."""
    found, total = [], 0.0
    for t, variance in enumerate(variances):
        total = (1 - step_size(t)) ** 2 * total + variance
        found.append(sqrt(total))
    return found


def require_slope_bound(name: str, spec: JobSpec, p: Problem) -> None:
    if not isfinite(p.lipschitz):
        raise PlanRefused(
            f"{name} needs a bound on every slope and {spec.loss.kind} has none with a label without "
            "bounds; use huber or welsch, or declare bounds for the label."
        )
