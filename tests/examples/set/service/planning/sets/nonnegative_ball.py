"""For weights that may only add: the part of a ball where none is negative."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from service.planning.feasible import BaseSet
from service.planning.vectors import Floats, length


class NonnegativeBall(BaseSet):
    """All w with no entry below 0 and ||w||_2 at most `radius`."""

    kind: Literal["nonnegative_ball"] = "nonnegative_ball"
    radius: float = Field(default=10.0, gt=0, le=1e9)
    nonnegative: ClassVar[bool] = True

    def l2_radius(self, d: int) -> float:
        return self.radius

    def project(self, w: Floats) -> Floats:
        """First onto the cone, then onto the ball about its apex."""
        inside = np.maximum(w, 0.0)
        norm = length(inside)
        return inside if norm <= self.radius else inside * (self.radius / norm)

    def least(self, gradient: Floats) -> float:
        return -self.radius * length(np.minimum(gradient, 0.0))
