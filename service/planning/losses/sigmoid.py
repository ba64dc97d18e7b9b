"""With s = 1/(1 + exp(y m)), ds/dm = -y s (1 - s): |slope| <= 1/4, and the curvature
(1 - 2s) s (1 - s) is within +-1/(6 sqrt 3)."""

from math import sqrt
from typing import ClassVar, Literal

from service.planning.loss import Classifier, Scalar


class Sigmoid(Classifier):
    """1/(1 + exp(y <w, x>)), a smooth count of errors, for a binary label. Not convex."""

    kind: Literal["sigmoid"] = "sigmoid"
    usual_margin: ClassVar[float] = 3.0

    def scalar(self) -> Scalar:
        most = 1 / (6 * sqrt(3))
        return Scalar("margin", most, -0.25, 0.25, weak=most)
