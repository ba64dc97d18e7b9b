"""Bounds on every weight by itself."""

from math import sqrt
from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from service.planning.feasible import BaseSet
from service.planning.vectors import Floats


class Box(BaseSet):
    """All w with every entry in [lower, upper]."""

    kind: Literal["box"] = "box"
    lower: float = Field(default=-1.0, ge=-1e9, le=1e9)
    upper: float = Field(default=1.0, ge=-1e9, le=1e9)
    separable: ClassVar[bool] = True
    has_lowest: ClassVar[bool] = True

    @model_validator(mode="after")
    def _is_not_empty(self) -> Self:
        if not self.lower < self.upper:
            raise ValueError("lower must be below upper")
        return self

    def l2_radius(self, d: int) -> float:
        return sqrt(d) * max(abs(self.lower), abs(self.upper))

    def diameter(self, d: int) -> float:
        return sqrt(d) * (self.upper - self.lower)

    def project(self, w: Floats) -> Floats:
        return np.clip(w, self.lower, self.upper)

    def least(self, gradient: Floats) -> float:
        return float(np.minimum(self.lower * gradient, self.upper * gradient).sum())

    def lowest(self, gradient: Floats) -> Floats:
        return np.where(gradient > 0, self.lower, self.upper)
