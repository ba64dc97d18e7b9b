"""Slope clip(m - y, -t, t): curvature 1."""

from typing import ClassVar, Literal

from pydantic import Field

from service.planning.loss import Regression, Scalar


class Huber(Regression):
    """Squared up to `threshold`, linear beyond: r^2/2 for |r| <= t, t (|r| - t/2) otherwise."""

    kind: Literal["huber"] = "huber"
    threshold: float = Field(default=0.1, ge=1e-6, le=1e6)
    even: ClassVar[bool] = True

    def scalar(self) -> Scalar:
        return Scalar("residual", 1.0, -self.threshold, self.threshold, straight=True)
