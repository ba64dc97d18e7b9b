"""What every loss tells of itself: constants as functions of the public bounds.

A generalized linear loss is l(m, y) with margin m = <w, x>. Its slope dl/dm is a function of y m, of
the residual m - y or of m^2 - y, and where it is a straight line between two bounds

    -y clip(curvature (1 - y m), 0, 1)          hinge and smoothed hinge
    clip(curvature (m - y), low, high)          squared, absolute, Huber, pinball

a sharp corner is a very large curvature. So the Moreau envelope of such a loss,
l_b(m) = min_u l(u) + (b/2)(u - m)^2, has the same shape with curvature c b/(c + b): the proximal
point of a parabola with slopes clipped on either side is again one, and an envelope is as Lipschitz
as its loss.

A function is omega-weakly convex if adding (omega/2) m^2 makes it convex; one whose corner points up
is so for no omega.

Privacy rests on none of these constants where kernels clip what they sum; where a contraction is
argued, the plan's docstring says which of them it uses and why they hold.
"""

from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import ClassVar, Literal

from service.planning.kinds import Kind

SHARP = 1e30  # the curvature of a corner: finite, so that times a residual of zero it is zero
ALL_LABELS = frozenset({"binary", "numeric", "unbounded", "categorical"})


@dataclass(frozen=True)
class Scalar:
    """The slope of a generalized linear loss, as planners and kernels take it."""

    argument: Literal["margin", "residual", "square"]  # a function of y m, of m - y or of m^2 - y
    curvature: float  # the largest, up or down
    low: float = -inf
    high: float = inf
    weak: float = 0.0  # omega in the margin: 0 if convex, inf if a corner points up
    straight: bool = False  # a line between two bounds, and so is its envelope's slope

    def smoothed(self, smoothness: float) -> "Scalar":
        """Its Moreau envelope of this smoothness; a loss that is smoother already stays itself, and so
        does a convex one whose envelope has another shape."""
        if self.weak > 0:
            raise TypeError("no closed form is known for the envelope of a loss that is not convex")
        if self.curvature <= smoothness or not self.straight:
            return self
        c, b = self.curvature, smoothness
        return replace(self, curvature=b if c == SHARP else c * b / (c + b))

    def lipschitz(self, margin: float, label: float = 1.0) -> float:
        """A bound on |slope| for margins up to `margin` and labels up to `label`."""
        if self.argument == "square":
            return 2 * margin
        if self.argument == "residual":
            return min(max(-self.low, self.high), self.curvature * (margin + label))
        return min(1.0, self.high)

    def idle(self) -> float:
        """The largest loss of margin 0, if it is straight: a parabola and then a line, from 1 away."""
        ends = (1.0,) if self.argument == "margin" else (max(0.0, -self.low), max(0.0, self.high))
        slopes = [min(self.curvature, end) for end in ends]
        return max(slope - slope**2 / (2 * self.curvature) for slope in slopes)

    @property
    def jump(self) -> float:
        """By how much the slope of a convex loss changes, from far left to far right."""
        return self.high - self.low if self.argument == "residual" else 1.0


@dataclass(frozen=True)
class Constants:
    """Of a loss, in its margin(s): see `Problem`."""

    lipschitz: float
    smoothness: float
    rowwise: bool = True
    weak: float = 0.0
    spread: float = 1.0


class BaseLoss(Kind):
    """A loss. What is special about one is said here or in its own file, never by its name."""

    labels: ClassVar[frozenset[str]]  # that it fits
    margin: ClassVar[bool] = False  # it is a loss of one margin <w, x>, and has a `scalar`
    located: ClassVar[bool] = False  # w is a point among the rows, not coefficients of one
    even: ClassVar[bool] = False  # in the residual
    family: ClassVar[str] = ""  # the loss by which it is known where models begin to be of use
    usual_margin: ClassVar[float] = 1.0  # how large the margins of a model that fits are, about
    flat_at_zero: ClassVar[bool] = False  # w = 0 is stationary whatever the data: start elsewhere

    @property
    def convex(self) -> bool:
        raise NotImplementedError

    @property
    def weakly_convex(self) -> bool:
        return self.convex

    @property
    def smooth(self) -> bool:
        raise NotImplementedError

    @property
    def one_sided(self) -> bool:
        """Given a label, its slopes have one sign."""
        return False

    def scalar(self) -> Scalar:
        raise TypeError(f"{self.kind} is not a loss of one margin")

    def weights(self, columns: int, classes: int | None) -> int:
        """How many a linear model has."""
        return columns

    def constants(self, margin: float, label: float, d: int) -> Constants:
        """For margins up to `margin`, labels up to `label` and d weights."""
        raise NotImplementedError

    def idle(self, classes: int | None) -> float:
        """The loss of margin 0 at most, for labels up to 1: no best constant does worse."""
        raise TypeError(f"no value at 0 is known for {self.kind}")

    def usual_slope(self, label: str) -> float:
        """Where a slope that has no bound of use is clipped, for this kind of label."""
        return inf

    def difference(self, margin: float, lipschitz: float) -> float:
        """A bound on the difference of two records' losses at one w, with margins up to `margin`,
        slopes up to `lipschitz` and labels up to 1. That of a Moreau envelope is no larger."""
        raise TypeError(f"{self.kind} is not a loss of one margin")

    def lowest(self, shape: Scalar, margin: float, lipschitz: float) -> float:
        """Of the same losses as `shape` smooths them: none is below this, nor above this plus
        `difference`."""
        raise TypeError(f"{self.kind} is not a loss of one margin")


class NoLoss(BaseLoss):
    """Nothing is fitted."""

    kind: Literal["no_loss"] = "no_loss"
    labels: ClassVar[frozenset[str]] = ALL_LABELS

    @property
    def convex(self) -> bool:
        return True

    @property
    def smooth(self) -> bool:
        return True


class MarginLoss(BaseLoss):
    """l(<w, x>, y)."""

    margin: ClassVar[bool] = True

    @property
    def convex(self) -> bool:
        return self.scalar().weak == 0

    @property
    def weakly_convex(self) -> bool:
        return isfinite(self.scalar().weak)

    @property
    def smooth(self) -> bool:
        return self.scalar().curvature < SHARP

    def idle(self, classes: int | None) -> float:
        return self.scalar().idle() if self.scalar().straight else super().idle(classes)

    def constants(self, margin: float, label: float, d: int) -> Constants:
        s = self.scalar()
        return Constants(s.lipschitz(margin, label), s.curvature, weak=s.weak)


class Classifier(MarginLoss):
    """A loss of y m that falls with it, for labels -1 and 1."""

    labels: ClassVar[frozenset[str]] = frozenset({"binary"})
    family: ClassVar[str] = "logistic"

    @property
    def one_sided(self) -> bool:
        return True

    def difference(self, margin: float, lipschitz: float) -> float:
        return 2 * margin * lipschitz

    def lowest(self, shape: Scalar, margin: float, lipschitz: float) -> float:
        return max(0.0, shape.idle() - lipschitz * margin)


class Regression(MarginLoss):
    """A loss of the margin and a number."""

    labels: ClassVar[frozenset[str]] = frozenset({"binary", "numeric", "unbounded"})
    family: ClassVar[str] = "squared"

    def difference(self, margin: float, lipschitz: float) -> float:
        return lipschitz * (1 + margin)

    def lowest(self, shape: Scalar, margin: float, lipschitz: float) -> float:
        return 0.0
