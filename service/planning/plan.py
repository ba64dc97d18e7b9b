"""The Plan: what will be released, with which sensitivity and noise, in how many steps, over which
rows, at what cost. Plain data. The ledger charges it, the worker runs it and nothing else, the audit
record contains it; its digest ties the three together. Every field may be published."""

import hashlib
import json
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveFloat, PositiveInt

from service.planning.lattice import Lattice, SumLattice
from service.planning.releases import Exponential, Release
from service.planning.spec import Facts, JobSpec

PLANNER_VERSION = 5  # raise it whenever the same spec and facts may plan differently


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class GradientDescentSchedule(_Part):
    """w <- P(w - eta (g + ridge w)), g the mean over a secret batch of so many rows (of all, where it
    is all of them or none is named); the mean of the last `averaged` iterates."""

    kind: Literal["gradient_descent"] = "gradient_descent"
    steps: PositiveInt
    step_size: float
    averaged: PositiveInt
    batch: PositiveInt | None = None

    def step_from_zero(self, rows: int) -> float:
        """How far one unit of a noisy sum moves a weight that is 0."""
        return self.step_size / (self.batch or rows)


class ClippedSgdSchedule(_Part):
    """Batch t is the rows [t * batch, (t + 1) * batch); steps and weights in `sgd_weights`."""

    kind: Literal["clipped_sgd"] = "clipped_sgd"
    steps: PositiveInt
    batch: PositiveInt
    strong_convexity: float
    smoothness: float


class PrivateClip(_Part):
    """The clip is chosen from the data, before any sum: 2^(j/4) times the lattice's, j in `CHOICES`,
    such that about `rank` records have a gradient at 0 that is no longer: see heavy_tails.py."""

    CHOICES: ClassVar[range] = range(-160, 161)
    SENSITIVITY: ClassVar[int] = 2  # of the difference of two scores, under replacement

    rank: NonNegativeInt
    scale: PositiveInt

    def release(self) -> Exponential:
        return Exponential(sensitivity=self.SENSITIVITY, scale=self.scale)


class AcceleratedClippedSgdSchedule(_Part):
    """AC-SA; batch t is the rows [t * batch, (t + 1) * batch). `damping` is s in accelerated_sgd's
    plan, per unit of a chosen clip."""

    kind: Literal["accelerated_clipped_sgd"] = "accelerated_clipped_sgd"
    steps: PositiveInt
    batch: PositiveInt
    smoothness: PositiveFloat
    damping: float = Field(ge=0)


class ProximalSgdSchedule(_Part):
    """w <- prox(w - eta (g/batch + ridge w)); batch t is the rows [t * batch, (t + 1) * batch)."""

    kind: Literal["proximal_sgd"] = "proximal_sgd"
    steps: PositiveInt
    batch: PositiveInt
    step_size: PositiveFloat


class SubgradientPhase(_Part):
    """`steps` noisy subgradients of batches of the rows [start, stop), with (pull/2)||w - c||^2 added
    for c the last phase's output, within `reach` of c; the mean of the last half of the iterates.
    Steps are inversely proportional to a chosen clip, pulls proportional."""

    start: NonNegativeInt
    stop: PositiveInt
    batch: PositiveInt
    steps: PositiveInt
    step_size: PositiveFloat
    pull: PositiveFloat
    reach: PositiveFloat | None
    lattice: SumLattice


class LocalizedSubgradientSchedule(_Part):
    """Phases on disjoint ranges of rows, one after the other; no step is longer than `step_max`."""

    kind: Literal["localized_subgradient"] = "localized_subgradient"
    phases: tuple[SubgradientPhase, ...] = Field(min_length=1)
    step_max: PositiveFloat | None

    @property
    def steps(self) -> int:
        return sum(phase.steps for phase in self.phases)


class ProximallyGuidedMirrorDescentSchedule(_Part):
    """Round r, on the rows [r n // rounds, (r + 1) n // rounds): steps of mirror descent in the norm
    l_`norm` on the mean loss plus (pull/2)||w - c||^2, c where the last round ended (which no iterate
    is further from than `reach`, in l2), of sizes 4/(pull (t + offset))."""

    kind: Literal["proximally_guided_mirror_descent"] = "proximally_guided_mirror_descent"
    rounds: PositiveInt
    steps_each: PositiveInt
    pull: PositiveFloat
    offset: float = Field(ge=1)
    norm: float = Field(gt=1, le=2)
    reach: PositiveFloat | None
    start: Literal["zero", "random"]
    output: Literal["random", "last"]

    @property
    def steps(self) -> int:
        return self.rounds * self.steps_each


class CertificateSchedule(_Part):
    """One noisy mean of all rows' gradients at a released model, or averaged over `points` drawn from
    the ball of `radius` about it. `step` is that of the projected gradient."""

    kind: Literal["certificate"] = "certificate"
    points: PositiveInt
    radius: float = Field(ge=0)
    step: PositiveFloat

    @property
    def steps(self) -> int:
        return 1


class BoundedAdversary(_Part):
    """Moves every row by up to `reach` in `norm` before its loss is taken. The square of `corner` is
    added under the roots of the dual norm of w, which makes it smooth."""

    kind: Literal["bounded"] = "bounded"
    norm: Literal["l2", "linf"]
    reach: PositiveFloat
    corner: PositiveFloat


class PenalisedAdversary(_Part):
    """Moves every row by any v, at a cost of (penalty/2)||v||^2."""

    kind: Literal["penalised"] = "penalised"
    penalty: PositiveFloat


class MinimiserSchedule(_Part):
    """Minimise f + (strong_convexity/2)||w||^2 within `radius` of 0 by `solver`, then release the
    point once, on multiples of `lattice_step`. The sensitivity is the sum of its parts, or the ball's
    diameter; `slope_bound` bounds a record's derivative in its margin. f is the mean loss, or its
    tilt, or the mean loss under an adversary."""

    kind: Literal["minimiser"] = "minimiser"
    solver: Literal["gradient-descent", "accelerated", "sgd", "subgradient"]
    steps: PositiveInt
    step_size: PositiveFloat
    strong_convexity: PositiveFloat
    radius: PositiveFloat
    slope_bound: PositiveFloat
    sensitivity: PositiveFloat
    exact_part: PositiveFloat
    accuracy_part: float
    rounding_part: PositiveFloat
    lattice_step: PositiveFloat
    tilt: PositiveFloat | None = None
    adversary: Annotated[
        BoundedAdversary | PenalisedAdversary | None, Field(discriminator="kind")
    ] = None


class Stage(_Part):
    """A run of AC-SA from where the last one ended; `damping` is s in accelerated_sgd's plan."""

    steps: PositiveInt
    damping: float = Field(ge=0)


class AcceleratedSgdSchedule(_Part):
    """AC-SA over secret batches of all rows (over all rows where the batch is all of them)."""

    kind: Literal["accelerated_sgd"] = "accelerated_sgd"
    batch: PositiveInt
    smoothness: PositiveFloat
    stages: tuple[Stage, ...] = Field(min_length=1)

    @property
    def steps(self) -> int:
        return sum(stage.steps for stage in self.stages)


class Phase(_Part):
    """AC-SA on the rows [start, stop), with (pull/2)||w - the last phase's output||^2 added."""

    start: NonNegativeInt
    stop: PositiveInt
    batch: PositiveInt
    pull: PositiveFloat
    stages: tuple[Stage, ...] = Field(min_length=1)


class LocalizedAcceleratedSgdSchedule(_Part):
    """Phases on disjoint ranges of rows, one after the other."""

    kind: Literal["localized_accelerated_sgd"] = "localized_accelerated_sgd"
    smoothness: PositiveFloat
    phases: tuple[Phase, ...] = Field(min_length=1)

    @property
    def steps(self) -> int:
        return sum(stage.steps for phase in self.phases for stage in phase.stages)


class SgdPhase(_Part):
    """`rows` steps of this size over the rows after the last phase's. One record moves the mean of the
    iterates by at most `sensitivity`; it is released on multiples of `lattice_step`."""

    rows: PositiveInt
    step_size: PositiveFloat
    sensitivity: PositiveFloat
    lattice_step: PositiveFloat


class PhasedSgdSchedule(_Part):
    """Phases on disjoint rows, each from what the last one released; all within `radius` of 0."""

    kind: Literal["phased_sgd"] = "phased_sgd"
    phases: tuple[SgdPhase, ...] = Field(min_length=1)
    radius: PositiveFloat
    slope_bound: PositiveFloat
    block: PositiveInt  # rows per step of progress

    @property
    def steps(self) -> int:
        return sum(-(-phase.rows // self.block) for phase in self.phases)


class FrankWolfeSchedule(_Part):
    """w <- (1 - m) w + m v with m = min(1, 3/(t + 2)), v a vertex chosen by its score: the integer
    nearest to <v, sum of gradients> in units of `unit` times the lattice's step."""

    kind: Literal["frank_wolfe"] = "frank_wolfe"
    steps: PositiveInt
    unit: PositiveFloat


Oracle = Literal["first-order", "zero-order", "first-order-multi-pass", "zero-order-multi-pass"]


class OnlineToNonconvexSchedule(_Part):
    """O2NC: steps no longer than `reach`, the mean of `block` of them. Each period is one whole
    gradient and then differences: over fresh rows, `first_batch` and then `batch` per step, released
    as prefixes by `mechanism`; or over all rows, each on its own. Sums of differences are made on
    `later`, whole gradients on the Plan's lattice."""

    kind: Literal["online_to_nonconvex"] = "online_to_nonconvex"
    oracle: Oracle
    steps: PositiveInt
    period: PositiveInt
    block: PositiveInt
    first_batch: PositiveInt
    batch: PositiveInt
    reach: PositiveFloat
    step_size: PositiveFloat
    radius: PositiveFloat
    directions: PositiveInt
    mechanism: Literal["root", "tree"] | None
    output: Literal["random", "last"]
    later: SumLattice

    def rows_of(self, first: bool) -> int:
        """A step reads so many: the first of a period, or a later one."""
        return self.first_batch if first else self.batch


class Round(_Part):
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


class ChoiceRound(Round):
    """A round whose batch t enters the running sum of its release as gains[t]/2^32 times the exact sum
    over the batch; a unit of the running sum is worth `unit` of a mean gradient."""

    unit: PositiveFloat
    gains: tuple[PositiveInt, ...]


class PolyhedralStochasticFrankWolfeSchedule(_Part):
    """Rounds on disjoint rows, one after the other, each with its part of the release; the output is
    drawn from the last one's iterates. Slopes are within `lipschitz` and change by at most
    `smoothness` times the margin, a margin by at most `width` times the step size. A unit of a vertex
    is worth `unit`."""

    kind: Literal["polyhedral_stochastic_frank_wolfe"] = "polyhedral_stochastic_frank_wolfe"
    rounds: tuple[ChoiceRound, ...] = Field(min_length=1)
    lipschitz: PositiveFloat
    smoothness: PositiveFloat
    width: PositiveFloat
    unit: PositiveFloat

    @property
    def steps(self) -> int:
        return sum(one.steps for one in self.rounds)


class StochasticFrankWolfeSchedule(_Part):
    """Rounds on disjoint rows, one after the other; the output is drawn from the last one's iterates.
    Slopes are within `lipschitz` and change by at most `smoothness` times the margin; rows are within
    `row_norm` in the norm dual to the set's."""

    kind: Literal["stochastic_frank_wolfe"] = "stochastic_frank_wolfe"
    rounds: tuple[Round, ...] = Field(min_length=1)
    lipschitz: PositiveFloat
    smoothness: PositiveFloat
    row_norm: PositiveFloat

    @property
    def steps(self) -> int:
        return sum(one.steps for one in self.rounds)


class Moreau(_Part):
    """Kernels evaluate the loss's Moreau envelope, this smooth in its margin."""

    kind: Literal["moreau"] = "moreau"
    smoothness: PositiveFloat


class Ball(_Part):
    """Kernels evaluate the loss averaged over a ball of this radius about w."""

    kind: Literal["ball"] = "ball"
    radius: PositiveFloat


Smoothing = Annotated[Moreau | Ball, Field(discriminator="kind")]
Schedule = Annotated[
    GradientDescentSchedule
    | ClippedSgdSchedule
    | AcceleratedClippedSgdSchedule
    | ProximalSgdSchedule
    | LocalizedSubgradientSchedule
    | ProximallyGuidedMirrorDescentSchedule
    | CertificateSchedule
    | MinimiserSchedule
    | AcceleratedSgdSchedule
    | LocalizedAcceleratedSgdSchedule
    | PhasedSgdSchedule
    | FrankWolfeSchedule
    | OnlineToNonconvexSchedule
    | PolyhedralStochasticFrankWolfeSchedule
    | StochasticFrankWolfeSchedule,
    Field(discriminator="kind"),
]


class Guarantee(_Part):
    relation: Literal["replace-one"] = "replace-one"
    epsilon: float
    delta: float
    epsilon_alone: float = Field(description="Tightest epsilon of this job alone, at delta.")


class Price(_Part):
    units: NonNegativeInt = Field(description="Pico-units of the account's kind, rounded up.")
    kind: Literal["renyi", "pure"]
    order: int | None


class Prediction(_Part):
    """From the theorem, order of magnitude only; and an upper bound on all injected noise."""

    theorem: str
    excess_risk: float
    noise_squared: float = Field(description="Expected squared l2 norm of the noise of all steps.")
    paper_noise: float = Field(
        description="The standard deviation that the paper prints for one release; 0 if it has none."
    )
    our_noise: float = Field(description="The calibrated one of the same release.")


class Plan(_Part):
    planner: int = PLANNER_VERSION
    algorithm: str
    spec: JobSpec
    facts: Facts
    dimension: PositiveInt = Field(
        description="Weights: one per feature, times classes for softmax."
    )
    smoothing: Smoothing | None
    schedule: Schedule
    lattice: Lattice
    private_clip: PrivateClip | None = None
    release: Release
    price: Price
    guarantee: Guarantee
    prediction: Prediction
    gradients: PositiveInt = Field(description="Per-record gradients that the run evaluates.")

    def canonical(self) -> str:
        return canonical_json(self.model_dump(mode="json"))

    def digest(self) -> str:
        return sha256(self.canonical())


def canonical_json(value: Any) -> str:
    """One text for one value: sorted keys, no spaces, shortest floats, nothing non-finite."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def rounded(value: float) -> float:
    """Six significant digits: a prediction must not differ between two machines' logarithms."""
    return float(f"{value:.6g}")
