"""Exact second moments of stored rows and labels: service/planning/shared/moments.py.

Integers throughout, by the kernel that multiplies pairs of int16: entries of rows are below 2^12 and
labels at most 2^14 (`LABEL_UNITS_MAX`), so sixteen of their products stay within int32, and a block's
sums within int64.
"""

import numpy as np
from numpy.typing import NDArray

from service.planning.lattice import MomentLattice
from service.planning.shared.moments import (
    LABEL_UNITS_MAX,
    beside,
    largest_diagonal,
    sensitivity,
)
from service.planning.spec import Facts
from workers.arrays import Add, Array, Floats, Sum, read_only
from workers.kernels.simd import Layout, accumulate_each
from workers.rows import WrongDataError

_ROWS = 1024  # of a block that stays in the second cache, next to its transpose
_PANEL = 64  # columns that are multiplied by all that come behind them


def require_consistent(facts: Facts, lattice: MomentLattice) -> None:
    """What the meter is told of the moments is what is computed here."""
    norm, units, diagonal = lattice.norm, lattice.label_units, lattice.diagonal
    if facts.l2_units is None or (lattice.noise == "laplace") != (norm == "l1"):
        raise WrongDataError("second moments need a bound on every row, in the norm of their noise")
    if (
        units > LABEL_UNITS_MAX
        or diagonal > largest_diagonal(facts, norm, units)
        or lattice.beside != beside(norm, diagonal)
        or lattice.sensitivity_units != sensitivity(facts, norm, units, diagonal)
    ):
        raise WrongDataError("the lattice of second moments has another sensitivity than it says")


def label_integers(y: Floats, units: int) -> NDArray[np.int16]:
    """y in units, towards zero: at most `units` by the integers' own clamp, whatever y is."""
    with np.errstate(all="ignore"):
        scaled = y * float(units)
    scaled = np.where(np.isfinite(scaled), np.clip(scaled, -units, units), 0.0)
    return np.clip(scaled.astype(np.int64), -units, units).astype(np.int16)


def weighted_moments(lattice: MomentLattice) -> Add:
    """The weighted triangle of the sum of z z' over a block, row by row."""

    def add(x: Array, y: Array) -> Sum:
        labels = label_integers(y, lattice.label_units)
        total = _second_moments(x, labels)
        total *= np.where(np.eye(len(total), dtype=bool), lattice.diagonal, lattice.beside)
        return np.asarray(total[np.tril_indices(len(total))])

    return add


def _second_moments(x: Array, labels: NDArray[np.int16]) -> Sum:
    """The sum of z z'; of the part above the diagonal, anything."""
    rows, columns = x.shape
    total = np.zeros((columns + 1, columns + 1), dtype=np.int64)
    panels = np.array_split(np.arange(columns), -(-columns // _PANEL))
    for first in range(0, rows, _ROWS):
        block, its = x[first : first + _ROWS], labels[first : first + _ROWS]
        turned = np.empty((columns + 1, len(block)), dtype=np.int16)
        turned[:columns], turned[columns] = block.T, its
        for panel in panels:
            low, high = int(panel[0]), int(panel[-1]) + 1
            layout = Layout(high - low)
            sums = np.zeros((columns + 1 - low, layout.size), dtype=np.int64)
            beside = read_only(np.ascontiguousarray(block[:, low:high]))
            accumulate_each(sums, beside, turned[low:], layout.fast)
            total[low:, low:high] += layout.unpad(sums)
        total[columns, columns] += np.sum(its.astype(np.int64) ** 2)
    return total


def matrix(released: Floats, lattice: MomentLattice, feature_step: float) -> Floats:
    """The released triangle, in squared feature units, as a symmetric matrix in units of x and y."""
    size = int(np.sqrt(2 * released.size))
    found = np.zeros((size, size))
    found[np.tril_indices(size)] = released
    found *= lattice.diagonal / np.where(np.eye(size, dtype=bool), lattice.diagonal, lattice.beside)
    found += np.tril(found, -1).T
    label = 1 / (feature_step * lattice.label_units)
    found[-1] *= label
    found[:, -1] *= label
    return found
