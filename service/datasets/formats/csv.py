"""Comma-separated values: UTF-8 with a header, cells as they are spelled; also compressed."""

import csv
import io
from collections.abc import Iterator
from typing import IO, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from service.datasets import arrow
from service.datasets.cells import MISSING
from service.datasets.read import Block, Format, ParseError
from service.datasets.schema import Schema

BLOCK_BYTES = 1 << 22
CELL_BYTES = 1 << 16
# as they are usually spelled; others are texts first
_MISSING = sorted({spelled for m in MISSING for spelled in (m, m.upper(), m.title(), "NaN")})
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


def read(raw: IO[bytes], schema: Schema, _memory_bytes: int) -> Iterator[Block]:
    """A few megabytes in memory at a time; blank lines do not count."""
    with arrow.refusals("CSV"):
        header, more = _header(raw)
    return arrow.blocks(_batches(raw, header, schema) if more else iter(()), header, schema)


class _Counted:
    """A file that counts the quotes that were read of it."""

    def __init__(self, file: pa.NativeFile) -> None:
        self._file = file
        self.quotes = 0

    def read(self, size: int = -1) -> bytes:
        found: bytes = self._file.read(size)
        self.quotes += found.count(b'"')
        return found

    def close(self) -> None:
        self._file.close()

    @property
    def closed(self) -> bool:
        return bool(self._file.closed)


def _opened(raw: IO[bytes]) -> pa.NativeFile:
    """From the start, decompressed if it is compressed, whatever its name."""
    raw.seek(0)
    magic = raw.read(4)
    raw.seek(0)
    file = arrow.native(raw)
    for start, compression in _COMPRESSED.items():
        if magic.startswith(start):
            return pa.CompressedInputStream(file, compression)
    return file


def _header(raw: IO[bytes]) -> tuple[list[str], bool]:
    """The columns' names, and whether anything follows."""
    rows = _rows(raw)
    header = [name.strip() for name in next(rows, [])]
    return header, any(rows)


def _rows(raw: IO[bytes]) -> Iterator[list[str]]:
    """As Python reads them: slowly, and without mercy on quotes."""
    text = io.TextIOWrapper(cast(IO[bytes], _opened(raw)), "utf-8-sig", newline="")
    reader = csv.reader(text, strict=True)
    try:
        yield from reader
    except UnicodeDecodeError:
        raise ParseError(None, None, "the file is not UTF-8 text") from None
    except csv.Error as refused:
        raise ParseError(None, None, f"line {reader.line_num}: {refused}") from None
    finally:
        text.detach()


def _batches(raw: IO[bytes], header: list[str], schema: Schema) -> Iterator[pa.RecordBatch]:
    """Numbers where numbers are declared, as Arrow reads them, which is quickest. From a cell on that
    it does not take, or takes for more than we do, cells are texts, and parsed as such."""
    done = 0
    with arrow.refusals("CSV"):
        try:
            for batch in _opened_as(raw, header, arrow.numeric(schema)):
                if any(pa.types.is_floating(c.type) and arrow.says_nan(c) for c in batch.columns):
                    break
                yield batch
                done += batch.num_rows
            else:
                return
        except pa.ArrowInvalid:
            pass  # once more, as texts: if it is no CSV, that is said then
        for batch in _opened_as(raw, header, set()):
            past = min(done, batch.num_rows)
            done -= past
            yield batch.slice(past)


def _opened_as(raw: IO[bytes], header: list[str], numeric: set[str]) -> Iterator[pa.RecordBatch]:
    ragged: list[arrow_csv.InvalidRow] = []

    def refuse(row: arrow_csv.InvalidRow) -> str:
        ragged.append(row)
        return "error"

    file = _Counted(_opened(raw))
    types = [pa.float64() if name in numeric else pa.string() for name in header]
    positions = [str(i) for i in range(len(header))]  # names may be repeated
    try:
        for batch in arrow_csv.open_csv(
            pa.PythonFile(file, "r"),
            arrow_csv.ReadOptions(
                use_threads=False,
                block_size=BLOCK_BYTES,
                column_names=positions,
                skip_rows_after_names=1,
            ),
            arrow_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=refuse),
            arrow_csv.ConvertOptions(
                column_types=dict(zip(positions, types, strict=True)), null_values=_MISSING
            ),
        ):
            _check_lengths(header, batch)
            yield batch
    except pa.ArrowInvalid:
        if not ragged:
            raise
        row = ragged[0]
        reason = f"{row.actual_columns} cells where the header has {row.expected_columns}"
        raise ParseError(row.number - 1, None, reason) from None
    if file.quotes % 2:  # Arrow closes a quote where the file ends
        for _ in _rows(raw):
            pass


def _check_lengths(header: list[str], batch: pa.RecordBatch) -> None:
    """A quote that was not closed would swallow the rows that follow."""
    for name, column in zip(header, batch.columns, strict=True):
        if pa.types.is_string(column.type):
            longest = pc.max(pc.binary_length(column)).as_py() or 0
            if longest > CELL_BYTES:
                raise ParseError(None, name, f"a cell of more than {CELL_BYTES:,} bytes")


FORMAT = Format(
    name="csv",
    summary="CSV in UTF-8 with a header, as it is or compressed by gzip or Zstandard",
    media_types=("text/csv", "application/gzip", "application/zstd"),
    suffixes=(".csv", ".csv.gz", ".csv.zst"),
    read=read,
)
