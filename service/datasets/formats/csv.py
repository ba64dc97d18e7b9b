"""Comma-separated values: UTF-8 with a header, numbers and texts as they are spelled."""

import csv
import io
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from service.datasets.cells import parse_numbers
from service.datasets.read import Block, Format, ParseError, block_rows, check_names
from service.datasets.schema import Schema

FIELD_CHARACTERS = 1 << 16
_COMPARED_AS_TEXT = ("categorical", "binary")


def read(raw: IO[bytes], schema: Schema, _memory_bytes: int) -> Iterator[Block]:
    """One block of rows in memory at a time; blank lines do not count."""
    csv.field_size_limit(FIELD_CHARACTERS)
    text = io.TextIOWrapper(raw, "utf-8-sig", newline="")
    reader = csv.reader(text, strict=True)
    header = [name.strip() for row in _rows(reader, 1) for name in row]
    check_names(header, schema)
    # Where text is compared, "03" is not "3"; all other columns are parsed once, here, for both
    # the encoding and the MAC.
    textual = {c.name for c in (*schema.columns, schema.label) if c.kind in _COMPARED_AS_TEXT}

    def column(name: str, cells: Sequence[str]) -> NDArray[Any]:
        numbers = None if name in textual else parse_numbers(cells)
        return np.array(cells, dtype=object) if numbers is None else numbers

    def blocks() -> Iterator[Block]:
        seen, width = 0, len(header)
        with text:
            while lines := _rows(reader, block_rows(schema, width)):
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


def _rows(reader: Any, count: int) -> list[list[str]]:
    try:
        return list(islice(reader, count))
    except UnicodeDecodeError:
        raise ParseError(None, None, "the file is not UTF-8 text") from None
    except csv.Error as refused:
        raise ParseError(None, None, f"line {reader.line_num}: {refused}") from None


FORMAT = Format(
    name="csv",
    summary="CSV in UTF-8 with a header",
    media_types=("text/csv",),
    suffixes=(".csv",),
    read=read,
)
