"""Tables of any library as columns: by what they offer, so none of them is needed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epsilond.encode import EncodeError, Encoder

Columns = dict[str, NDArray[Any]]


def columns_of(table: Any) -> Columns | None:
    """The columns of a pandas or polars DataFrame, an Arrow table, or a mapping of columns; None for
    what has no named columns. Missing cells are None or NaN."""
    if isinstance(table, Mapping):
        return {str(name): _array(values) for name, values in table.items()}
    if hasattr(table, "get_columns"):  # polars
        return {column.name: _listed(column, column.null_count()) for column in table.get_columns()}
    if hasattr(table, "column_names") and hasattr(table, "column"):  # Arrow
        return {name: _arrow(table.column(name)) for name in table.column_names}
    if hasattr(table, "iloc") and hasattr(table, "columns"):  # pandas
        if not table.columns.is_unique:
            raise ValueError("the table repeats a column's name; rename one of them")
        return {str(name): _pandas(table[name]) for name in table.columns}
    return None


def _array(values: Any) -> NDArray[Any]:
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        return values
    cells = np.empty(len(values), dtype=object)
    cells[:] = list(values)
    return cells


def _pandas(series: Any) -> NDArray[Any]:
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "biuf":
        return np.asarray(series)
    missing = series.isna()
    cells = _array(series.astype(object).tolist())
    cells[np.asarray(missing, dtype=bool)] = None
    return cells


def _arrow(column: Any) -> NDArray[Any]:
    if hasattr(column, "combine_chunks"):
        column = column.combine_chunks()
    return _listed(column, column.null_count)


def _listed(column: Any, nulls: int) -> NDArray[Any]:
    if not nulls:
        try:
            values = column.to_numpy()
        except (ValueError, TypeError):  # Arrow's texts have no numbers to point at
            values = None
        if values is not None and values.dtype.kind in "biuf":
            return np.asarray(values)
    return _array(column.to_list() if hasattr(column, "to_list") else column.to_pylist())


def for_prediction(encoder: Encoder, rows: Any) -> Columns:
    """The columns in use of a table, of rows as mappings, or of an array in declared order.

    An absent column is missing cells. The label and ignored columns may be there and are left out; any
    other name is refused, since it is most likely a misspelt column.
    """
    columns = columns_of(rows)
    if columns is None and _is_rows(rows):
        columns = _from_rows(encoder, rows)
    elif columns is None:
        columns = _from_array(encoder, rows)
    if unknown := columns.keys() - encoder.known:
        raise EncodeError(None, min(unknown), "the schema has no such column")
    n = len(next(iter(columns.values()), ()))
    empty = np.full(n, None, dtype=object)
    used = {name: columns.get(name, empty) for name in encoder.names}
    for name, values in used.items():
        if len(values) != n or values.ndim != 1:
            raise EncodeError(None, name, "the columns differ in length")
        if values.dtype.kind == "O":
            _check_cells(name, values)
    return used


def _is_rows(rows: Any) -> bool:
    return isinstance(rows, Sequence) and all(isinstance(row, Mapping) for row in rows)


def _from_rows(encoder: Encoder, rows: Sequence[Mapping[str, object]]) -> Columns:
    for i, row in enumerate(rows):
        if unknown := row.keys() - encoder.known:
            raise EncodeError(i, min(unknown), "the schema has no such column")
    return {name: _array([row.get(name) for row in rows]) for name in encoder.names}


def _from_array(encoder: Encoder, rows: Any) -> Columns:
    if hasattr(rows, "toarray"):
        raise TypeError("sparse matrices are not taken; give .toarray()")
    array = np.asarray(rows)
    if array.dtype.kind == "c":
        raise ValueError("Complex data not supported")
    if array.ndim != 2:
        raise ValueError(
            f"Expected a table or a 2D array, got {array.ndim}D. Reshape your data: "
            "array.reshape(1, -1) if it is one row"
        )
    if array.shape[1] != len(encoder.names):
        raise ValueError(
            f"X has {array.shape[1]} features, but Model is expecting {len(encoder.names)} "
            f"features as input, in this order: {', '.join(encoder.names[:20])}"
        )
    return {name: _array(array[:, j]) for j, name in enumerate(encoder.names)}


def _check_cells(name: str, values: NDArray[Any]) -> None:
    for i, cell in enumerate(values):
        if not isinstance(cell, (str, int, float, np.generic, type(None))):
            raise EncodeError(i, name, f"cells are strings or numbers, not {type(cell).__name__}")
