"""What every reader of a data format shares: the blocks it yields, its refusals, its checks."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any, Literal

from numpy.typing import NDArray

from service.datasets.cells import shown
from service.datasets.schema import IgnoredColumn, Schema

BLOCK_ROWS = 8192
BLOCK_CELLS = 1 << 18

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
        super().__init__(f"reading the file exceeds the limit on {limit}")
        self.limit = limit


@dataclass(frozen=True)
class Format:
    """A file format in which owners may send their data."""

    name: str
    summary: str
    """What such a file holds, for owners: the API's description quotes it."""
    media_types: tuple[str, ...]
    """The content types that are accepted for it; clients send the first."""
    suffixes: tuple[str, ...]
    """How the names of such files end, in lower case and with the dot."""
    read: Callable[[IO[bytes], Schema, int], Iterator[Block]]
    """read(file, schema, memory_bytes) yields blocks of at most `block_rows` rows whose names passed
    `check_names`. It refuses by ParseError, or by IngestLimitError if it would need more memory than
    that; whatever the file contains, it runs no code from it."""


def check_names(names: Sequence[str], schema: Schema) -> None:
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
            some = ", ".join(shown(name) for name in sorted(found)[:20])
            raise ParseError(None, min(found)[:40], f"{reason}: {some}")


def block_rows(schema: Schema, file_columns: int) -> int:
    """How many rows a block has, so that neither it nor its encoding takes much memory."""
    return max(1, min(BLOCK_ROWS, BLOCK_CELLS // max(schema.width, file_columns)))
