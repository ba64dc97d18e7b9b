"""Slope -y for y m < 1, and 0 beyond: a corner."""

from typing import ClassVar, Literal

from service.planning.loss import SHARP, Classifier, Scalar


class Hinge(Classifier):
    """max(0, 1 - y <w, x>), for a binary label."""

    kind: Literal["hinge"] = "hinge"
    usual_margin: ClassVar[float] = 2.0

    def scalar(self) -> Scalar:
        return Scalar("margin", SHARP, straight=True)

    def difference(self, margin: float, lipschitz: float) -> float:
        return 1 + margin if margin > 1 else 2 * margin
