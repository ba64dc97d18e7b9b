"""Tables of released models: exact sums of functions of one row, its label and a model's scores of it.

Models are public: they were released and paid for before, and weights that a run made of what was let
out are as public. So a table is a function of one row and its label, as those of tables.py are, and
what it says of sensitivity holds for any weights, whatever floats they make of a row:

    Cells    a record is in exactly one cell (clamped as an integer): sqrt(2) in l2, 2 in l1
    Values   a record adds `size` integers in [0, UNITS] each, so replacing it moves each by at most
             UNITS: sqrt(size) UNITS in l2, size UNITS in l1

A score is a margin <w, x>, one per class for softmax. `model` says which of those that a job names.
"""

from math import isfinite
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, NonNegativeInt, PositiveInt

from service.planning.kinds import Public
from service.planning.table import BaseTable

Floats = NDArray[np.float64]
UNITS = 4096  # of a value between 0 and 1
LOG_LOSS_MAX = 6.0  # where it is clipped: a chance of 1/400
MARGIN_MAX = 6.0  # beyond it a score is in an outermost bin: the same chance


class Groups(Public):
    """The categories of a column, <other> last: disjoint parts of the rows."""

    column: PositiveInt
    cells: PositiveInt


class _Scored(BaseTable):
    model: NonNegativeInt


class _Grouped(_Scored):
    groups: Groups | None = None

    @property
    def parts(self) -> int:
        return 1 if self.groups is None else self.groups.cells

    @property
    def within(self) -> int:
        """Cells of one group."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        return self.parts * self.within


class Confusion(_Grouped):
    """How many records of each class (slowest: group, then what is predicted) are called which."""

    kind: Literal["confusion"] = "confusion"
    classes: int = Field(ge=2)
    threshold: float = Field(default=0.0, description="The margin above which a row is positive.")

    @property
    def within(self) -> int:
        return self.classes**2


class Below(_Grouped):
    """How many records have a label above the prediction, and how many one at or below it."""

    kind: Literal["below"] = "below"

    @property
    def within(self) -> int:
        return 2


class Scores(_Scored):
    """How many records of each label (fastest, negative first) have a score in each bin."""

    kind: Literal["scores"] = "scores"
    bins: PositiveInt

    @property
    def size(self) -> int:
        return 2 * self.bins


class _Values(_Scored):
    largest: ClassVar[int] = UNITS

    @property
    def absolute(self) -> int:  # type: ignore[override]
        return self.size * UNITS

    @property
    def squared(self) -> int:  # type: ignore[override]
        return self.size * UNITS**2


class Losses(_Values):
    """Of each record's Brier score and clipped log-loss, as shares of the largest: the values and
    their squares."""

    kind: Literal["losses"] = "losses"

    @property
    def size(self) -> int:
        return 4


class Errors(_Values):
    """Of each record's error e, half of what lies between prediction and label: |e|, e^2 and e^4; of
    its label y in [-1, 1]: (y + 1)/2 and y^2."""

    kind: Literal["errors"] = "errors"

    @property
    def size(self) -> int:
        return 5


def bin_edges(weights: Floats, bins: int, l2: float | None) -> Floats:
    """Where bins of margins end, but for the last: of one width, up to the largest margin that a row
    can have at these weights, or that matters."""
    largest = MARGIN_MAX
    if l2 is not None and isfinite(length := float(np.linalg.norm(weights))) and length > 0:
        largest = min(MARGIN_MAX, l2 * length)
    return np.linspace(-largest, largest, bins + 1)[1:-1]
