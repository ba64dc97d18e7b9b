"""With s = 1/(1 + exp(y m)), slope -2 y s^2 (1 - s): |slope| <= 8/27, and the curvature
2 s^2 (1 - s)(2 - 3s) is in [-.121, .155]."""

from typing import ClassVar, Literal

from service.planning.loss import Classifier, Scalar


class Savage(Classifier):
    """1/(1 + exp(y <w, x>))^2, which forgives far outliers, for a binary label. Not convex."""

    kind: Literal["savage"] = "savage"
    usual_margin: ClassVar[float] = 3.0

    def scalar(self) -> Scalar:
        return Scalar("margin", 0.155, -8 / 27, 8 / 27, weak=0.121)
