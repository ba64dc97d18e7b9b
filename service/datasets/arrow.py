"""Columns of Arrow, which reads CSV, Parquet and its own files, as blocks of cells.

Numbers mean what `parse_number` says in every format: Arrow converts a column where it can, and what
it does not take, or might take for more than we do, is parsed cell by cell.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from service.datasets.cells import MISSING, Floats, parse_number, parse_numbers
from service.datasets.read import Block, ParseError, block_rows, check_names
from service.datasets.schema import Schema

_NUMERIC = ("numeric", "unbounded")
_TEXTUAL = ("categorical", "binary")
# one thread, so that a file's processor time is its own, and an allocator that gives memory back;
# before the first array, for which the other one would reserve a gigabyte of addresses
pa.set_cpu_count(1)
pa.set_io_thread_count(1)
pa.set_memory_pool(pa.system_memory_pool())
_MISSING = pa.array(sorted(MISSING))


def numeric(schema: Schema) -> set[str]:
    """The columns in which every cell is a number, or missing."""
    return {c.name for c in (*schema.columns, schema.label) if c.kind in _NUMERIC}


def says_nan(values: pa.Array) -> bool:
    """Whether a number is NaN that is not missing."""
    return bool(pc.any(pc.is_nan(values)).as_py())


def blocks(batches: Iterator[pa.RecordBatch], names: list[str], schema: Schema) -> Iterator[Block]:
    """Batches of whatever length, cut into blocks."""
    check_names(names, schema)
    size = block_rows(schema, len(names))
    # there "03" may not be "3"
    textual = {c.name for c in (*schema.columns, schema.label) if c.kind in _TEXTUAL}
    for batch in batches:
        for start in range(0, batch.num_rows, size):
            part = batch.slice(start, size)
            columns = zip(names, part.columns, strict=True)
            yield {name: cells(name, values, name in textual) for name, values in columns}


def cells(name: str, values: pa.Array, textual: bool) -> NDArray[Any]:
    """One column: numbers, booleans, or objects (texts, and None where a cell is missing)."""
    if isinstance(values, pa.DictionaryArray):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_decimal(kind):  # by its digits, as in a CSV
        values, kind = values.cast(pa.string()), pa.string()
    if pa.types.is_null(kind):
        return np.full(len(values), np.nan)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        if not values.null_count:
            return _array(values)
        if textual or pa.types.is_boolean(kind):
            return _objects(values)
        return _array(values.cast(pa.float64(), safe=False))
    if pa.types.is_floating(kind):
        return _array(values)
    if pa.types.is_string_view(kind):
        values, kind = values.cast(pa.large_string()), pa.large_string()
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        numbers = None if textual else _numbers(values)
        return _objects(values) if numbers is None else numbers
    raise ParseError(
        None, name, f"cells are numbers, booleans or texts, not {kind}; write them as one of these"
    )


def _objects(values: pa.Array) -> NDArray[Any]:
    """As Python objects, one for each distinct value."""
    coded = values.dictionary_encode(null_encoding="encode")
    distinct = np.empty(len(coded.dictionary), object)
    distinct[:] = coded.dictionary.to_pylist()
    cells: NDArray[Any] = distinct[coded.indices.to_numpy()]
    return cells


def _numbers(values: pa.Array) -> Floats | None:
    """parse_number of every cell, or None if one of them spells no number."""
    found = _converted(values)
    if found is None:
        found = _converted(_without_missing(values))
    if found is None:
        return parse_numbers(["" if cell is None else cell for cell in values.to_pylist()])
    numbers = _array(found)
    suspects = (values[int(i)].as_py() for i in np.flatnonzero(np.isnan(numbers)))
    # Arrow takes "nan(1)" for a number, too
    if any(cell is not None and parse_number(cell) is None for cell in suspects):
        return None
    return numbers


def _converted(values: pa.Array) -> pa.Array | None:
    try:
        return values.cast(pa.float64())
    except pa.ArrowInvalid:
        return None


def _without_missing(values: pa.Array) -> pa.Array:
    stripped = pc.ascii_trim_whitespace(values)
    missing = pc.is_in(pc.ascii_lower(stripped), value_set=_MISSING)
    return pc.if_else(missing, pa.scalar(None, values.type), stripped)


def _array(values: pa.Array) -> NDArray[Any]:
    found: NDArray[Any] = values.to_numpy(zero_copy_only=False)
    return found


def native(raw: IO[bytes]) -> pa.NativeFile:
    """As Arrow reads files, but that it does not close them."""
    return pa.PythonFile(_Lent(raw), "r")


class _Lent:
    closed = False

    def __init__(self, raw: IO[bytes]) -> None:
        self.read, self.seek, self.tell = raw.read, raw.seek, raw.tell

    def close(self) -> None:
        pass


@contextmanager
def refusals(format_: str) -> Iterator[None]:
    """What Arrow raises of a file is a refusal of it; what the disk or the memory did is not."""
    try:
        yield
    except pa.ArrowMemoryError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        said = " ".join(str(error).split())[:200]
        raise ParseError(None, None, f"not readable as {format_}: {said}") from None
