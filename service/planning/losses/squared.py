"""Slope m - y: curvature 1, and no bound but that of margins and labels. By default slopes are clipped
at an eighth of a numeric label's interval, which bounds have to be somewhat wider than residuals are;
at 1, for labels -1 and 1."""

from math import inf
from typing import ClassVar, Literal

from service.planning.loss import Regression, Scalar


class Squared(Regression):
    """(<w, x> - y)^2 / 2. A numeric label with bounds is scaled to [-1, 1], one without is divided by
    its scale."""

    kind: Literal["squared"] = "squared"
    even: ClassVar[bool] = True

    def scalar(self) -> Scalar:
        return Scalar("residual", 1.0, straight=True)

    def usual_slope(self, label: str) -> float:
        return {"numeric": 0.25, "binary": 1.0}.get(label, inf)
