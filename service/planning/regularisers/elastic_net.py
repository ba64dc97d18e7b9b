"""The lasso and a square, which is smooth and goes with the gradient."""

from math import sqrt
from typing import Literal

from service.planning.feasible import BaseSet
from service.planning.regulariser import BaseRegulariser, Strength, soft_threshold
from service.planning.vectors import Floats


class ElasticNet(BaseRegulariser):
    """l1 ||w||_1 + (l2/2) ||w||_2^2, intercepts left out."""

    kind: Literal["elastic_net"] = "elastic_net"
    l1: Strength
    l2: Strength

    @property
    def square(self) -> float:
        return self.l2

    @classmethod
    def suits(cls, feasible: type[BaseSet]) -> bool:
        return feasible.symmetric or feasible.separable

    def steepest(self, d: int) -> float:
        return self.l1 * sqrt(d)

    def shrink(self, slopes: Floats, eta: float) -> Floats:
        return soft_threshold(slopes, eta * self.l1)
