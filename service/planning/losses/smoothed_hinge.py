"""Slope -y clip((1 - y m)/width, 0, 1): the envelope of the hinge of smoothness 1/width."""

from typing import ClassVar, Literal

from pydantic import Field

from service.planning.loss import Classifier, Scalar


class SmoothedHinge(Classifier):
    """The hinge with its corner rounded to a parabola over `width`, for a binary label."""

    kind: Literal["smoothed_hinge"] = "smoothed_hinge"
    usual_margin: ClassVar[float] = 2.0
    width: float = Field(default=0.5, ge=1e-6, le=1e6)

    def scalar(self) -> Scalar:
        return Scalar("margin", 1 / self.width, straight=True)

    def difference(self, margin: float, lipschitz: float) -> float:
        return 1 + margin if margin > 1 else 2 * margin  # no more than the hinge's
