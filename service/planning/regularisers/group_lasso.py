"""The lasso of groups of weights, which become zero together."""

from math import sqrt
from typing import Literal

import numpy as np
from pydantic import Field, PositiveInt

from service.errors import PlanRefused
from service.planning.feasible import BaseSet
from service.planning.regulariser import BaseRegulariser, Strength, soft_threshold
from service.planning.vectors import Floats


class GroupLasso(BaseRegulariser):
    """strength times the sum over groups g of sqrt(|g|) ||w_g||_2, intercepts left out. `groups` are
    sizes, in the order of the features: the indicators of one categorical column are a group."""

    kind: Literal["group_lasso"] = "group_lasso"
    strength: Strength
    groups: tuple[PositiveInt, ...] = Field(min_length=1, max_length=100_000)

    @classmethod
    def suits(cls, feasible: type[BaseSet]) -> bool:
        return feasible.radial

    def require_columns(self, columns: int) -> None:
        if sum(self.groups) != columns - 1:
            raise PlanRefused(
                f"the groups hold {sum(self.groups)} features and this dataset has {columns - 1} "
                f"besides the intercept; give sizes that add up to {columns - 1}, in their order."
            )

    def steepest(self, d: int) -> float:
        return self.strength * sqrt(d)

    def shrink(self, slopes: Floats, eta: float) -> Floats:
        starts = np.concatenate([[0], np.cumsum(self.groups[:-1])]).astype(np.int64)
        norms = np.sqrt(np.add.reduceat(slopes**2, starts, axis=1))
        limits = eta * self.strength * np.sqrt(np.asarray(self.groups, dtype=np.float64))
        kept = np.maximum(0.0, 1 - limits / np.maximum(norms, 1e-300))
        shrunk: Floats = slopes * np.repeat(kept, self.groups, axis=1)
        return shrunk

    def shrink_each(self, weights: Floats, eta: float) -> Floats:
        return soft_threshold(weights, eta * self.strength)
