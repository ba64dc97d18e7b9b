"""From raw cells to the numbers a model is fitted on, by the public Schema alone.

Every function here acts on each row by itself, so a file may be encoded in blocks of any size,
and an analyst's client encodes new rows for prediction with the very code that encoded the data.

Raw columns are arrays of numbers, of strings, or of Python objects (str, int, float, bool, None).
A missing cell is one of the words in MISSING, None, or NaN; a word that the owner declared as a
category or label value is that value and not missing. What cells are compared by: cells.py.

Fixed point. With step = linf/4095 an encoded entry x is stored as the integer trunc(x/step).
13 bits with the sign leave headroom to sum the products with a quantised derivative in int32.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.datasets.cells import (
    KEYS,
    MISSING,
    CompareBy,
    Floats,
    as_digit,
    canonical_text,
    parse_number,
    parse_numbers,
    shown,
    texts,
)
from service.datasets.report import Seen, Tally
from service.datasets.schema import (
    OTHER,
    BinaryLabel,
    CategoricalColumn,
    Label,
    NumericColumn,
    NumericLabel,
    Schema,
    UnboundedColumn,
    UnboundedLabel,
)

LINF_UNITS = 4095

_NEEDS_FILL = "the cell is missing; declare `fill` for this column to accept missing cells"
_NO_LABEL = "the label is missing"
_ABSENT = -1  # the code of a missing cell; all codes of values are >= 0


class EncodeError(ValueError):
    """A cell that cannot be encoded. `row` is a 0-based position in the columns handed in."""

    def __init__(self, row: int | None, column: str, reason: str) -> None:
        super().__init__(row, column, reason)
        self.row, self.column, self.reason = row, column, reason


# --- columns -------------------------------------------------------------------------------------


def _numbers(
    name: str, values: NDArray[Any], fill: float | None, seen: Seen, refusal: str = _NEEDS_FILL
) -> Floats:
    """A numeric column as finite float64, missing cells filled or refused."""
    if values.dtype.kind in "biuf":
        numbers = values.astype(np.float64)
    else:
        cells = texts(values)
        parsed = parse_numbers(cells)
        if parsed is None:  # True is 1 here as in a boolean array, and so is the text "true"
            parsed = parse_numbers(list(map(as_digit, cells)))
        if parsed is None:
            row = next(i for i, c in enumerate(cells) if parse_number(as_digit(c)) is None)
            raise EncodeError(row, name, f"not a number: {shown(cells[row])}")
        numbers = parsed
    if not np.isfinite(numbers).all():
        if (infinite := np.isinf(numbers)).any():
            raise EncodeError(int(infinite.argmax()), name, "the number is not finite")
        missing = np.isnan(numbers)
        if fill is None:
            raise EncodeError(int(missing.argmax()), name, refusal)
        numbers[missing] = fill
        seen.filled += int(missing.sum())
    return numbers


def _codes(
    values: NDArray[Any], compare_by: CompareBy, code: Callable[[str], int]
) -> NDArray[np.int64]:
    """code(what it is compared by) of every cell, computed once per distinct cell."""
    key = KEYS[compare_by]
    if values.dtype.kind in "biuf":
        distinct, inverse = np.unique(values, return_inverse=True)
        table = np.array([code(key(v)) for v in distinct], dtype=np.int64)
        return table[inverse]
    # by spelling True is not 1, but a dictionary takes them for one
    cells = texts(values) if compare_by == "spelling" else values.tolist()
    codes = {cell: code(key(cell)) for cell in set(cells)}
    return np.fromiter(map(codes.__getitem__, cells), np.int64, len(cells))


def _column(columns: Mapping[str, NDArray[Any]], name: str) -> NDArray[Any]:
    if name not in columns:
        raise EncodeError(None, name, "the column is absent")
    return np.asarray(columns[name])


# --- features and labels -------------------------------------------------------------------------


def encode_features(
    schema: Schema, columns: Mapping[str, NDArray[Any]], tally: Tally | None = None
) -> Floats:
    """X [n, d]: the intercept, then the columns in declared order; see Schema.feature_names."""
    tally = tally or Tally()
    raw = [_column(columns, column.name) for column in schema.encoded]
    n = len(raw[0])
    X = np.zeros((n, schema.width))
    X[:, 0] = 1.0
    j = 1
    for column, values in zip(schema.encoded, raw, strict=True):
        if len(values) != n:
            raise EncodeError(None, column.name, "the columns differ in length")
        seen = tally.columns[column.name]
        if isinstance(column, CategoricalColumn):
            X[np.arange(n), j + _category_codes(column, values, schema.compare_by, seen)] = 1.0
            j += len(column.categories) + 1
        else:
            X[:, j] = _scaled(column, values, seen)
            j += 1
    return _clip_rows(schema, X, tally) if schema.storage == "fixed" else X


def encode_label(schema: Schema, values: NDArray[Any], tally: Tally | None = None) -> Floats:
    """y [n]: +1/-1, the class's position, the declared interval mapped to [-1, 1], or value/scale.

    A missing label is refused.
    """
    label, seen = schema.label, (tally or Tally()).columns[schema.label.name]
    y = _label(schema, label, np.asarray(values), seen)
    if not isinstance(label, NumericLabel):  # whose span was seen as it was clipped
        seen.values(y)
    return y


def _label(schema: Schema, label: Label, values: NDArray[Any], seen: Seen) -> Floats:
    if isinstance(label, NumericLabel):
        v = _numbers(label.name, values, None, seen, _NO_LABEL)
        v = _clipped(v, label.lower, label.upper, seen)
        return (2.0 * ((v - label.lower) / (label.upper - label.lower)) - 1.0).clip(-1.0, 1.0)
    if isinstance(label, UnboundedLabel):
        return _divided(label, _numbers(label.name, values, None, seen, _NO_LABEL))
    if binary := isinstance(label, BinaryLabel):
        known, refusal = (
            {label.negative: 0, label.positive: 1},
            "neither the positive nor the negative",
        )
    else:
        known, refusal = {value: i for i, value in enumerate(label.classes)}, "none of the classes"
    key = KEYS[schema.compare_by]
    keyed = {key(value): code for value, code in known.items()}
    codes = _codes(values, schema.compare_by, lambda cell: keyed.get(cell, _ABSENT))
    if (unknown := codes == _ABSENT).any():
        row = int(unknown.argmax())
        cell = canonical_text(values[row])
        if cell.lower() in MISSING:
            raise EncodeError(row, label.name, _NO_LABEL)
        raise EncodeError(row, label.name, f"{refusal}: {shown(cell)}")
    y = codes.astype(np.float64)
    return 2.0 * y - 1.0 if binary else y


def _scaled(column: NumericColumn | UnboundedColumn, values: NDArray[Any], seen: Seen) -> Floats:
    v = _numbers(column.name, values, column.fill, seen)
    if isinstance(column, UnboundedColumn):
        seen.values(v)
        return _divided(column, v)
    v = _clipped(v, column.lower, column.upper, seen)
    lower, upper = column.lower, column.upper
    if column.log1p:
        v, lower, upper = np.log1p(v), math.log1p(lower), math.log1p(upper)
    share = v - lower
    share /= upper - lower
    return np.clip(share, 0.0, 1.0, out=share)


def _clipped(v: Floats, lower: float, upper: float, seen: Seen) -> Floats:
    if len(v):
        low, high = v.min(), v.max()
        seen.span(min(max(low, lower), upper), min(max(high, lower), upper))
        if low < lower or high > upper:  # else there is nothing to clip, as in most blocks
            seen.clipped += int(((v < lower) | (v > upper)).sum())
            return v.clip(lower, upper)
    return v


def _divided(declared: UnboundedColumn | UnboundedLabel, v: Floats) -> Floats:
    with np.errstate(over="ignore"):
        v = v / declared.scale
    if (infinite := np.isinf(v)).any():
        raise EncodeError(int(infinite.argmax()), declared.name, "value/scale is not finite")
    return v


def _category_codes(
    column: CategoricalColumn, values: NDArray[Any], compare_by: CompareBy, seen: Seen
) -> NDArray[np.int64]:
    key, other = KEYS[compare_by], len(column.categories)
    index = {key(value): i for i, value in enumerate((*column.categories, OTHER))}

    def code(cell: str) -> int:
        return index.get(cell, _ABSENT if cell.lower() in MISSING else other)

    codes = _codes(values, compare_by, code)
    seen.other += int((codes == other).sum())
    if (absent := codes == _ABSENT).any():
        if column.fill is None:
            raise EncodeError(int(absent.argmax()), column.name, _NEEDS_FILL)
        seen.filled += int(absent.sum())
        codes[absent] = index[key(column.fill)]
    seen.values(codes)
    return codes


def _clip_rows(schema: Schema, X: Floats, tally: Tally) -> Floats:
    """Scale by 1/sqrt(blocks), clip entries to linf, rescale rows to l2; in place.

    In floating point, so good for accuracy only; the guarantee comes from `quantise`.
    """
    X /= math.sqrt(schema.blocks)
    clipped = np.zeros(len(X), dtype=bool)
    if schema.linf_bound < 1 / math.sqrt(schema.blocks):
        clipped = X.max(axis=1) > schema.linf_bound  # none is negative
    np.clip(X, -schema.linf_bound, schema.linf_bound, out=X)
    norms = np.sqrt(np.einsum("ij,ij->i", X, X))
    long = norms > schema.l2_bound
    # without a smaller bound, a row is longer than 1 by rounding alone
    tally.rows_clipped += int((clipped | (norms > schema.l2_bound * (1 + 1e-9))).sum())
    if long.any():
        X[long] *= (schema.l2_bound / norms[long])[:, None]
    return X


def decode_point(schema: Schema, x: Sequence[float]) -> list[float]:
    """A point among encoded rows in the columns' own units, the intercept left out: a number for a
    numeric column (within its bounds), a share in [0, 1] for each category. Norm bounds that clipped
    rows are not undone."""
    scale = math.sqrt(schema.blocks) if schema.storage == "fixed" else 1.0
    entries = iter(x[1:])
    point: list[float] = []
    for column in schema.encoded:
        if isinstance(column, UnboundedColumn):
            value = next(entries) * column.scale
            point.append(min(max(value, -sys.float_info.max), sys.float_info.max))
            continue
        lower, upper = 0.0, 1.0
        back: Callable[[float], float] = float
        if isinstance(column, NumericColumn):
            lower, upper = column.lower, column.upper
            if column.log1p:
                lower, upper, back = math.log1p(lower), math.log1p(upper), math.expm1
        width = len(column.categories) + 1 if isinstance(column, CategoricalColumn) else 1
        for _ in range(width):
            share = min(max(next(entries) * scale, 0.0), 1.0)
            point.append(back(min(lower + share * (upper - lower), upper)))
    return point


# --- fixed point ---------------------------------------------------------------------------------


def feature_step(schema: Schema) -> float:
    """The value of one unit of a stored entry."""
    return schema.linf_bound / LINF_UNITS


def l2_units(schema: Schema) -> int:
    """The l2 bound of a stored row, in units: an integer L with L * step <= l2, exactly.

    The quotient is rational, as a rounded one could reach the next integer. It is also at most
    sqrt(blocks) * 4095, which no row can exceed: so L^2 fits int64 however small the declared linf.
    """
    attainable = math.isqrt(schema.blocks * LINF_UNITS**2)
    declared = Fraction(schema.l2_bound) / Fraction(feature_step(schema))
    return min(math.floor(declared), attainable)


def quantise(schema: Schema, X: Floats) -> NDArray[np.int16]:
    """The stored rows Z [n, d]: integers with |z| <= 4095 and sum z^2 <= l2_units^2 in every row.

    Formal guarantee. These two bounds hold for *every* finite input, however it was encoded:
    the sensitivity of every noisy sum over stored rows is derived from them, so privacy rests on
    the loop below and on nothing in floating point before it. Both are tested on the integers that
    are stored: |z| <= 4095 after the cast, and the sum of their squares, which is exact since
    d * 4095^2 <= 1e5 * 1.7e7 < 2^53. A row leaves the loop only by passing.

    Termination. A failing row has S > L^2, so f = min(1, L/sqrt(S)) * (1 - 2^-40) < 1, and for an
    integer 1 <= |z| <= 4095 the product |z| f is below |z| in float64 too; truncation then lowers
    every nonzero |z| by at least one. The zero row passes.
    """
    if not np.isfinite(X).all():
        raise ValueError("only finite rows can be stored")
    limit = l2_units(schema)
    with np.errstate(over="ignore"):  # an infinite quotient is clipped like any other
        scaled = X / feature_step(schema)
    np.clip(scaled, -LINF_UNITS, LINF_UNITS, out=scaled)
    Z = scaled.astype(np.int16)  # the cast truncates towards zero
    rows = np.arange(len(Z))
    while True:
        squares = _sums_of_squares(Z[rows] if len(rows) < len(Z) else Z)
        failing = squares > limit**2
        if not failing.any():
            break
        rows, squares = rows[failing], squares[failing]
        f = np.minimum(1.0, limit / np.sqrt(squares.astype(np.float64))) * (1.0 - 2.0**-40)
        Z[rows] = (Z[rows] * f[:, None]).astype(np.int16)
    if Z.size and max(int(Z.max()), -int(Z.min())) > LINF_UNITS:
        raise AssertionError("an entry left the fixed-point range")
    return Z


def _sums_of_squares(Z: NDArray[np.int16]) -> NDArray[np.int64]:
    # float64 adds integers below 2^53 exactly, in any order, and several times as fast as int64
    wide = Z.astype(np.float64)
    return np.asarray(np.einsum("ij,ij->i", wide, wide), dtype=np.int64)


# --- rows as mappings ----------------------------------------------------------------------------


def columns_from_rows(
    schema: Schema, rows: Sequence[Mapping[str, object]]
) -> dict[str, NDArray[Any]]:
    """The columns in use from rows given as mappings, for prediction.

    An absent key is a missing cell. The label and ignored columns may be there and are left out;
    any other name is refused, since it is most likely a misspelt column.
    """
    known = {column.name for column in schema.columns} | {schema.label.name}
    for i, row in enumerate(rows):
        if unknown := row.keys() - known:
            raise EncodeError(i, min(unknown), "the schema has no such column")
    columns: dict[str, NDArray[Any]] = {}
    for column in schema.encoded:
        cells = np.empty(len(rows), dtype=object)
        for i, row in enumerate(rows):
            cells[i] = row.get(column.name)
            if not isinstance(cells[i], (str, int, float, np.generic, type(None))):
                raise EncodeError(i, column.name, "cells are strings or numbers")
        columns[column.name] = cells
    return columns
