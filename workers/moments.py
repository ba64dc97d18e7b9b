"""Exact moments of rows and labels, and derived rows: service/planning/shared/moments.py.

Integers throughout, second moments by the kernel that multiplies pairs of int16: entries are at most
4095, so sixteen of their products stay within int32, and a block's sums within int64.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.planning.lattice import MomentLattice
from service.planning.plan import Plan
from service.planning.shared.moments import (
    DERIVED_UNITS,
    beside,
    largest_weight,
    sensitivity,
)
from service.planning.spec import Facts
from workers.arrays import Add, Array, Floats, Sum, integer_weights, read_only
from workers.kernels import derive
from workers.kernels.simd import SIDE, Layout, accumulate_each
from workers.rows import WrongDataError

_ROWS = 1024  # of a block that stays in the second cache, next to its transpose
_PANEL = 64  # columns that are multiplied by all that come behind them


@dataclass(frozen=True)
class Frame:
    """Coordinates of rows: (x - centre)/radius, without the constant; and of labels, likewise."""

    centre: Floats
    radius: float
    label_centre: float
    label_radius: float


def lattice_of(plan: Plan, order: int) -> MomentLattice:
    """The Plan's for moments of this order."""
    for lattice in plan.moments:
        if lattice.order == order:
            require_consistent(plan.facts, lattice)
            return lattice
    raise WrongDataError("the Plan has no lattice for these moments")


def require_consistent(facts: Facts, lattice: MomentLattice) -> None:
    """What the meter is told of moments is what is computed here."""
    order, norm, label, a = lattice.order, lattice.norm, lattice.label_units, lattice.diagonal
    if (order > 0 and facts.l2_units is None) or (lattice.noise == "laplace") != (norm == "l1"):
        raise WrongDataError("moments need a bound on every row, in the norm of their noise")
    if (
        a > largest_weight(facts, order, norm, label)
        or lattice.beside != beside(order, norm, a)
        or lattice.sensitivity_units != sensitivity(facts, order, norm, label, a)
        or (order == 2 and label > DERIVED_UNITS)
    ):
        raise WrongDataError("the lattice of moments has another sensitivity than it says")


def label_integers(y: Floats, centre: float, radius: float, units: int) -> NDArray[np.int64]:
    """(y - centre)/radius in units, towards zero: at most `units` by the integers' own clamp, whatever
    y is. What is no number counts as 0."""
    with np.errstate(all="ignore"):
        scaled = (y - centre) / radius * units
    scaled = np.where(np.isfinite(scaled), np.clip(scaled, -units, units), 0.0)
    return np.clip(scaled.astype(np.int64), -units, units)


def first_moments(facts: Facts, lattice: MomentLattice) -> Add:
    """The weighted sum of (x without the constant, t, and what is made of |x|^2 and t^2)."""
    l2_units, units, binary = facts.l2_units, lattice.label_units, facts.label == "binary"

    def add(x: Array, y: Array) -> Sum:
        total = np.zeros(lattice.entries(facts.columns), dtype=np.int64)
        derive.add_means(total, x, label_integers(y, 0.0, 1.0, units), l2_units, units, binary)
        return total * lattice.diagonal

    return add


def label_sum(lattice: MomentLattice) -> Add:
    """The weighted sum of labels alone."""
    units = lattice.label_units

    def add(_: Array, y: Array) -> Sum:
        total = label_integers(y, 0.0, 1.0, units).sum(keepdims=True)
        return np.asarray(total * lattice.diagonal)

    return add


def second_moments(facts: Facts, lattice: MomentLattice, frame: Frame) -> Add:
    """The weighted triangle of the sum of z z' in this frame, row by row."""
    features, step = facts.columns - 1, facts.feature_step or 0.0
    require_vector(frame.centre, features)
    centre, scale = read_only(frame.centre / step), step / frame.radius * DERIVED_UNITS
    weights = np.where(np.eye(features + 1, dtype=bool), lattice.diagonal, lattice.beside)
    triangle = np.tril_indices(features + 1)

    def add(x: Array, y: Array) -> Sum:
        z = np.empty((len(x), features + 1), dtype=np.int16)
        derive.centred(x, centre, scale, z)
        place, radius = frame.label_centre, frame.label_radius
        z[:, -1] = label_integers(y, place, radius, lattice.label_units)
        return np.asarray((products(z) * weights)[triangle])

    return add


def products(z: Array) -> Sum:
    """The sum of z z', int16; of the part above the diagonal, anything."""
    columns = z.shape[1]
    total = np.zeros((columns, columns), dtype=np.int64)
    panels = np.array_split(np.arange(columns), -(-columns // _PANEL))
    for first in range(0, len(z), _ROWS):
        block = z[first : first + _ROWS]
        turned = np.ascontiguousarray(block.T)
        for panel in panels:
            low, high = int(panel[0]), int(panel[-1]) + 1
            layout = Layout(high - low)
            sums = np.zeros((columns - low, layout.size), dtype=np.int64)
            its = read_only(np.ascontiguousarray(block[:, low:high]))
            accumulate_each(sums, its, turned[low:], layout.fast)
            total[low:, low:high] += layout.unpad(sums)
    return total


def mean_units(facts: Facts, lattice: MomentLattice) -> Floats:
    """What a unit of each first moment is worth, in units of x, y, |x|^2 and y^2."""
    step, label = facts.feature_step or 0.0, 1 / lattice.label_units
    worth = np.full(lattice.entries(facts.columns), step)
    longest = facts.l2_units or 1
    worth[-3:] = label, longest * step**2, 1 / longest
    return worth


def matrix(triangle: Floats, lattice: MomentLattice, frame: Frame) -> Floats:
    """The released triangle, of which a unit is worth one of the diagonal, as a symmetric matrix in
    units of x and y."""
    size = int(np.sqrt(2 * triangle.size))
    found = np.zeros((size, size))
    found[np.tril_indices(size)] = triangle
    found *= np.where(np.eye(size, dtype=bool), 1.0, lattice.diagonal / lattice.beside)
    found += np.tril(found, -1).T
    worth = np.full(size, frame.radius / DERIVED_UNITS)
    worth[-1] = frame.label_radius / lattice.label_units
    return np.asarray(found * worth * worth[:, None])


def derivation(
    facts: Facts, constant: int, centre: Floats, a: Floats, radius: float
) -> tuple[Callable[[Array], Array], Floats]:
    """What makes a block of stored rows the rows (constant, a (x - centre)/radius); and `a` as it is
    there, its entries rounded to 15 bits."""
    features, step, layout = facts.columns - 1, facts.feature_step or 0.0, Layout(facts.columns)
    require_vector(centre, features)
    if a.dtype != np.float64 or a.shape != (features, features) or not radius > 0:
        raise WrongDataError("rows are derived by a square matrix of floats")
    units, worth = integer_weights(np.hstack([np.zeros((features, 1)), a]), facts.l2_units or 0)
    offsets = np.einsum("ij,j->i", units[:, 1:].astype(np.float64), centre / step)
    scales = worth * step / radius * DERIVED_UNITS
    filled = np.vstack([units, np.zeros((-features % SIDE, facts.columns), dtype=np.int16)])
    arguments = layout.pad(filled), read_only(offsets), read_only(scales), constant, layout.fast

    def block(x: Array) -> Array:
        out = np.empty(x.shape, dtype=np.int16)
        derive.whitened(x, *arguments, out)
        return out

    return block, np.asarray(units[:, 1:] * worth[:, None])


def require_vector(vector: Floats, size: int) -> None:
    if vector.dtype != np.float64 or vector.shape != (size,):
        raise WrongDataError("rows are centred at a vector of floats, one per column")
