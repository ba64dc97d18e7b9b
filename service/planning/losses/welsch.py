"""With r = m - y, slope r exp(-r^2/s^2): |slope| <= s/sqrt(2 exp(1)), and the curvature is in
[-2 exp(-3/2), 1]."""

from math import e, exp, sqrt
from typing import Literal

from pydantic import Field

from service.planning.loss import Regression, Scalar


class Welsch(Regression):
    """(s^2/2)(1 - exp(-r^2/s^2)) of the residual r, for `scale` s: squared near the fit, flat far
    from it, for a label in [-1, 1]. Not convex."""

    kind: Literal["welsch"] = "welsch"
    scale: float = Field(default=0.5, ge=1e-6, le=1e6)

    def scalar(self) -> Scalar:
        most = self.scale / sqrt(2 * e)
        return Scalar("residual", 1.0, -most, most, weak=2 * exp(-1.5))
