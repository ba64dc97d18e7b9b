"""What ingestion did to the rows: how much was clipped, filled, unknown or constant, exactly.

These are facts about the rows and not privatised, so they are for the owner, who knows the rows, and
for nobody else: not in the database, but beside the arrays, with which they are deleted.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from math import inf
from typing import Any

from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field


class ColumnReport(BaseModel):
    """Counts of cells of one column, or of the label."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    clipped: int = Field(description="Beyond the declared bounds, and moved to them.")
    filled: int = Field(description="Missing, and replaced by the declared fill.")
    other: int = Field(description="None of the declared categories.")
    constant: bool = Field(description="Every row has the same value once it is encoded.")


class Report(BaseModel):
    """What ingestion did to a file: exact, and for the owner alone."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int
    rows_clipped: int = Field(description="Shortened to the declared l2 or linf.")
    columns: list[ColumnReport] = Field(description="Those of which there is something to say.")

    def beyond(self, share: float) -> tuple[str | None, str] | None:
        """The column and the reason, if more than this share of its cells, or of rows, was changed."""
        most = share * self.rows
        counts = [
            (one.name, {"clipped": one.clipped, "missing": one.filled, "of no category": one.other})
            for one in self.columns
        ]
        for name, found in [*counts, (None, {"shortened to l2 or linf": self.rows_clipped})]:
            for what, count in found.items():
                if count > most:
                    of = "rows" if name is None else "cells"
                    return name, f"{count} of {self.rows} {of} are {what}: above {share:g} of them"
        return None


@dataclass
class Seen:
    """What was seen of one column so far."""

    clipped: int = 0
    filled: int = 0
    other: int = 0
    low: float = inf
    high: float = -inf

    def values(self, encoded: NDArray[Any]) -> None:
        if len(encoded):
            self.span(encoded.min(), encoded.max())

    def span(self, low: float, high: float) -> None:
        self.low, self.high = min(self.low, low), max(self.high, high)

    @property
    def constant(self) -> bool:
        return self.low == self.high


@dataclass
class Tally:
    """Of a whole file, block after block."""

    rows: int = 0
    rows_clipped: int = 0
    columns: dict[str, Seen] = field(default_factory=lambda: defaultdict(Seen))

    def report(self) -> Report:
        return Report(
            rows=self.rows,
            rows_clipped=self.rows_clipped,
            columns=[
                ColumnReport(
                    name=name,
                    clipped=seen.clipped,
                    filled=seen.filled,
                    other=seen.other,
                    constant=seen.constant,
                )
                for name, seen in self.columns.items()
                if seen.clipped or seen.filled or seen.other or seen.constant
            ],
        )
