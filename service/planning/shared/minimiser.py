"""Minimise in float64, release the point: how far one record moves a *computed* minimiser.

**Problem.** min over a ball about 0 of F(w) = f(w) + (lambda/2) ||w||^2, f convex, L-Lipschitz and
beta-smooth; a replaced record changes its gradient by at most `change` at any w (2L/n for a mean of
L-Lipschitz losses). R, the ball's radius, is at most L/lambda.

**Sensitivity.** For *every* pair of neighbours, of the point as it is computed: T steps whatever the
data, each with an l2 error of at most e; q = 1 - eta lambda.

    descent, any T      (change/lambda + 2e/(eta lambda)) (1 - q^T), for eta <= 2/(beta + 2 lambda)
    averaged-passes        change/lambda + 2e/(eta lambda): shared/averaged.py
    sgd, K passes       2 eta L (sum over j < K of q^(j n)) + 2e/(eta lambda), beta of one record
    accelerated         change/lambda + 2a, a = sqrt(2 L R/lambda) (1 - theta)^(T/2) + 4e/lambda,
                        theta = sqrt(lambda/B), B >= beta + lambda
    subgradient         change/lambda + 2 sqrt(2 alpha/lambda), alpha = 2 (L + lambda R)^2/(lambda
                        (T+2)), and what errors add to it

**Proof.** docs/proofs/minimiser.md: contraction for the first three, an a-priori bound on the accuracy
for the others; then rounding, to first order and doubled.
"""

from dataclasses import dataclass
from math import ceil, expm1, inf, log, log1p, sqrt
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from service.errors import PlanRefused
from service.planning.draft import Part, rounded

# as Plans name them; the first is projected descent with whole gradients. Plans of before have an
# acceleration without projection, for balls that are large enough, under the name that jobs ask for
Solver = Literal[
    "gradient-descent",
    "averaged-passes",
    "projected-accelerated",
    "accelerated",
    "sgd",
    "subgradient",
]
AskedOfAny = Literal["gradient-descent", "accelerated"]
AskedOfMeans = Literal[AskedOfAny, "averaged-passes"]
Asked = Literal[AskedOfMeans, "sgd", "subgradient"]
DESCENT: Final = "gradient-descent"
GROUP = 256  # rows whose slopes times rows are summed by themselves
_BLOCK_ENTRIES = 2**20
U = 2.0**-53
STEPS_MAX = 10**6
STEPS_BY_DEFAULT = 2000
PASSES_BY_DEFAULT = 20
FURTHER = 3  # times the ball's radius is as far as acceleration looks
_SGD_BY_DEFAULT = 50
_BELOW_TWO = 2 * (1 - 2.0**-20)  # so that no rounding of eta breaks the contraction


class Passes(BaseModel):
    """Parameters shared by the algorithms that release a minimiser."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    steps: PositiveInt | None = Field(
        default=None,
        le=STEPS_MAX,
        description="Passes over the rows; by default as many as the noise makes useful.",
    )


def block_rows(columns: int) -> int:
    """Rows per block: a thread's work, and what must be in memory at once."""
    return max(1, _BLOCK_ENTRIES // columns // GROUP) * GROUP


def depth(rows: int, columns: int) -> int:
    """How many roundings a record meets on its way into the mean gradient."""
    block = block_rows(columns)
    return min(rows, GROUP) + min(rows, block) // GROUP + rows // block + 8


def solver_field() -> Any:
    return Field(
        default=None,
        description="How the minimiser is computed; by default as is predicted to err least, or "
        "nearly so in fewer passes.",
    )


def by_each_solver(job: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    """The job, and with the solvers that are chosen among: their kernels are others."""
    solvers = (DESCENT, "averaged-passes")
    return (job, *(job | {"parameters": {"solver": solver}} for solver in solvers))


class Averaging(Part):
    """Passes over blocks of so many rows, in one drawn order: see averaged.py. The point is the mean
    of the iterates after the steps of the last `passes`."""

    block: PositiveInt
    passes: PositiveInt


@dataclass(frozen=True)
class Objective:
    """F as the solvers need it: see above."""

    rows: int
    columns: int
    lipschitz: float  # L
    smoothness: float  # beta; unused by the subgradient method
    strong: float  # lambda
    radius: float  # R
    change: float
    error: float  # of a computed gradient of f at any w within R, in l2

    @property
    def far(self) -> float:
        """A bound on sqrt(2/lambda) times the root of the energy that acceleration starts with."""
        return sqrt(2 * self.lipschitz * self.radius / self.strong)

    def step_error(self, eta: float) -> float:
        """Of one computed step of size eta, projection included."""
        gradient = self.lipschitz + self.strong * self.radius
        return eta * self.error + 2 * U * ((self.columns + 16) * self.radius + 8 * eta * gradient)


@dataclass(frozen=True)
class Solution:
    """A solver's run as planned, and its sensitivity in three parts."""

    steps: int
    step_size: float
    exact: float  # of the minimiser, or of the run in exact arithmetic
    slack: float  # for the distance from the minimiser
    rounding: float
    left: float  # the share of the start that is still in the result
    reach: float = inf  # no computed point is further out, but for rounding
    risk: float = 0.0  # in expectation, that the solver leaves besides
    averaging: Averaging | None = None


def passes_by_default(rows: int) -> int:
    """As many as 20 over a million rows cost, but at most 2,000 and at least 20."""
    return min(STEPS_BY_DEFAULT, max(PASSES_BY_DEFAULT, PASSES_BY_DEFAULT * 10**6 // rows))


def descent(
    o: Objective, steps: int | None, noise: float, most: int = STEPS_BY_DEFAULT
) -> Solution:
    """By default until what is left of the start is a tenth of the expected noise, or `most`."""
    eta = _BELOW_TWO / (o.smoothness + 2 * o.strong)
    rate = -log1p(-eta * o.strong)
    wanted = ceil(min(STEPS_MAX, log(max(1.0, 10 * o.radius / noise)) / rate))
    T = steps or min(most, max(10, wanted))
    gone = -expm1(-T * rate)
    rounding = 2 * o.step_error(eta) / (eta * o.strong) * gone
    reach = o.lipschitz / o.strong * gone
    return Solution(T, eta, o.change / o.strong * gone, 0.0, rounding, 1 - gone, reach)


def sgd(o: Objective, steps: int | None, noise: float) -> Solution:
    """Step 1/(lambda n) where smoothness allows: larger ones forget faster than they see the rows."""
    n = o.rows
    eta = min(_BELOW_TWO / (o.smoothness + 2 * o.strong), 0.999 / (o.strong * n))
    rate = -log1p(-eta * o.strong)
    wanted = ceil(min(STEPS_MAX, log(max(1.0, 10 * o.radius / noise)) / (n * rate)))
    K = steps or min(_SGD_BY_DEFAULT, max(1, wanted))
    gone = -expm1(-K * n * rate)
    exact = 2 * eta * o.lipschitz * gone / -expm1(-n * rate)
    rounding = 2 * o.step_error(eta) / (eta * o.strong) * gone
    return Solution(K, eta, exact, 0.0, rounding, 1 - gone, o.lipschitz / o.strong * gone)


def accelerated(o: Objective, steps: int | None) -> Solution:
    """`o.error` is for points within `FURTHER` times its radius. By default until the slack is a
    hundredth of the exact part."""
    B = max(o.smoothness + o.strong, o.strong * (1 + 2.0**-10)) * (1 + 2.0**-30)
    rate = -log1p(-sqrt(o.strong / B)) / 2
    far, exact = o.far, o.change / o.strong
    T = steps or ceil(log(max(3.0, 200 * far / exact)) / rate)
    if T > STEPS_MAX:
        raise PlanRefused(
            f"the solver accelerated would need {T} steps here; raise the ridge, or use the solver "
            f"{DESCENT}, whose sensitivity does not depend on how far it gets."
        )
    gradient = o.lipschitz + FURTHER * o.strong * o.radius
    error = o.error + 2 * U * ((o.columns + 64) * B * o.radius + 8 * gradient)
    if error > o.lipschitz / 8:
        raise too_coarse()
    left = expm1(-T * rate) + 1
    return Solution(T, 1 / B, exact, 2 * far * left, 8 * error / o.strong, left)


def subgradient(o: Objective, steps: int | None, margin_error: float) -> Solution:
    """`o.error` is without the curvature's part, since what a margin's error does to a slope at a
    corner is counted as `margin_error`, in the loss. By default until the slack is a tenth of the
    exact part."""
    G = o.lipschitz + o.strong * o.radius
    exact = o.change / o.strong
    T = steps or ceil(min(2.0**60, 1600 * (G / o.strong / exact) ** 2))
    if T > STEPS_MAX:
        raise PlanRefused(
            f"the solver subgradient would need {T} steps on {o.rows} rows, and at most {STEPS_MAX} "
            f"are run; use the solver {DESCENT}, which smooths the loss."
        )
    alpha = 2 * G**2 / (o.strong * (T + 2))
    fixed = 2 * U * (o.columns + 16) * o.radius
    off = 4 * margin_error + o.radius * (
        2.5 * (o.error + 16 * U * G) + 1.25 * fixed * o.strong * (T + 2)
    )
    slack = 2 * sqrt(2 * alpha / o.strong)
    whole = 2 * sqrt(2 * (alpha + off) / o.strong)
    rounding = whole - slack + 16 * U * o.radius * T
    return Solution(T, 2 / o.strong, exact, slack, rounding, 0.0)


def margin_error(columns: int, radius: float, X2: float) -> float:
    return (columns + 10) * U * radius * X2


def mean_error(
    rows: int, columns: int, radius: float, X2: float, curvature: float, L0: float
) -> float:
    """Of the computed mean of slope times row; `rows` = 1 for a single record's."""
    slope = curvature * margin_error(columns, radius, X2) + 8 * U * L0
    return 2 * X2 * (slope + depth(rows, columns) * U * L0)


def ridge_for(L: float, beta: float, W: float, per_record: float, k: float) -> float:
    """For a convex f: the lambda whose bias lambda W^2/2 balances what the noise costs. Noise of norm
    z = 2 k L per_record/lambda costs at most L z, or (beta/2) z^2 as its mean is zero."""
    by_slope = 2 * L / W * sqrt(k * per_record)
    by_curvature = 2 * (beta * (k * L * per_record / W) ** 2) ** (1 / 3)
    # what bias and noise cost together, over W^2
    return rounded(by_curvature if 0.75 * by_curvature < by_slope else by_slope)


def smoothed_to(L: float, noise: float) -> float:
    """The beta of a Moreau envelope whose bias L^2/(2 beta) is a quarter of what noise of this norm
    costs, L noise."""
    return 2 * L / noise


def reachable(strong: float, radius: float, noise: float, steps: int) -> float:
    """The largest beta at which descent forgets its start within its steps."""
    return 2 * strong * steps / log(max(3.0, 10 * radius / noise))


def reachable_by_acceleration(o: Objective, steps: int) -> float:
    """The same for acceleration, until its slack is a hundredth of the exact part."""
    far = max(3.0, 200 * o.far * o.strong / o.change)
    return o.strong * (0.99 * steps / (2 * log(far))) ** 2 - o.strong


def too_coarse() -> PlanRefused:
    return PlanRefused(
        "rounding errors of float64 would exceed what the minimiser is worth here; raise the ridge, "
        "or ask fewer steps."
    )
