"""What every feasible set tells of itself. Its operations act on released weights: post-processing."""

from typing import ClassVar, Literal

import numpy as np

from service.planning.kinds import Kind
from service.planning.vectors import Floats
from service.planning.vertices import Corners, RowBounds, Scores, Vertices


class BaseSet(Kind):
    """A feasible set, convex and closed."""

    bounded: ClassVar[bool] = True
    has_projection: ClassVar[bool] = True  # to a float's last bits
    has_lowest: ClassVar[bool] = False  # a point of least <gradient, v>, in closed form
    has_vertices: ClassVar[bool] = False  # few enough to choose one of them
    nonnegative: ClassVar[bool] = False  # it has no w with an entry below 0
    radial: ClassVar[bool] = False  # the projection keeps w's direction
    separable: ClassVar[bool] = False  # the projection acts on every weight by itself
    symmetric: ClassVar[bool] = (
        False  # any entry may change its sign: a projection keeps signs and 0s
    )

    @property
    def norm_exponent(self) -> float | None:
        """p, where the set is a ball of ||w||_p with 1 < p <= 2."""
        return None

    @property
    def l1_norm(self) -> float | None:
        """The largest ||w||_1, where that (and the sign of entries) is all that the set asks for."""
        return None

    def l2_radius(self, d: int) -> float:
        """The largest ||w||_2 of d weights."""
        raise NotImplementedError

    def project(self, w: Floats) -> Floats:
        """The nearest point."""
        raise TypeError(f"{self.kind} has no projection")

    def least(self, gradient: Floats) -> float:
        """min <gradient, v>."""
        raise NotImplementedError

    def lowest(self, gradient: Floats) -> Floats:
        """A v of least <gradient, v>."""
        raise TypeError(f"{self.kind} has no such point in closed form")

    def start(self, d: int) -> Floats:
        """Of d weights, a point to begin at: the nearest to 0, where there is a projection."""
        return self.project(np.zeros(d))

    @property
    def exponent(self) -> float:
        """p of the norm ||w||_p in which the set is measured."""
        return 1.0 if self.l1_norm is not None else self.norm_exponent or 2.0

    def diameter(self, d: int) -> float:
        """A bound on ||v - w||_p for two of its points, p that exponent."""
        return 2 * self.l2_radius(d)

    def require_columns(self, columns: int) -> None:
        """Refuse a set of vectors of another length."""

    @property
    def listed(self) -> Vertices | None:
        """The vertices, where they are given by their entries."""
        return None

    def scores(self, bounds: RowBounds, unit: float | None = None) -> Scores:
        """How the vertices' scores, sums of slope times <vertex, row>, depend on one record. Vertices
        that are given by their entries count in `unit`, or in one that suits them."""
        raise TypeError(f"{self.kind} has no list of vertices")

    def corners(self, d: int, unit: float) -> Corners:
        """Its vertices, in units of `unit`."""
        raise TypeError(f"{self.kind} has no list of vertices")


class DefaultSet(BaseSet):
    """The set that the algorithm does best with, by public facts; the Plan names it."""

    kind: Literal["default"] = "default"
