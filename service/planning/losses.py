"""Losses, and the problem that a job poses: constants as functions of the public bounds.

A generalized linear loss is l(m, y) with margin m = <w, x>. Three shapes of slope dl/dm cover all:

    logistic  -y/(1 + exp(y m))
    margin    -y clip(curvature (1 - y m), 0, 1)          hinge and smoothed hinge
    residual  clip(curvature (m - y), low, high)          squared, absolute, Huber, pinball

and a sharp corner is a very large curvature. So the Moreau envelope of a loss,
l_b(m) = min_u l(u) + (b/2)(u - m)^2, has the same shape with curvature c b/(c + b): the proximal
point of a parabola with slopes clipped on either side is again one, and an envelope is as Lipschitz
as its loss. Softmax has one margin per class, and the same factorisation: its gradient is an outer
product of a short vector and the row. The geometric median's gradient is the unit vector from x to
w; its envelope is the vector form of Huber's loss.

Privacy rests on none of these constants where kernels clip what they sum; where a contraction is
argued, the plan's docstring says which of them it uses and why they hold.
"""

from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import Literal

from service.errors import PlanRefused
from service.planning.spec import Facts, FeasibleSet, JobSpec, Loss

SHARP = 1e30  # the curvature of a corner: finite, so that times a residual of zero it is zero
LOGISTIC_CURVATURE = 0.25


@dataclass(frozen=True)
class Scalar:
    """The slope of a generalized linear loss, as kernels take it."""

    shape: Literal["logistic", "margin", "residual"]
    curvature: float
    low: float = -inf
    high: float = inf

    def smoothed(self, smoothness: float) -> "Scalar":
        """Its Moreau envelope of this smoothness; a loss that is smoother already stays itself, and so
        does the logistic one, whose envelope has another shape."""
        if self.curvature <= smoothness or self.shape == "logistic":
            return self
        c, b = self.curvature, smoothness
        return replace(self, curvature=b if c == SHARP else c * b / (c + b))

    def lipschitz(self, margin: float) -> float:
        """A bound on |slope| for margins up to `margin` and labels in [-1, 1]."""
        if self.shape == "residual":
            return min(max(-self.low, self.high), self.curvature * (margin + 1.0))
        return 1.0


def scalar(loss: Loss) -> Scalar:  # noqa: PLR0911 - one per loss
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
        case _:
            raise TypeError(f"{loss.kind} is not a loss of one margin")


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
    def is_smooth(self) -> bool:
        return self.smoothness < SHARP


_CLASSIFIERS = {"logistic", "hinge", "smoothed_hinge"}
_REGRESSIONS = {"squared", "absolute", "huber", "pinball"}


def problem(spec: JobSpec, facts: Facts) -> Problem:
    """The constants of this job's loss on rows within facts.l2 and weights within the set."""
    loss = spec.loss
    _check_label(loss, facts)
    d = facts.columns * ((facts.classes or 1) if loss.kind == "softmax" else 1)
    W = set_radius(spec.set, d)
    margin = inf if facts.l2 is None else W * facts.l2
    X2 = facts.l2 or 1.0
    if loss.kind == "softmax":  # the Hessian of log-sum-exp is at most 1/2, its gradient sqrt(2)
        return Problem(facts.rows, d, W, X2, sqrt(2.0), 0.5, rowwise=True, spread=sqrt(2.0))
    if loss.kind == "geometric_median":
        return Problem(facts.rows, d, W, X2, 1.0, SHARP, rowwise=False, spread=sqrt(d))
    s = scalar(loss)
    return Problem(facts.rows, facts.columns, W, X2, s.lipschitz(margin), s.curvature, rowwise=True)


def _check_label(loss: Loss, facts: Facts) -> None:
    fitting = {
        "binary": _CLASSIFIERS | _REGRESSIONS,
        "numeric": _REGRESSIONS,
        "categorical": {"softmax"},
    }[facts.label] | {"geometric_median"}
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
        case "l2_ball" | "l1_ball":
            return feasible.radius
        case "simplex":
            return feasible.total
        case "box":
            return sqrt(d) * max(abs(feasible.lower), abs(feasible.upper))
        case "polytope":
            return max(sqrt(sum(v * v for v in vertex)) for vertex in feasible.vertices)


def require_set(name: str, spec: JobSpec, kinds: tuple[str, ...]) -> None:
    if spec.set.kind not in kinds:
        raise PlanRefused(
            f"{name} does not run over the set {spec.set.kind}; it runs over: {', '.join(kinds)}."
        )


def require_rowwise_margin(name: str, spec: JobSpec) -> Scalar:
    """For algorithms that hold for generalized linear losses only."""
    if spec.loss.kind in ("softmax", "geometric_median"):
        raise PlanRefused(
            f"{name} needs a loss of one margin <w, x>, which {spec.loss.kind} is not; "
            "gradient-descent takes it."
        )
    return scalar(spec.loss)


def require_row_bound(name: str, facts: Facts) -> float:
    """The enforced l2 bound on rows, for algorithms whose sensitivity rests on it."""
    if facts.l2 is None:
        raise PlanRefused(
            f"{name} rests on a bound on every row and this dataset has unbounded columns; "
            "use gradient-descent or clipped-sgd, or declare bounds for every column."
        )
    return facts.l2
