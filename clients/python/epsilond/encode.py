"""From raw cells to the numbers that a model was fitted on, by the encoder of its card alone.

It is what the service did to the rows (service/datasets/encode.py), bit for bit: a property test
compares the two over every kind of column. Acts on each row by itself.
"""

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilond.cells import KEYS, MISSING, numbers_of, text_of

JSON = dict[str, Any]
Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[Any]]
OTHER = "<other>"
_NEEDS_FILL = "the cell is missing, and the column has no declared fill"


class EncodeError(ValueError):
    """A cell that cannot be encoded. `row` counts from 0."""

    def __init__(self, row: int | None, column: str, reason: str) -> None:
        where = f"column {column!r}" if row is None else f"row {row}, column {column!r}"
        super().__init__(f"{where}: {reason}")
        self.row, self.column, self.reason = row, column, reason


class Encoder:
    """The public facts of a dataset, as a card's `encoder` holds them."""

    def __init__(self, declared: JSON) -> None:
        self.columns: list[JSON] = [c for c in declared["columns"] if c["kind"] != "ignored"]
        self.label: JSON = declared["label"]
        self.names: list[str] = [column["name"] for column in self.columns]
        self.known = {c["name"] for c in declared["columns"]} | {self.label["name"]}
        self.key = KEYS[declared.get("compare_by", "spelling")]
        self.fixed = all(column["kind"] != "unbounded" for column in self.columns)
        self.blocks = 1 + len(self.columns)
        self.l2: float = min(declared.get("l2") or 1.0, 1.0)
        attainable = min(1.0 / math.sqrt(self.blocks), self.l2)
        self.linf: float = min(declared.get("linf") or attainable, attainable)
        self.constant = self.linf if self.fixed else 1.0
        """The encoded value of the intercept in a row that no norm bound clipped."""

    @property
    def clips(self) -> bool:
        """Whether rows are clipped to norm bounds that were declared smaller than they could be."""
        return self.fixed and (self.l2 < 1.0 or self.linf < 1 / math.sqrt(self.blocks))

    @property
    def classes(self) -> list[str] | None:
        """The values of a label that is no number, in the order of scores."""
        if self.label["kind"] == "binary":
            return [self.label["negative"], self.label["positive"]]
        return list(self.label["classes"]) if self.label["kind"] == "categorical" else None

    @cached_property
    def features(self) -> list[str]:
        """The names of the encoded entries after the intercept."""
        names: list[str] = []
        for column in self.columns:
            if column["kind"] == "categorical":
                names += [f"{column['name']}={v}" for v in (*column["categories"], OTHER)]
            else:
                names.append(column["name"])
        return names

    def encode(self, columns: Columns) -> Floats:
        """X [n, d]: the intercept, then the columns in declared order."""
        n = len(next(iter(columns.values())))
        X = np.zeros((n, 1 + len(self.features)))
        X[:, 0] = 1.0
        j = 1
        for column in self.columns:
            values = columns[column["name"]]
            if column["kind"] == "categorical":
                X[np.arange(n), j + self._codes(column, values)] = 1.0
                j += len(column["categories"]) + 1
            else:
                X[:, j] = _scaled(column, values)
                j += 1
        return self._clipped(X) if self.fixed else X

    def _codes(self, column: JSON, values: NDArray[Any]) -> NDArray[np.int64]:
        """The position of each cell's category; <other> comes last."""
        categories = (*column["categories"], OTHER)
        index = {self.key(category): i for i, category in enumerate(categories)}
        fill, other = column.get("fill"), len(categories) - 1
        known: dict[tuple[type, object], int] = {}  # True is not 1 by spelling

        def code(row: int, cell: object) -> int:
            if (type(cell), cell) not in known:
                key = self.key(cell)
                known[type(cell), cell] = index.get(key, -1 if key.lower() in MISSING else other)
            if (found := known[type(cell), cell]) < 0:
                if fill is None:
                    raise EncodeError(row, column["name"], _NEEDS_FILL)
                found = index[self.key(fill)]
            return found

        return np.fromiter(
            (code(i, c) for i, c in enumerate(values.tolist())), np.int64, len(values)
        )

    def _clipped(self, X: Floats) -> Floats:
        """Scaled by 1/sqrt(blocks), entries clipped to linf, rows shortened to l2; in place."""
        X /= math.sqrt(self.blocks)
        np.clip(X, -self.linf, self.linf, out=X)
        norms = np.sqrt(np.einsum("ij,ij->i", X, X))
        long = norms > self.l2
        if long.any():
            X[long] *= (self.l2 / norms[long])[:, None]
        return X


def _scaled(column: JSON, values: NDArray[Any]) -> Floats:
    v = _numbers(column, values)
    if column["kind"] == "unbounded":
        with np.errstate(over="ignore"):
            v = v / column["scale"]
        if (infinite := np.isinf(v)).any():
            raise EncodeError(int(infinite.argmax()), column["name"], "value/scale is not finite")
        return np.asarray(v)
    lower, upper = column["lower"], column["upper"]
    v = v.clip(lower, upper)
    if column["log1p"]:
        v, lower, upper = np.log1p(v), math.log1p(lower), math.log1p(upper)
    return np.asarray(((v - lower) / (upper - lower)).clip(0.0, 1.0))


def _numbers(column: JSON, values: NDArray[Any]) -> Floats:
    found = numbers_of(values)
    if isinstance(found, list) and None in found:
        row = found.index(None)
        raise EncodeError(row, column["name"], f"not a number: {text_of(values[row])!r}"[:80])
    numbers = np.array(found, dtype=np.float64)
    if (infinite := np.isinf(numbers)).any():
        raise EncodeError(int(infinite.argmax()), column["name"], "the number is not finite")
    if (missing := np.isnan(numbers)).any():
        if column.get("fill") is None:
            raise EncodeError(int(missing.argmax()), column["name"], _NEEDS_FILL)
        numbers[missing] = column["fill"]
    return numbers
