"""Losses, and the problem that a job poses: constants as functions of the public bounds.

A generalized linear loss is l(m, y) with margin m = <w, x>. Three shapes of slope dl/dm cover all
convex ones:

    logistic  -y/(1 + exp(y m))
    margin    -y clip(curvature (1 - y m), 0, 1)          hinge and smoothed hinge
    residual  clip(curvature (m - y), low, high)          squared, absolute, Huber, pinball

and a sharp corner is a very large curvature. So the Moreau envelope of a loss,
l_b(m) = min_u l(u) + (b/2)(u - m)^2, has the same shape with curvature c b/(c + b): the proximal
point of a parabola with slopes clipped on either side is again one, and an envelope is as Lipschitz
as its loss. Softmax has one margin per class, and the same factorisation: its gradient is an outer
product of a short vector and the row. The geometric median's gradient is the unit vector from x to
w; its envelope is the vector form of Huber's loss.

Losses that are not convex have a shape each. With s = 1/(1 + exp(y m)), ds/dm = -y s (1 - s), and
r = m - y:

    sigmoid  -y s (1 - s)       |slope| <= 1/4,    curvature (1-2s) s (1-s) within +-1/(6 sqrt 3)
    savage   -2 y s^2 (1 - s)   |slope| <= 8/27,   curvature 2 s^2 (1-s)(2-3s) in [-.121, .155]
    ramp     -y for |m| < 1     |slope| <= 1,      a corner of either kind
    welsch   r exp(-r^2/c^2)    |slope| <= c/sqrt(2 exp(1)), curvature in [-2 exp(-3/2), 1]
    trimmed  r for |r| < t      |slope| <= t,      corners that point up
    phase    2 m sign(m^2 - y)  |slope| <= 2 |m|,  m^2 - y or y - m^2: curvature >= -2

A function is omega-weakly convex if adding (omega/2) m^2 makes it convex; one whose corner points up
is so for no omega.

Privacy rests on none of these constants where kernels clip what they sum; where a contraction is
argued, the plan's docstring says which of them it uses and why they hold.
"""

from dataclasses import dataclass, replace
from math import e, exp, inf, sqrt
from typing import Literal, NamedTuple

from service.errors import PlanRefused
from service.planning.spec import Facts, FeasibleSet, JobSpec, Loss, ReluNetwork

SHARP = 1e30  # the curvature of a corner: finite, so that times a residual of zero it is zero
LOGISTIC_CURVATURE = 0.25
RADIUS_MIN = (
    1e-100  # of a set: squares and lattice steps in proportion to it are still normal floats
)
NETWORK_SLOPE_MAX = 2.0  # a network's gradients are clipped as if slopes were no larger


@dataclass(frozen=True)
class Scalar:
    """The slope of a generalized linear loss, as kernels take it."""

    shape: Literal[
        "logistic", "margin", "residual", "sigmoid", "savage", "ramp", "welsch", "trimmed", "phase"
    ]
    curvature: float  # the largest, up or down
    low: float = -inf
    high: float = inf
    weak: float = 0.0  # omega in the margin: 0 if convex, inf if a corner points up

    def smoothed(self, smoothness: float) -> "Scalar":
        """Its Moreau envelope of this smoothness; a loss that is smoother already stays itself, and so
        does the logistic one, whose envelope has another shape."""
        if self.weak > 0:
            raise TypeError(f"no closed form is known for the envelope of {self.shape}")
        if self.curvature <= smoothness or self.shape == "logistic":
            return self
        c, b = self.curvature, smoothness
        return replace(self, curvature=b if c == SHARP else c * b / (c + b))

    def lipschitz(self, margin: float, label: float = 1.0) -> float:
        """A bound on |slope| for margins up to `margin` and labels up to `label`."""
        if self.shape == "phase":
            return 2 * margin
        if self.shape in ("residual", "welsch", "trimmed"):
            return min(max(-self.low, self.high), self.curvature * (margin + label))
        return min(1.0, self.high)


def scalar(loss: Loss) -> Scalar:  # noqa: PLR0911, PLR0912 - one per loss
    match loss.kind:
        case "logistic":
            return Scalar("logistic", LOGISTIC_CURVATURE)
        case "hinge":
            return Scalar("margin", SHARP)
        case "smoothed_hinge":
            return Scalar("margin", 1 / loss.width)
        case "squared":
            return Scalar("residual", 1.0)
        case "absolute":
            return Scalar("residual", SHARP, -1.0, 1.0)
        case "huber":
            return Scalar("residual", 1.0, -loss.threshold, loss.threshold)
        case "pinball":
            return Scalar("residual", SHARP, -loss.quantile, 1 - loss.quantile)
        case "sigmoid":
            return Scalar("sigmoid", 1 / (6 * sqrt(3)), -0.25, 0.25, weak=1 / (6 * sqrt(3)))
        case "savage":
            return Scalar("savage", 0.155, -8 / 27, 8 / 27, weak=0.121)
        case "ramp":
            return Scalar("ramp", SHARP, -1.0, 1.0, weak=inf)
        case "welsch":
            most = loss.scale / sqrt(2 * e)
            return Scalar("welsch", 1.0, -most, most, weak=2 * exp(-1.5))
        case "trimmed":
            return Scalar("trimmed", SHARP, -loss.threshold, loss.threshold, weak=inf)
        case "phase_retrieval":
            return Scalar("phase", SHARP, weak=2.0)
        case _:
            raise TypeError(f"{loss.kind} is not a loss of one margin")


class Traits(NamedTuple):
    """What algorithms ask of a loss, whatever its parameters."""

    margins: Literal["one", "several", "none"]  # several: one per class; none: of w - x
    smooth: bool
    weak: float  # omega in the margin: 0 if convex, inf if a corner points up


def traits(loss: Loss) -> Traits:
    if loss.kind == "softmax":
        return Traits("several", smooth=True, weak=0.0)
    if loss.kind == "geometric_median":
        return Traits("none", smooth=False, weak=0.0)
    slope = scalar(loss)
    return Traits("one", smooth=slope.curvature < SHARP, weak=slope.weak)


def is_convex(spec: JobSpec) -> bool:
    """Whether the job's loss is convex in the weights, for every record."""
    if spec.model.kind != "linear":
        return False
    return traits(spec.loss).weak == 0


@dataclass(frozen=True)
class Problem:
    """What a planner needs to know of a job besides its privacy. Letters as in docs/algorithms.md."""

    n: int
    d: int  # weights: columns, times classes for softmax
    W: float  # radius of the set about 0 in l2; inf for all of R^d
    X2: float  # the enforced row norm; 1 where rows have none, and clipping alone bounds a gradient
    lipschitz: float  # L0: of the loss in its margin(s)
    smoothness: float  # of the loss in its margin(s); SHARP for a corner
    rowwise: bool  # a gradient is a derivative times the row (else a vector of its own)
    weak: float = 0.0  # omega of the loss in its margin: 0 if convex, inf if not weakly convex
    units_max: int = 2**62  # of a record's contribution to a sum, where its kernel needs room
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


_CLASSIFIERS = {"logistic", "hinge", "smoothed_hinge", "sigmoid", "savage", "ramp"}
_REGRESSIONS = {"squared", "absolute", "huber", "pinball", "welsch", "trimmed", "phase_retrieval"}


def problem(spec: JobSpec, facts: Facts) -> Problem:
    """The constants of this job's loss on rows within facts.l2 and weights within the set."""
    loss = spec.loss
    check_label(loss, facts)
    if spec.model.kind != "linear" and loss.kind in ("softmax", "geometric_median"):
        raise PlanRefused(
            f"a network needs a loss of one margin, which {loss.kind} is not; use a linear model."
        )
    d = facts.columns * ((facts.classes or 1) if loss.kind == "softmax" else 1)
    W = set_radius(spec.set, d)
    if W < RADIUS_MIN:
        raise PlanRefused(
            f"no point of the set is further than {W:g} from 0, which is too near for float64; use a "
            "larger set, for example an l2_ball of radius 1."
        )
    margin = inf if facts.l2 is None else W * facts.l2
    X2 = facts.l2 or 1.0
    if loss.kind == "softmax":  # the Hessian of log-sum-exp is at most 1/2, its gradient sqrt(2)
        return Problem(facts.rows, d, W, X2, sqrt(2.0), 0.5, rowwise=True, spread=sqrt(2.0))
    if loss.kind == "geometric_median":
        return Problem(facts.rows, d, W, X2, 1.0, SHARP, rowwise=False, spread=sqrt(d))
    s = scalar(loss)
    if isinstance(spec.model, ReluNetwork):
        return _network(spec.model, s, facts, set_radius(spec.set, 1))
    L0 = s.lipschitz(margin, facts.label_bound)
    return Problem(facts.rows, d, W, X2, L0, s.curvature, rowwise=True, weak=s.weak)


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


def losses_for(label: str) -> set[str]:
    """The kinds of loss that fit a kind of label."""
    return {
        "binary": _CLASSIFIERS | _REGRESSIONS,
        "numeric": _REGRESSIONS,
        "unbounded": _REGRESSIONS,
        "categorical": {"softmax"},
    }[label] | {"geometric_median"}


def check_label(loss: Loss, facts: Facts) -> None:
    fitting = losses_for(facts.label)
    if loss.kind not in fitting:
        raise PlanRefused(
            f"loss {loss.kind} does not fit a {facts.label} label; these do: "
            + ", ".join(sorted(fitting))
            + "."
        )


def set_radius(feasible: FeasibleSet, d: int) -> float:
    """The largest l2 norm in the set."""
    match feasible.kind:
        case "all":
            return inf
        case "l2_ball" | "l1_ball" | "lp_ball":
            return feasible.radius
        case "simplex":
            return feasible.total
        case "box":
            return sqrt(d) * max(abs(feasible.lower), abs(feasible.upper))
        case "polytope":
            return max(sqrt(sum(v * v for v in vertex)) for vertex in feasible.vertices)
