"""The problem that a job poses: constants of its loss, over its set, as functions of public bounds."""

from dataclasses import dataclass
from math import inf, sqrt

from service.errors import PlanRefused
from service.planning.loss import SHARP, BaseLoss, Scalar
from service.planning.losses import fitting
from service.planning.spec import Facts, JobSpec, ReluNetwork

RADIUS_MIN = (
    1e-100  # of a set: squares and lattice steps in proportion to it are still normal floats
)
NETWORK_SLOPE_MAX = 2.0  # a network's gradients are clipped as if slopes were no larger


def is_convex(spec: JobSpec) -> bool:
    """Whether the job's loss is convex in the weights, for every record."""
    return spec.model.kind == "linear" and spec.loss.convex


@dataclass(frozen=True)
class Problem:
    """What a planner needs to know of a job besides its privacy. Letters as in docs/notation.md."""

    n: int
    d: int  # weights: columns, times classes for softmax
    W: float  # radius of the set about 0 in l2; inf for all of R^d
    X2: float  # the enforced row norm; 1 where rows have none, and clipping alone bounds a gradient
    lipschitz: float  # L0: of the loss in its margin(s)
    smoothness: float  # of the loss in its margin(s); SHARP for a corner
    rowwise: bool  # a gradient is a derivative times the row (else a vector of its own)
    weak: float = 0.0  # omega of the loss in its margin: 0 if convex, inf if not weakly convex
    units_max: int = 2**62  # of a record's contribution to a sum, where its kernel needs room
    usual_slope: float = inf  # at which slopes are clipped unless another clip is asked for
    spread: float = 1.0  # how much larger the derivative (or that vector) may be in l1 than in l2

    @property
    def G(self) -> float:  # noqa: N802 - the papers' letter
        """A bound on one record's gradient norm."""
        return self.lipschitz * (self.X2 if self.rowwise else 1.0)

    @property
    def beta(self) -> float:
        """Smoothness of one record's loss in w."""
        return self.smoothness * (self.X2**2 if self.rowwise else 1.0)

    @property
    def weak_convexity(self) -> float:
        """omega of one record's loss in w."""
        return self.weak * (self.X2**2 if self.rowwise else 1.0)

    @property
    def is_smooth(self) -> bool:
        return self.smoothness < SHARP


def problem(spec: JobSpec, facts: Facts) -> Problem:
    """The constants of this job's loss on rows within facts.l2 and weights within the set."""
    loss = spec.loss
    check_label(loss, facts)
    spec.regulariser.require_columns(facts.columns)
    if spec.model.kind != "linear" and not loss.margin:
        raise PlanRefused(
            f"a network needs a loss of one margin, which {loss.kind} is not; use a linear model."
        )
    d = loss.weights(facts.columns, facts.classes)
    W = spec.set.l2_radius(d)
    if W < RADIUS_MIN:
        raise PlanRefused(
            f"no point of the set is further than {W:g} from 0, which is too near for float64; use a "
            "larger set, for example an l2_ball of radius 1."
        )
    if isinstance(spec.model, ReluNetwork):
        return _network(spec.model, loss.scalar(), facts, spec.set.l2_radius(1))
    margin = inf if facts.l2 is None else W * facts.l2
    c = loss.constants(margin, facts.label_bound, d)
    return Problem(
        facts.rows,
        d,
        W,
        facts.l2 or 1.0,
        c.lipschitz,
        c.smoothness,
        rowwise=c.rowwise,
        weak=c.weak,
        usual_slope=loss.usual_slope(facts.label),
        spread=c.spread,
    )


def _network(model: ReluNetwork, s: Scalar, facts: Facts, W: float) -> Problem:
    """A network's gradient has no bound of its own that is of use: it is clipped as if the model were
    linear in rows of norm 1 (`clip` says otherwise). It is an outer product with the row but for the
    outer weights, so calibrated as one."""
    H, X2 = model.width, facts.l2 or 1.0
    d = H * facts.columns + H + 1
    L0 = min(s.lipschitz(1.0, facts.label_bound), NETWORK_SLOPE_MAX) / X2
    return Problem(
        facts.rows,
        d,
        W,
        X2,
        L0,
        SHARP,
        rowwise=True,
        weak=inf,
        units_max=2**31 - 1,
        spread=sqrt(H),
    )


def check_label(loss: BaseLoss, facts: Facts) -> None:
    if facts.label not in loss.labels:
        raise PlanRefused(
            f"loss {loss.kind} does not fit a {facts.label} label; these do: "
            + ", ".join(fitting(facts.label))
            + "."
        )
