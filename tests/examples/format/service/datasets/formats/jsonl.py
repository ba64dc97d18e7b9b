"""JSON lines: in UTF-8, one object per row, numbers and texts as they are spelled."""

import json
from collections.abc import Iterator, Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from service.datasets.cells import parse_numbers
from service.datasets.read import Block, Format, ParseError, block_rows, check_names
from service.datasets.schema import Schema

LINE_BYTES = 1 << 24
_COMPARED_AS_TEXT = ("categorical", "binary")
_WORDS = {None: "", True: "true", False: "false"}


def read(raw: IO[bytes], schema: Schema, _memory_bytes: int) -> Iterator[Block]:
    """One block of rows in memory at a time; blank lines do not count."""
    rows = _rows(raw)
    first = next(rows, {})
    header = list(first)
    check_names(header, schema)
    textual = {c.name for c in (*schema.columns, schema.label) if c.kind in _COMPARED_AS_TEXT}

    def column(name: str, cells: Sequence[str]) -> NDArray[Any]:
        numbers = None if name in textual else parse_numbers(cells)
        return np.array(cells, dtype=object) if numbers is None else numbers

    def blocks() -> Iterator[Block]:
        size, block = block_rows(schema, len(header)), [first]
        for number, row in enumerate(rows, start=2):
            if row.keys() != first.keys():
                raise ParseError(number, None, "other names than in the first row")
            if len(block) == size:
                yield {name: column(name, [r[name] for r in block]) for name in header}
                block = []
            block.append(row)
        yield {name: column(name, [r[name] for r in block]) for name in header}

    return blocks()


def _rows(raw: IO[bytes]) -> Iterator[dict[str, str]]:
    number = 0
    while line := raw.readline(LINE_BYTES):
        if not line.strip():
            continue
        number += 1
        try:
            pairs = json.loads(
                line, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=list
            )
            row = {name.strip(): _cell(value) for name, value in pairs}
            if not line.lstrip().startswith(b"{"):  # pairs in a list are no object
                raise ValueError
        except (ValueError, TypeError, AttributeError, RecursionError):
            reason = "a line is one JSON object of numbers, texts, true, false and null"
            raise ParseError(number, None, reason) from None
        if len(row) != len(pairs):
            raise ParseError(number, None, "a name repeats")
        yield row


def _cell(value: Any) -> str:
    """The cell as text: a number as it is spelled, so that 3 and 03 stay apart."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    raise TypeError("nested values are no cells")


FORMAT = Format(
    name="jsonl",
    summary="JSON lines in UTF-8, one object per row",
    media_types=("application/jsonl", "application/x-ndjson"),
    suffixes=(".jsonl", ".ndjson"),
    read=read,
)
