"""The ball in which weights are measured as rows are."""

from typing import ClassVar, Literal

from pydantic import Field

from service.planning.feasible import BaseSet
from service.planning.vectors import Floats, length, steepest


class L2Ball(BaseSet):
    """All w with ||w||_2 at most `radius`."""

    kind: Literal["l2_ball"] = "l2_ball"
    radius: float = Field(default=10.0, gt=0, le=1e9)
    radial: ClassVar[bool] = True
    symmetric: ClassVar[bool] = True
    has_lowest: ClassVar[bool] = True

    @property
    def norm_exponent(self) -> float:
        return 2.0

    def l2_radius(self, d: int) -> float:
        return self.radius

    def project(self, w: Floats) -> Floats:
        norm = length(w)
        return w if norm <= self.radius else w * (self.radius / norm)

    def least(self, gradient: Floats) -> float:
        return -self.radius * length(gradient)

    def lowest(self, gradient: Floats) -> Floats:
        return self.radius * steepest(gradient, 2.0)
