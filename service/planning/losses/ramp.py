"""Slope -y for |m| < 1, and 0 beyond: a corner of either kind."""

from math import inf
from typing import ClassVar, Literal

from service.planning.loss import SHARP, Classifier, Scalar


class Ramp(Classifier):
    """The hinge cut off at 2: min(2, max(0, 1 - y <w, x>)), for a binary label. Not convex."""

    kind: Literal["ramp"] = "ramp"
    usual_margin: ClassVar[float] = 2.0

    def scalar(self) -> Scalar:
        return Scalar("margin", SHARP, -1.0, 1.0, weak=inf)
