"""With r = m - y, slope r for |r| < t, and 0 beyond: corners that point up."""

from math import inf
from typing import Literal

from pydantic import Field

from service.planning.loss import SHARP, Regression, Scalar


class Trimmed(Regression):
    """min(r^2, t^2)/2 of the residual r, for `threshold` t: rows further off count alike, for a label
    in [-1, 1]. Not convex."""

    kind: Literal["trimmed"] = "trimmed"
    threshold: float = Field(default=0.5, ge=1e-6, le=1e6)

    def scalar(self) -> Scalar:
        return Scalar("residual", SHARP, -self.threshold, self.threshold, weak=inf)
