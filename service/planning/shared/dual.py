"""The minimiser of a tilted objective, computed in float64 to a proved accuracy for every data set.

**Problem.** F(w) = sum l(<w, x_i>, y_i) + (Lambda/2) ||w||^2 + <b, w> over a ball or all of R^d: n
convex losses of slope at most L0 and curvature kappa in the margin, rows of norm at most X2.

**Schedule.** Dual coordinate ascent (Shalev-Shwartz and Zhang 2013). One number a_i per row, 0 at
first; v = (sum a_i x_i - b)/Lambda and w its projection. Rows are visited in blocks, in an order
that is drawn anew each pass and that no row enters; a visit moves a_i by s (-l'(<w, x_i>) - a_i),
s = 1/(1 + c).

**Accuracy.** After the last pass r = Lambda v + sum l'(<w, x_i>) x_i + b is computed. w is the
exact minimiser for the linear term b - r, and minimisers of a Lambda-strongly convex function move
by at most ||r||/Lambda: this needs no argument about how the point came to be, so privacy does not
rest on how fast the ascent is. `error` bounds what floats add to r. Where the bound exceeds
`residual` more passes are made, over rows drawn independently; in them the expected distance from
the optimum of the dual falls by e^(-s) per pass, for any rows
(docs/proofs/perturbed-minimum.md)."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isqrt, log, sqrt
from typing import Literal

from pydantic import PositiveFloat, PositiveInt

from service.errors import PlanRefused
from service.planning.conversion import UNITS
from service.planning.draft import Schedule
from service.planning.lattice import Target
from service.planning.releases import PerturbedMinimum
from service.planning.shared.minimiser import U, mean_error

TERM_BITS = 40  # b's scale in its lattice's units: rounding b costs next to nothing
_UNIT = 2**40  # of c
_BLOCK = 16
_NEARLY = 4096  # the budget is used but for at most one of so many parts
_SAFE = 1 + 2.0**-16


class PerturbedMinimumSchedule(Schedule):
    """Minimise the sum of losses plus (strong_convexity/2) ||w||^2 plus a linear term within
    `radius` of 0, to a gradient of at most `residual`; release the point once, on multiples of
    `lattice_step`. The linear term is `term`'s noise, in units of `term_step`."""

    kind: Literal["perturbed_minimum"] = "perturbed_minimum"
    steps: PositiveInt
    block: PositiveInt
    strong_convexity: PositiveFloat
    curvature: PositiveFloat
    slope_bound: PositiveFloat
    radius: PositiveFloat | None
    term: PerturbedMinimum
    term_step: PositiveFloat
    residual: PositiveFloat
    sensitivity: PositiveFloat
    lattice_step: PositiveFloat

    def released_points(self, rows: int) -> tuple[tuple[range, float], ...]:
        return ((range(rows), self.sensitivity),)


@dataclass(frozen=True)
class Tilted:
    """F, as far as numbers go."""

    rows: int
    columns: int
    row_norm: float  # X2
    slope: float  # L0
    curvature: float  # kappa, in the margin
    strong: float  # Lambda
    term_step: float  # of b's lattice

    @property
    def bend(self) -> float:
        return self.curvature * self.row_norm**2 / self.strong

    @property
    def block(self) -> int:
        """Rows that lie together are visited together, for memory's sake: so few that they hardly
        disturb each other, even if all are alike (with 0.5 such rows called for further passes)."""
        return max(1, min(_BLOCK, int(0.1 / self.bend)))

    @property
    def rounding(self) -> float:
        """How far b may be from where it was before it was rounded to its lattice."""
        return sqrt(self.columns) / 2 * self.term_step * _SAFE

    def reach(self, tilt: float) -> float:
        """No minimiser is further out: F there is at most F(0), and no loss at 0 exceeds 1 or L0."""
        at_zero = 2 * self.rows * max(1.0, self.slope) / self.strong
        return 2 * tilt / self.strong + sqrt(at_zero)

    def error(self, w: float, v: float, b: float) -> float:
        """Of the computed gradient, for vectors of such norms; twice what the sum of slopes times rows
        may err, for w is projected in floats too."""
        slopes = mean_error(self.rows, self.columns, w, self.row_norm, self.curvature, self.slope)
        sizes = self.strong * v + b + self.rows * self.slope * self.row_norm
        return 2 * self.rows * slopes + 16 * U * (self.columns + 16) * sizes

    def sensitivity(self, residual: float) -> float:
        return 2 * (residual + self.rounding) / self.strong * _SAFE

    def residual(self, sensitivity: float) -> float:
        """What may be left of the gradient, at this sensitivity."""
        return sensitivity * self.strong / (2 * _SAFE**2) - self.rounding

    def passes(self, residual: float) -> int:
        """So many that what is left of the gradient falls to a tenth of the residual, as it does on
        rows in random order: by a factor of some 5 per pass."""
        start = self.rows * self.slope * self.row_norm
        return 4 + ceil(0.75 * (1 + 2 * self.bend) * log(max(1.0, 10 * start / residual)))


def calibrate_term(goal: Target, bend: float, sides: Literal[1, 2]) -> PerturbedMinimum:
    """The linear term that costs about what `goal` has, and not more, for c = `bend`."""
    noise: Literal["gaussian", "laplace"] = "gaussian" if goal.delta > 0 else "laplace"
    curvature = ceil(bend * _UNIT * (1 + 2.0**-30))

    def term(sensitivity: int) -> PerturbedMinimum:
        return PerturbedMinimum(
            noise=noise,
            sensitivity=max(1, sensitivity),
            scale=2**TERM_BITS,
            curvature=curvature,
            strong=_UNIT,
            sides=sides,
        )

    if noise == "laplace":
        left = Fraction(goal.units, UNITS) - (term(1).pure() or 0) + term(1).ratio
        made = term(int(left * 2**TERM_BITS))
    else:
        plain = (2 * goal.units << 2 * TERM_BITS) // UNITS  # of noise alone, without c
        square = _largest(lambda square: goal.cost(term(isqrt(square))), goal.units, plain)
        made = term(isqrt(square))
    if goal.cost(made) > goal.units:
        raise PlanRefused(
            "privacy.epsilon is too small for the ledger's smallest unit; use 0.0001."
        )
    return made


def _largest(cost: Callable[[int], int], most: int, high: int) -> int:
    """An argument that costs at most `most`, and about that: `cost` is increasing, and nearly linear.
    By secants, as every cost takes a while, towards the middle of what is near enough."""
    low, below = 1, cost(1)
    if below > most:
        return 0
    while (above := cost(high)) <= most:
        low, below, high = high, above, 2 * high
    near, aim = most - most // _NEARLY, most - most // (2 * _NEARLY)
    last, latest = (low, below), (high, above)
    for step in range(1, 200):
        (x, at_x), (y, at_y) = last, latest
        middle = y + (y - x) * (aim - at_y) // (at_y - at_x) if at_x != at_y else low
        if step % 4 == 0 or not low < middle < high:
            middle = (low + high) // 2
        if middle == low:
            break
        last, latest = latest, (middle, cost(middle))
        if latest[1] > most:
            high = middle
            continue
        low = middle
        if latest[1] >= near:
            break
    return low
