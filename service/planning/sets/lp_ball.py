"""Between the l1 and the l2 ball."""

from typing import ClassVar, Literal

from pydantic import Field

from service.planning.feasible import BaseSet
from service.planning.vectors import Floats, norm, on_lp_ball, steepest


class LpBall(BaseSet):
    """All w with ||w||_p at most `radius`, 1 < p <= 2."""

    kind: Literal["lp_ball"] = "lp_ball"
    p: float = Field(default=1.5, gt=1, le=2)
    radius: float = Field(default=10.0, gt=0, le=1e9)
    symmetric: ClassVar[bool] = True
    has_lowest: ClassVar[bool] = True

    @property
    def norm_exponent(self) -> float:
        return self.p

    def l2_radius(self, d: int) -> float:
        return self.radius

    def project(self, w: Floats) -> Floats:
        return w if norm(w, self.p) <= self.radius else on_lp_ball(w, self.p, self.radius)

    def least(self, gradient: Floats) -> float:
        return -self.radius * norm(gradient, self.p / (self.p - 1))

    def lowest(self, gradient: Floats) -> Floats:
        return self.radius * steepest(gradient, self.p)
