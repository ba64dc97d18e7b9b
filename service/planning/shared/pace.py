"""How long a step takes: what decides between all rows and a drawn batch, and how many steps there is
time for.

A Plan must not depend on the machine that makes it, so these are constants: what `make bench-pace`
printed on one thread of an AMD EPYC of 2024. A row that is drawn costs more than one that is passed
over, for its position is drawn by a cipher and it lies where nobody has looked before.
"""

from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

from service.planning.spec import Facts

STEP_SECONDS = 1e-4  # of any step, besides its rows: noise, projection, the interpreter
SECONDS_MAX = 6.0  # of the rows and steps of a default schedule, for up to MANY rows
MANY = 10**6  # beyond, it grows with the root of the rows: in a fixed time no bound would fall
PASSES_MIN, PASSES_MAX = 32, 512  # passes over the rows that it may take in any case, and at most


class _Row(NamedTuple):
    """Nanoseconds of a row, and of each of its columns."""

    row: float
    column: float


_PASSED = {"fixed": _Row(1.5, 0.084), "float64": _Row(12.6, 0.595)}
_DRAWN = {"fixed": _Row(31.0, 0.166), "float64": _Row(42.3, 0.759)}


@dataclass(frozen=True)
class Pace:
    passed: float  # seconds of a row in a step over all rows
    drawn: float  # and in a drawn batch

    @classmethod
    def of(cls, facts: Facts) -> "Pace":
        passed, drawn = (
            (kind[facts.storage].row + kind[facts.storage].column * facts.columns) * 1e-9
            for kind in (_PASSED, _DRAWN)
        )
        return cls(passed, drawn)

    def seconds(self, steps: int, batch: int, rows: int) -> float:
        """Of so many steps over `batch` of `rows` rows each."""
        return steps * (STEP_SECONDS + batch * (self.passed if batch == rows else self.drawn))

    def affords(self, steps: int, batch: int, rows: int) -> bool:
        """Whether a default schedule may have so many steps."""
        longer = sqrt(max(1.0, rows / MANY))
        within = max(PASSES_MIN * rows * self.passed, SECONDS_MAX * longer)
        few = steps * batch <= PASSES_MAX * rows
        return few and self.seconds(steps, batch, rows) <= within
