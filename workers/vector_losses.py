"""What a loss that is not one of one margin brings instead of a `Kernel`: sums of its own."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from service.planning.lattice import SumLattice
from service.planning.plan import Plan
from service.planning.spec import Facts
from workers.arrays import Add, Floats
from workers.kernels.simd import Layout
from workers.kernels.steps import Pass


class Limits(Protocol):
    """What one record may add to a sum; asked for only where it is needed, and refused where the
    Plan's lattice has none."""

    @property
    def layout(self) -> tuple[int, float, Layout]:
        """For fixed rows: the bound on a multiplier, multipliers per unit of derivative, and how
        columns are laid out for the kernels."""

    @property
    def contribution(self) -> int:
        """The bound on a vector of integers that kernels round to, as int32."""


@dataclass(frozen=True)
class VectorKernel:
    """Sums of a block's clipped gradients at given weights; none of them averages over a ball."""

    gradients: Callable[[Plan, SumLattice, Limits, Floats], Add]
    # ||dl/dm||_2 of any record at w = 0, where gradients are multiples of the row
    slope_at_zero: Callable[[Facts], float] | None = None
    # of points: a pass of averaged SGD over fixed rows, under a Plan's smoothing
    averaged_pass: Callable[[Plan], Pass] | None = None
    mean_gradient: Callable[[Floats, Floats, Floats], Floats] | None = None  # of (x, y, w), exact
