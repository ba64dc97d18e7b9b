"""No constraint at all."""

from math import inf
from typing import ClassVar, Literal

from service.planning.feasible import BaseSet
from service.planning.vectors import Floats


class AllSpace(BaseSet):
    """Every w."""

    kind: Literal["all"] = "all"
    bounded: ClassVar[bool] = False
    radial: ClassVar[bool] = True
    separable: ClassVar[bool] = True
    symmetric: ClassVar[bool] = True

    def l2_radius(self, d: int) -> float:
        return inf

    def project(self, w: Floats) -> Floats:
        return w

    def least(self, gradient: Floats) -> float:
        return -inf
