"""The exact sums of service/planning/tables.py: each a function of one row and its label.

A record is put in a cell by floats of its own entries alone, and the cell is clamped as an integer: so
it is in exactly one, whatever these floats are.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.planning.plan import Plan
from service.planning.spec import Facts
from service.planning.tables import (
    LABEL,
    MOMENT_UNITS,
    Bins,
    Categories,
    Classes,
    Counts,
    Crossed,
    Magnitudes,
    Moments,
    Products,
)
from workers.arrays import Add, Array, Floats, Sum
from workers.rows import WrongDataError

Integers = NDArray[np.int64]


def planned_tables(plan: Plan, counts: Counts) -> Counts:
    """The Plan's own, of those that a run names: what is equal may be another."""
    own = [one for one in plan.counted if type(counts) is Counts and one == counts]
    if not own:
        raise WrongDataError("tables are those of the Plan, and these are others")
    return own[0]


def add_tables(facts: Facts, counts: Counts, ranges: Floats | None = None) -> Add:
    """What each block of rows adds to the tables, in lattice units. `ranges` are those of tables that
    have none, [low, high] for each in turn: a function of what was released before."""
    pairs = list(zip(_ranged(counts.tables, ranges), counts.lattice.weights, strict=True))

    def add(x: Array, y: Array) -> Sum:
        parts = [weight * counted(facts, table, x, y) for table, weight in pairs]
        return np.concatenate(parts)

    return add


def _ranged(tables: Sequence[Any], ranges: Floats | None) -> list[Any]:
    left = [] if ranges is None else list(np.reshape(ranges, (-1, 2)))
    found = []
    for table in tables:
        own = {}
        if isinstance(table, Moments) and table.low is None:
            if not left:
                raise WrongDataError("a table without a range of its own is given none")
            own = dict(zip(("low", "high"), left.pop(0).tolist(), strict=True))
        found.append(table.model_copy(update=own))
    if left:
        raise WrongDataError("ranges are given for more tables than have none of their own")
    return found


def counted(facts: Facts, table: Any, x: Array, y: Array) -> Sum:
    """What a block of rows adds to one table."""
    if isinstance(table, Moments):
        return _moments(facts, table, x, y)
    if isinstance(table, Products):
        return _products(facts, table, x, y)
    return np.bincount(cells_of(facts, table, x, y), minlength=table.size).astype(np.int64)


def cells_of(facts: Facts, table: Any, x: Array, y: Array) -> Integers:
    """The cell of each record of a block."""
    found = CELLS[type(table)](facts, table, x, y)
    return np.asarray(np.clip(found, 0, table.size - 1))


def _categories(facts: Facts, table: Categories, x: Array, y: Array) -> Integers:
    """The indicator that is set, which a bound on the row may have made smaller."""
    block = x[:, table.column : table.column + table.cells]
    return np.asarray(block.argmax(axis=1), dtype=np.int64)


def _classes(facts: Facts, table: Classes, x: Array, y: Array) -> Integers:
    return whole(y > 0 if facts.label == "binary" else y)


def _bins(facts: Facts, table: Bins, x: Array, y: Array) -> Integers:
    """Stored numbers were truncated, so each is taken at its upper end: a value that lies on the edge
    between two cells, as whole numbers do, stays on the upper side."""
    v = values(facts, table.column, x, y, 1.0)
    with np.errstate(all="ignore"):
        share = (v - table.low) / (table.high - table.low)
        cell = whole(np.floor(np.clip(share, -1.0, 2.0) * table.cells))
    if table.open:
        return np.clip(cell, -1, table.cells) + 1
    return np.clip(cell, 0, table.cells - 1)


def _crossed(facts: Facts, table: Crossed, x: Array, y: Array) -> Integers:
    first = cells_of(facts, table.first, x, y)
    return first * table.second.size + cells_of(facts, table.second, x, y)


def _magnitudes(facts: Facts, table: Magnitudes, x: Array, y: Array) -> Integers:
    v = np.nan_to_num(values(facts, table.column, x, y, 0.5).astype(np.float64))
    above = np.clip(np.frexp(v)[1] - table.least, 0, table.most - table.least + 1)
    above[v == 0] = 0
    return np.asarray(table.size // 2 + np.where(v < 0, -above, above), dtype=np.int64)


def _moments(facts: Facts, table: Moments, x: Array, y: Array) -> Sum:
    """By integers alone once t is one: what a record adds lies on the curve (t, t^2/B)."""
    assert table.low is not None and table.high is not None
    t, B = _places(facts, table.column, (table.low, table.high), x, y), MOMENT_UNITS
    return np.array([t.sum(), ((t * t + B // 2) // B).sum()])


def _products(facts: Facts, table: Products, x: Array, y: Array) -> Sum:
    t = [
        _places(facts, column, ends, x, y)
        for column, ends in zip(table.columns, table.ranges, strict=True)
    ]
    sums, B = [each.sum() for each in t], MOMENT_UNITS
    for i, first in enumerate(t):
        sums.append(((first * first + B // 2) // B).sum())
        for second in t[:i]:
            sums.append(((first * second * table.BESIDE // 2**15 + B // 2) // B).sum())
    return np.array(sums)


def _places(facts: Facts, column: int, ends: tuple[float, float], x: Array, y: Array) -> Integers:
    """Where values are in a range, from -B to B."""
    v, B, (low, high) = values(facts, column, x, y, 0.5), MOMENT_UNITS, ends
    with np.errstate(all="ignore"):
        share = (v - low) / (high - low)
        t = whole(np.rint((2 * np.clip(share, 0.0, 1.0) - 1) * B))
    return np.asarray(np.clip(t, -B, B))


CELLS: dict[type, Callable[[Facts, Any, Array, Array], Integers]] = {
    Categories: _categories,
    Classes: _classes,
    Bins: _bins,
    Crossed: _crossed,
    Magnitudes: _magnitudes,
}


def values(facts: Facts, column: int, x: Array, y: Array, within: float) -> Floats:
    """A column's values in stored units: labels and float64 rows as they are, and of fixed rows shares
    of the row's constant, so that a bound that scaled the row is undone. An entry was truncated:
    `within` says where in its unit it is taken to be."""
    if column == LABEL:
        return y
    entries = x[:, column].astype(np.float64)
    if facts.storage == "float64":
        return entries
    constant = x[:, 0].astype(np.float64)
    constant += constant < (
        facts.linf_units or 0
    )  # it was truncated too, unless it is at its bound
    return np.asarray((entries + within) / np.maximum(constant, 1.0))


def whole(v: NDArray[Any]) -> Integers:
    """As integers; what is no number is 0, and nothing is so large that a cast would be undefined."""
    return np.clip(np.nan_to_num(v.astype(np.float64)), -(2.0**52), 2.0**52).astype(np.int64)
