"""Slope -y/(1 + exp(y m)): |slope| <= 1, curvature s (1 - s) <= 1/4 for s = 1/(1 + exp(y m))."""

from math import exp, log, log1p
from typing import ClassVar, Literal

from service.planning.loss import Classifier, Scalar


class Logistic(Classifier):
    """log(1 + exp(-y <w, x>)), for a binary label."""

    kind: Literal["logistic"] = "logistic"
    usual_margin: ClassVar[float] = 3.0

    def scalar(self) -> Scalar:
        return Scalar("margin", 0.25)

    def idle(self, classes: int | None) -> float:
        return log(2.0)

    def difference(self, margin: float, lipschitz: float) -> float:
        return margin  # log(1 + e^m) - log(1 + e^-m) = m

    def lowest(self, shape: Scalar, margin: float, lipschitz: float) -> float:
        return log1p(exp(-margin)) * (1 - 2.0**-40)
