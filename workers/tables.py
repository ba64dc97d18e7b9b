"""The exact sums of service/planning/tables.py: each a function of one row and its label.

A record is put in a cell by floats of its own entries alone, and the cell is clamped as an integer: so
it is in exactly one, whatever these floats are.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.planning.spec import Facts
from service.planning.tables import LABEL, Bins, Categories, Classes, Counts, Crossed
from workers.arrays import Add, Array, Floats, Sum

Integers = NDArray[np.int64]


def add_tables(facts: Facts, counts: Counts) -> Add:
    """What each block of rows adds to the tables, in lattice units."""
    pairs = list(zip(counts.tables, counts.lattice.weights, strict=True))

    def add(x: Array, y: Array) -> Sum:
        parts = [weight * _counted(facts, table, x, y) for table, weight in pairs]
        return np.concatenate(parts)

    return add


def _counted(facts: Facts, table: Any, x: Array, y: Array) -> Sum:
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


CELLS: dict[type, Callable[[Facts, Any, Array, Array], Integers]] = {
    Categories: _categories,
    Classes: _classes,
    Bins: _bins,
    Crossed: _crossed,
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
