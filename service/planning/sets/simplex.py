"""Mixtures: weights that share a total."""

from math import isqrt
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from service.planning.feasible import BaseSet
from service.planning.vectors import Floats, on_simplex
from service.planning.vertices import Corners, RowBounds, Scores, axis, public_part, require_choice


class Simplex(BaseSet):
    """All w >= 0 whose entries add up to `total`."""

    kind: Literal["simplex"] = "simplex"
    total: float = Field(default=1.0, gt=0, le=1e9)
    has_vertices: ClassVar[bool] = True
    nonnegative: ClassVar[bool] = True
    has_lowest: ClassVar[bool] = True

    @property
    def l1_norm(self) -> float:
        return self.total

    def l2_radius(self, d: int) -> float:
        return self.total

    def project(self, w: Floats) -> Floats:
        return on_simplex(w, self.total)

    def least(self, gradient: Floats) -> float:
        return self.total * float(gradient.min())

    def lowest(self, gradient: Floats) -> Floats:
        return axis(gradient.size, int(gradient.argmin()), self.total)

    def scores(self, bounds: RowBounds, unit: float | None = None) -> Scores:
        require_choice(bounds.columns)
        pairs = min(2 * bounds.linf, isqrt(2 * bounds.l2**2))
        margin = self.total * min(bounds.linf, bounds.l2) * bounds.feature_step
        return Scores(bounds.columns, self.total, pairs, margin, 2 * bounds.slope * pairs)

    def corners(self, d: int, unit: float) -> Corners:
        return Corners(
            centre=np.full(d, self.total / d),
            scores=lambda pull, total: total + public_part(pull),
            vertex=lambda i: self.total * axis(d, i, 1.0),
            opposite=lambda i: (i + 1) % d,
            candidates=d,
        )
