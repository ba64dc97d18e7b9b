"""Slope -quantile below the label and 1 - quantile above it: a corner."""

from typing import Literal

from pydantic import Field

from service.planning.loss import SHARP, Regression, Scalar


class Pinball(Regression):
    """quantile * (y - <w, x>) above the fit, (quantile - 1) * (y - <w, x>) below: that quantile."""

    kind: Literal["pinball"] = "pinball"
    quantile: float = Field(default=0.5, gt=0, lt=1)

    def scalar(self) -> Scalar:
        return Scalar("residual", SHARP, -self.quantile, 1 - self.quantile, straight=True)
