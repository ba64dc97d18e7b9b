"""Read an owner's CSV or NPZ file into blocks of columns, trusting nothing about it."""

import csv
import io
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import IO, Any, Literal

import numpy as np
from numpy.typing import NDArray

from service.datasets import encode
from service.datasets.schema import IgnoredColumn, Schema

BLOCK_ROWS = 8192
BLOCK_CELLS = 1 << 17
FIELD_CHARACTERS = 1 << 16

_COMPARED_AS_TEXT = ("categorical", "binary")
_UNREADABLE = (
    ValueError,  # object arrays, malformed headers
    SyntaxError,
    TypeError,
    EOFError,
    KeyError,
    NotImplementedError,  # an unknown compression method
    RuntimeError,  # an encrypted member
    zipfile.BadZipFile,
    zlib.error,
)

Block = Mapping[str, NDArray[Any]]
"""Some consecutive rows of a file, by column."""


class ParseError(Exception):
    """The file does not fit the schema. For the owner alone: it quotes the data.

    `row` counts data rows from 1; row and column are None where the whole file is meant.
    """

    def __init__(self, row: int | None, column: str | None, reason: str) -> None:
        super().__init__(row, column, reason)
        self.row, self.column, self.reason = row, column, reason


class IngestLimitError(Exception):
    """The file needs more than it was granted of `limit`."""

    def __init__(self, limit: Literal["rows", "cpu", "memory", "disk", "time"]) -> None:
        super().__init__(limit)
        self.limit = limit


def read_csv(raw: IO[bytes], schema: Schema) -> Iterator[Block]:
    """UTF-8 with a header; one block of rows in memory at a time; blank lines do not count."""
    csv.field_size_limit(FIELD_CHARACTERS)
    text = io.TextIOWrapper(raw, "utf-8-sig", newline="")
    reader = csv.reader(text, strict=True)
    header = [name.strip() for row in _csv_rows(reader, 1) for name in row]
    _check_names(header, schema)
    # Where text is compared, "03" is not "3"; all other columns are parsed once, here, for both
    # the encoding and the MAC.
    textual = {c.name for c in (*schema.columns, schema.label) if c.kind in _COMPARED_AS_TEXT}

    def column(name: str, cells: Sequence[str]) -> NDArray[Any]:
        numbers = None if name in textual else encode.parse_numbers(cells)
        return np.array(cells, dtype=object) if numbers is None else numbers

    def blocks() -> Iterator[Block]:
        seen, width = 0, len(header)
        with text:
            while lines := _csv_rows(reader, _block_rows(schema, width)):
                rows = [row for row in lines if row]
                if set(map(len, rows)) - {width}:
                    i = next(i for i, row in enumerate(rows) if len(row) != width)
                    reason = f"{len(rows[i])} cells where the header has {width}"
                    raise ParseError(seen + i + 1, None, reason)
                seen += len(rows)
                if rows:
                    cells = zip(header, zip(*rows, strict=True), strict=True)
                    yield {name: column(name, values) for name, values in cells}

    return blocks()


def _csv_rows(reader: Any, count: int) -> list[list[str]]:
    try:
        return list(islice(reader, count))
    except UnicodeDecodeError:
        raise ParseError(None, None, "the file is not UTF-8 text") from None
    except csv.Error as refused:
        raise ParseError(None, None, f"line {reader.line_num}: {refused}") from None


def read_npz(raw: IO[bytes], schema: Schema, memory_bytes: int) -> Iterator[Block]:
    """One 1-D array per column; or X [n, columns] in the schema's order beside y [n]."""
    arrays = _npz_arrays(raw, memory_bytes)
    if arrays.keys() == {"X", "y"} and arrays["X"].ndim == 2:
        X, names = arrays["X"], [column.name for column in schema.columns]
        if X.dtype.kind not in "biuf" or X.shape[1] != len(names):
            raise ParseError(None, "X", f"X must be numeric with {len(names)} columns")
        columns = {name: X[:, j] for j, name in enumerate(names)} | {schema.label.name: arrays["y"]}
    else:
        columns = arrays
    _check_names(list(columns), schema)
    n = len(next(iter(columns.values())))
    for name, values in columns.items():
        if values.dtype.kind not in "biufU":
            raise ParseError(None, name, "arrays hold numbers, booleans or strings")
        if values.shape != (n,):
            raise ParseError(None, name, "arrays are 1-D and of equal length")
    size = _block_rows(schema, len(columns))
    return ({k: v[a : a + size] for k, v in columns.items()} for a in range(0, n, size))


def _npz_arrays(raw: IO[bytes], memory_bytes: int) -> dict[str, NDArray[Any]]:
    """All arrays of the archive, refused by its directory if unpacking them would be too much.

    A directory that lies gains nothing: zipfile reads no further than the size it states.
    """
    name = None
    try:
        directory = zipfile.ZipFile(raw).infolist()
        if sum(member.file_size for member in directory) > memory_bytes:
            raise IngestLimitError("memory")
        members = [member.filename for member in directory]
        if len(set(members)) != len(members) or not all(m.endswith(".npy") for m in members):
            raise ParseError(None, None, "an npz file holds distinct .npy members only")
        raw.seek(0)
        arrays = {}
        with np.load(raw, allow_pickle=False) as archive:
            for name in archive.files:
                arrays[name.strip()] = archive[name]
                if arrays[name.strip()].ndim == 0:
                    raise ParseError(None, name, "arrays are 1-D and of equal length")
        return arrays
    except _UNREADABLE:
        raise ParseError(None, name, "not a readable npz of plain arrays (no objects)") from None


def _check_names(names: Sequence[str], schema: Schema) -> None:
    """The file has exactly the declared columns, ignored ones optionally."""
    declared = {column.name for column in schema.columns} | {schema.label.name}
    ignored = {c.name for c in schema.columns if isinstance(c, IgnoredColumn)}
    listings = {
        "the file repeats the columns": {k for k, count in Counter(names).items() if count > 1},
        "the file has columns that the schema does not name; declare them ignored to leave them "
        "out": set(names) - declared,
        "the file lacks the columns": declared - ignored - set(names),
    }
    for reason, found in listings.items():
        if found:
            some = ", ".join(encode.shown(name) for name in sorted(found)[:20])
            raise ParseError(None, min(found)[:40], f"{reason}: {some}")


def _block_rows(schema: Schema, file_columns: int) -> int:
    return max(1, min(BLOCK_ROWS, BLOCK_CELLS // max(schema.width, file_columns)))
