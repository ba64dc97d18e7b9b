"""The exact sums of service/planning/scored.py: each a function of one row, its label and a model's
scores of it.

Cells are clamped as integers and values as shares, so that a record's part is bounded whatever floats
the weights make of it, infinite ones and what is no number included."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.planning.scored import (
    LOG_LOSS_MAX,
    UNITS,
    Below,
    Confusion,
    Errors,
    Groups,
    Losses,
    Scores,
    bin_edges,
)
from service.planning.spec import Facts
from service.planning.tables import Counts
from workers.arrays import Add, Array, Floats, Sum

Integers = NDArray[np.int64]


def add_scored(facts: Facts, counts: Counts, models: Floats) -> Add:
    """What each block of rows adds to the tables, in lattice units; of `models` every row is one."""
    pairs: list[tuple[Any, int]] = list(zip(counts.tables, counts.lattice.weights, strict=True))

    def add(x: Array, y: Array) -> Sum:
        with np.errstate(all="ignore"):
            rows = x.astype(np.float64) * (facts.feature_step or 1.0)
            parts = [
                weight * _added(facts, table, x, rows, y, models[table.model])
                for table, weight in pairs
            ]
        return np.concatenate(parts)

    return add


def _added(facts: Facts, table: Any, x: Array, rows: Floats, y: Array, w: Floats) -> Sum:
    # not by BLAS, which may add up in another order where a block has other rows
    margins = np.einsum("ij,kj->ik", rows, w.reshape(-1, facts.columns))
    if isinstance(table, Losses | Errors):
        return np.asarray(_units(VALUES[type(table)](facts, margins, y)).sum(axis=0))
    cells = np.clip(_whole(CELLS[type(table)](facts, table, margins, y, w)), 0, _within(table) - 1)
    groups = getattr(table, "groups", None)
    if groups is not None:
        cells = cells + _within(table) * _group(groups, x)
    return np.bincount(cells, minlength=table.size).astype(np.int64)


def _within(table: Any) -> int:
    return int(table.size if isinstance(table, Scores) else table.within)


def _group(groups: Groups, x: Array) -> Integers:
    """The category whose indicator is set: exactly one, whatever the row holds."""
    block = x[:, groups.column : groups.column + groups.cells]
    return np.asarray(block.argmax(axis=1), dtype=np.int64)


def _units(shares: Floats) -> Integers:
    """Integers in [0, UNITS]; what is no number is the largest, as a prediction that far off is."""
    return np.floor(UNITS * np.clip(np.nan_to_num(shares, nan=1.0), 0.0, 1.0)).astype(np.int64)


def _whole(cells: NDArray[Any]) -> Integers:
    return np.clip(np.nan_to_num(cells.astype(np.float64)), 0, 2.0**40).astype(np.int64)


def _label(facts: Facts, y: Array) -> NDArray[Any]:
    return y > 0 if facts.label == "binary" else y


def _confusion(
    facts: Facts, table: Confusion, margins: Floats, y: Array, w: Floats
) -> NDArray[Any]:
    if facts.label == "binary":
        called: NDArray[Any] = margins[:, 0] > table.threshold
    else:
        called = margins.argmax(axis=1)
    label = np.clip(_whole(_label(facts, y)), 0, table.classes - 1)
    return table.classes * called.astype(np.int64) + label


def _scores(facts: Facts, table: Scores, margins: Floats, y: Array, w: Floats) -> NDArray[Any]:
    edges = bin_edges(w, table.bins, facts.l2)
    return 2 * np.searchsorted(edges, np.nan_to_num(margins[:, 0])) + (y > 0)


def _below(facts: Facts, table: Below, margins: Floats, y: Array, w: Floats) -> NDArray[Any]:
    return y <= margins[:, 0]


def _losses(facts: Facts, margins: Floats, y: Array) -> Floats:
    if facts.label == "binary":
        signed = margins[:, 0] * np.where(y > 0, 1.0, -1.0)
        log_loss = np.logaddexp(0.0, -signed)
        brier = np.square(1.0 - 1.0 / (1.0 + np.exp(-signed)))
    else:
        label = np.clip(_whole(y), 0, margins.shape[1] - 1)
        logs = margins - margins.max(axis=1, keepdims=True)
        logs = logs - np.log(np.exp(logs).sum(axis=1, keepdims=True))
        log_loss = -np.take_along_axis(logs, label[:, None], axis=1)[:, 0]
        missed = np.exp(logs)
        missed[np.arange(len(label)), label] -= 1.0
        brier = np.square(missed).sum(axis=1) / 2
    share = np.minimum(log_loss / LOG_LOSS_MAX, 1.0)
    return np.stack([brier, brier**2, share, share**2], axis=1)


def _errors(facts: Facts, margins: Floats, y: Array) -> Floats:
    y = np.clip(np.nan_to_num(y), -1.0, 1.0)
    error = np.abs(np.clip(margins[:, 0], -1.0, 1.0) - y) / 2
    return np.stack([error, error**2, error**4, (y + 1) / 2, y**2], axis=1)


CELLS: dict[type, Callable[..., NDArray[Any]]] = {
    Confusion: _confusion,
    Scores: _scores,
    Below: _below,
}
VALUES: dict[type, Callable[..., Floats]] = {Losses: _losses, Errors: _errors}
