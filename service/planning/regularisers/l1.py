"""The lasso: weights that matter little become zero."""

from math import sqrt
from typing import Literal

from service.planning.feasible import BaseSet
from service.planning.regulariser import BaseRegulariser, Strength, soft_threshold
from service.planning.vectors import Floats


class L1(BaseRegulariser):
    """strength ||w||_1, intercepts left out."""

    kind: Literal["l1"] = "l1"
    strength: Strength

    @classmethod
    def suits(cls, feasible: type[BaseSet]) -> bool:
        return feasible.symmetric or feasible.separable

    def steepest(self, d: int) -> float:
        return self.strength * sqrt(d)

    def shrink(self, slopes: Floats, eta: float) -> Floats:
        return soft_threshold(slopes, eta * self.strength)
