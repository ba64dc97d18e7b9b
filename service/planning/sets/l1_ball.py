"""The ball with a vertex on either side of every axis, for sparse weights."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from service.planning.feasible import BaseSet
from service.planning.vectors import Floats, on_simplex
from service.planning.vertices import Corners, RowBounds, Scores, Sum, axis, public_part


class L1Ball(BaseSet):
    """All w with ||w||_1 at most `radius`."""

    kind: Literal["l1_ball"] = "l1_ball"
    radius: float = Field(default=10.0, gt=0, le=1e9)
    has_vertices: ClassVar[bool] = True
    symmetric: ClassVar[bool] = True
    has_lowest: ClassVar[bool] = True

    @property
    def l1_norm(self) -> float:
        return self.radius

    def l2_radius(self, d: int) -> float:
        return self.radius

    def project(self, w: Floats) -> Floats:
        if float(np.abs(w).sum()) <= self.radius:
            return w
        return np.sign(w) * on_simplex(np.abs(w), self.radius)

    def least(self, gradient: Floats) -> float:
        return -self.radius * float(np.abs(gradient).max())

    def lowest(self, gradient: Floats) -> Floats:
        """0 if all are alike."""
        place = int(np.abs(gradient).argmax())
        sign = float(np.nan_to_num(np.sign(gradient[place])))
        return axis(gradient.size, place, -self.radius * sign)

    def scores(self, bounds: RowBounds, unit: float | None = None) -> Scores:
        entry = min(bounds.linf, bounds.l2)
        pairs, margin = 2 * entry, self.radius * entry * bounds.feature_step
        return Scores(2 * bounds.columns, self.radius, pairs, margin, 2 * bounds.slope * pairs)

    def corners(self, d: int, unit: float) -> Corners:
        return Corners(
            centre=np.zeros(d),
            scores=_both_signs,
            vertex=lambda i: self.radius * axis(d, i % d, 1.0 if i < d else -1.0),
            opposite=lambda i: (i + d) % (2 * d),
            candidates=2 * d,
        )


def _both_signs(pull: Floats, total: Sum) -> Sum:
    signed = total + public_part(pull)
    return np.concatenate([signed, -signed])
