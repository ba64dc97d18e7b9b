"""Slope m - y: curvature 1, and no bound but that of margins and labels."""

from typing import ClassVar, Literal

from service.planning.loss import Regression, Scalar


class Squared(Regression):
    """(<w, x> - y)^2 / 2. A numeric label with bounds is scaled to [-1, 1], one without is divided by
    its scale."""

    kind: Literal["squared"] = "squared"
    even: ClassVar[bool] = True

    def scalar(self) -> Scalar:
        return Scalar("residual", 1.0, straight=True)
