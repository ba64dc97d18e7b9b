"""What a block of rows adds to a sum, for models and oracles that are no sum of slopes times rows: the
gradient of a network, and estimates from values of the loss. Every `Add` made here is of integer
vectors within the lattice's bound; see the kernels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.planning.lattice import SumLattice
from service.planning.plan import Plan
from service.planning.spec import ReluNetwork
from workers.arrays import Add, Array, Floats, Sum, integer_weights, read_only
from workers.kernels.directional import (
    add_vectors,
    central_differences,
    changes_of_differences,
    network_values,
    product,
)
from workers.kernels.losses import slope_of
from workers.kernels.network import add_network_fixed, add_network_float
from workers.kernels.simd import Layout

_TOGETHER = 1 << 18  # floats of a block's temporary arrays


def network_parts(plan: Plan, weights: Floats) -> tuple[Floats, Floats]:
    """[..., width, columns], [..., width + 1]: hidden weights; outer ones and the offset."""
    model, columns = plan.spec.model, plan.facts.columns
    assert isinstance(model, ReluNetwork)
    inner = model.width * columns
    shape = (*weights.shape[:-1], model.width, columns)
    return weights[..., :inner].reshape(shape), weights[..., inner:]


def network_fixed(
    plan: Plan,
    lattice: SumLattice,
    layout: Layout,
    points: Floats,
    move: Floats | None,
) -> Add:
    """The mean of a record's gradients at `points` [P, d]; or, at points + move less at points."""
    facts, loss = plan.facts, slope_of(plan)

    def units(weights: Floats) -> tuple[NDArray[np.int16], Floats]:
        found, worth = integer_weights(weights, facts.l2_units or 0)
        steps = np.minimum((facts.feature_step or 0.0) * worth, 1e280)
        return layout.pad(found), read_only(steps)

    hidden, outer = network_parts(plan, points)
    now = *units(hidden), read_only(np.ascontiguousarray(outer))
    if move is None:
        moved = tuple(read_only(np.zeros_like(part[0])) for part in now)
    else:
        step_hidden, step_outer = network_parts(plan, move)
        moved = *units(step_hidden), read_only(np.ascontiguousarray(step_outer))
    arguments: tuple[Any, ...] = (
        *now,
        *moved,
        move is not None,
        loss,
        facts.feature_step,
        lattice.clip,
        lattice.contribution_units,
        lattice.norm == "l1",
        layout.fast,
    )

    def add(x: Array, y: Array) -> Sum:
        total = np.zeros((hidden.shape[1], layout.size), dtype=np.int64)
        rest = np.zeros(outer.shape[1], dtype=np.int64)
        add_network_fixed(total, rest, x, y, *arguments)
        return np.concatenate([layout.unpad(total).ravel(), rest])

    return add


def network_float(plan: Plan, lattice: SumLattice, points: Floats, move: Floats | None) -> Add:
    loss = slope_of(plan)
    hidden, outer = (read_only(np.ascontiguousarray(p)) for p in network_parts(plan, points))
    none = points[0] * 0 if move is None else move
    step_hidden, step_outer = (
        read_only(np.ascontiguousarray(part)) for part in network_parts(plan, none)
    )
    clip, bound, use_l1 = lattice.clip, lattice.contribution_units, lattice.norm == "l1"
    arguments: tuple[Any, ...] = (
        *(hidden, outer, step_hidden, step_outer, move is not None),
        *(loss, clip, bound, use_l1),
    )

    def add(x: Array, y: Array) -> Sum:
        total = np.zeros(hidden.shape[1:], dtype=np.int64)
        rest = np.zeros(outer.shape[1], dtype=np.int64)
        add_network_float(total, rest, x, y, *arguments)
        return np.concatenate([total.ravel(), rest])

    return add


def zero_order(
    plan: Plan, lattice: SumLattice, at: Floats, before: Floats | None, frame: Floats, radius: float
) -> Add:
    """A record's central differences of length `radius` along each row of `frame` [m, d], times that
    row and d/m, at `at`; or that less the same at `before`."""
    loss, unit = slope_of(plan), plan.facts.feature_step or 1.0
    count, dimension = frame.shape
    factor = dimension / (2 * radius * count)
    clip, bound, use_l1 = lattice.clip, float(lattice.contribution_units), lattice.norm == "l1"
    linear = plan.spec.model.kind == "linear"
    together = max(16, _TOGETHER // max(frame.shape))
    points = [at] if before is None else [at, before]
    moved = np.ascontiguousarray(np.concatenate([radius * frame, points]).T)

    def along(x: Floats, y: Array) -> Floats:
        """[rows, m]: what each direction is multiplied with."""
        if linear:
            margins = np.empty((len(x), moved.shape[1]))
            product(margins, x, moved)
            moves = np.ascontiguousarray(margins[:, :count])
            if before is None:
                central_differences(moves, margins[:, count], y, loss, factor)
            else:
                there = margins[:, count + 1]
                changes_of_differences(moves, margins[:, count], there, y, loss, factor)
            return moves
        found, x = np.empty((len(x), count)), np.ascontiguousarray(x.T)
        for j in range(count):
            change = _values(x, y, at + radius * frame[j]) - _values(x, y, at - radius * frame[j])
            if before is not None:
                change -= _values(x, y, before + radius * frame[j])
                change += _values(x, y, before - radius * frame[j])
            found[:, j] = factor * change
        return found

    def _values(columns: Floats, y: Array, weights: Floats) -> Floats:
        inner, outer = network_parts(plan, weights)
        hidden, out = np.empty((len(inner), len(y))), np.empty(len(y))
        product(hidden, inner, columns)
        network_values(out, hidden, outer, y, loss)
        return out

    def add(x: Array, y: Array) -> Sum:
        total = np.zeros(dimension, dtype=np.int64)
        for low in range(0, len(x), together):
            with np.errstate(all="ignore"):  # a warning would tell of one record
                rows = x[low : low + together] * unit
                vectors = np.empty((len(rows), dimension))
                product(vectors, along(rows, y[low : low + together]), frame)
            add_vectors(total, vectors, clip, bound, use_l1)
        return total

    return add
