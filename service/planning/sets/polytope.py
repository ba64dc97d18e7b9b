"""Any polytope, by its vertices. There is no projection on it in closed form; algorithms over it use
the vertices."""

from functools import partial
from math import ceil, dist, frexp, sqrt
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from service.errors import PlanRefused
from service.planning.feasible import BaseSet
from service.planning.vectors import Floats
from service.planning.vertices import (
    Corners,
    RowBounds,
    Scores,
    Vertices,
    largest_pair,
    public_part,
    reach,
    require_choice,
)

_U = 2.0**-53
_SCORE_BITS = 31
_WIDTH_MIN = 1e-90


class Polytope(BaseSet):
    """All convex combinations of the vertices, each a list of one number per feature."""

    kind: Literal["polytope"] = "polytope"
    vertices: tuple[tuple[Annotated[float, Field(ge=-1e9, le=1e9)], ...], ...] = Field(
        min_length=1, max_length=10_000
    )
    has_projection: ClassVar[bool] = False
    has_vertices: ClassVar[bool] = True
    has_lowest: ClassVar[bool] = True

    @model_validator(mode="after")
    def _is_rectangular(self) -> Self:
        if len({len(vertex) for vertex in self.vertices}) != 1:
            raise ValueError("every vertex needs the same number of entries, one per feature")
        if len(self.vertices) * len(self.vertices[0]) > 10**5:
            raise ValueError("vertices times features may be at most 100000")
        return self

    def l2_radius(self, d: int) -> float:
        return max(sqrt(sum(v * v for v in vertex)) for vertex in self.vertices)

    def diameter(self, d: int) -> float:
        return largest_pair(self.vertices, dist) if len(self.vertices) > 1 else 0.0

    def start(self, d: int) -> Floats:
        """Their mean."""
        return np.asarray(np.array(self.vertices).mean(axis=0))

    def least(self, gradient: Floats) -> float:
        return float(self._along(gradient).min())

    def lowest(self, gradient: Floats) -> Floats:
        return np.array(self.vertices[int(self._along(gradient).argmin())])

    def _along(self, gradient: Floats) -> Floats:
        return np.asarray(np.einsum("vi,i->v", np.array(self.vertices), gradient))

    def require_columns(self, columns: int) -> None:
        if len(self.vertices[0]) != columns:
            raise PlanRefused(
                f"every vertex needs {columns} entries, one per feature of this dataset with the "
                f"intercept first, and these have {len(self.vertices[0])}."
            )

    @property
    def listed(self) -> Vertices:
        return self.vertices

    def scores(self, bounds: RowBounds, unit: float | None = None) -> Scores:
        d, Q, vertices = bounds.columns, bounds.slope, self.vertices
        self.require_columns(d)
        require_choice(len(set(vertices)))
        far = partial(reach, bounds.linf, bounds.l2)
        width = largest_pair(vertices, far) * (1 + 2.0**-40)
        if width < _WIDTH_MIN:
            raise PlanRefused("the vertices differ by less than 1e-90; give them a distance.")
        unit = unit or 2.0 ** (frexp(Q * width)[1] - _SCORE_BITS)
        R = Q * width / unit
        slack = ceil(8 * (d + 1) * _U * bounds.rows * R) + 3
        margin = max(far(v, (0.0,) * d) for v in vertices) * bounds.feature_step
        return Scores(len(vertices), unit, width / unit, margin, ceil(2 * R) + slack)

    def corners(self, d: int, unit: float) -> Corners:
        vertices = np.array(self.vertices)
        relative = (vertices - vertices[0]) / unit
        return Corners(
            centre=vertices.mean(axis=0),
            scores=lambda pull, total: (
                np.rint((relative * total).sum(axis=1)).astype(np.int64)
                + public_part((relative * pull).sum(axis=1))
            ),
            vertex=lambda i: vertices[i],
            opposite=lambda i: int(np.abs(vertices - vertices[i]).sum(axis=1).argmax()),
            candidates=len(vertices),
        )
