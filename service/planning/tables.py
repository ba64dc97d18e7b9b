"""Tables: exact sums in which what one record adds is known beforehand, as a Plan names them.

A `Table` is a function of one row and its label, written down as plain data, and the sum of its values
over a range of rows. Those of `Cells` put every record in exactly one cell. The worker computes them
(workers/tables.py); a run says which of the Plan's releases it wants and never what is counted.

**Sensitivity.** Neighbours replace one record. Of one table, in units of its entries, replacing it
moves the sum by at most sqrt(`squared`) in l2 and `absolute` in l1:

    cells    one count falls by 1 and another rises by 1: sqrt(2), and 2
    moments  see `Moments`

Several tables that leave together, times integer weights a, are one vector: squares and absolute
values add, D^2 = sum a^2 squared (rounded up to an integer D) in l2, D = sum a absolute in l1. One
Gaussian or Laplace release of sensitivity D over these rows. A finer lattice than the counts' own
costs nothing: the exact sum stays a vector of integers.

To add a table: its class here and in `Table` below, and its function in workers/tables.py.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from service.errors import PlanRefused
from service.planning.kinds import Public
from service.planning.lattice import (
    BITS_MAX,
    CountLattice,
    Target,
    largest_sensitivity,
    norm_of,
)
from service.planning.scored import Below, Confusion, Errors, Losses, Scores
from service.planning.table import BaseTable

ENTRIES_MAX = 2**20  # of all that leaves together: a card holds a number for each
_PRECISION = 2**16  # the least weight: what rounding a sensitivity up to an integer may cost
LABEL = 0  # the column that stands for the label: stored rows have the constant there


class Categories(BaseTable):
    """How many records have each category of a column, <other> last."""

    kind: Literal["categories"] = "categories"
    column: PositiveInt
    cells: PositiveInt

    @property
    def size(self) -> int:
        return self.cells


class Classes(BaseTable):
    """How many records have each value of a binary label (negative first) or each class."""

    kind: Literal["classes"] = "classes"
    cells: PositiveInt

    @property
    def size(self) -> int:
        return self.cells


class Bins(BaseTable):
    """How many records have a value in each of `cells` parts of [low, high] of one width; with `open`,
    a first and a last cell hold what lies outside, and else the outermost parts do. In stored units:
    a share of the row's constant for fixed rows, what is stored for others and for labels."""

    kind: Literal["bins"] = "bins"
    column: NonNegativeInt
    low: float
    high: float
    cells: PositiveInt
    open: bool = False

    @property
    def size(self) -> int:
        return self.cells + 2 * self.open


class Crossed(BaseTable):
    """How many records are in each pair of cells of two tables, the second's moving fastest."""

    kind: Literal["crossed"] = "crossed"
    first: "Cells"
    second: "Cells"

    @property
    def size(self) -> int:
        return self.first.size * self.second.size


Cells = Annotated[Categories | Classes | Bins, Field(discriminator="kind")]
Table = Annotated[
    Categories | Classes | Bins | Crossed | Confusion | Scores | Losses | Errors | Below,
    Field(discriminator="kind"),
]
Crossed.model_rebuild()


class Counts(Public):
    """One release of tables over rows [start, stop): their entries, one table after the other."""

    start: NonNegativeInt
    stop: PositiveInt
    tables: Annotated[tuple[Table, ...], Field(min_length=1)]
    lattice: CountLattice

    @model_validator(mode="after")
    def _lattice_is_of_the_tables(self) -> Self:
        lattice = self.lattice
        if lattice.sizes != tuple(table.size for table in self.tables):
            raise ValueError("the lattice of counts is one of other tables")
        if (lattice.noise == "laplace") != (lattice.norm == "l1"):
            raise ValueError("sensitivity is measured in the norm of the noise")
        if lattice.sensitivity_units != sensitivity(self.tables, lattice.weights, lattice.norm):
            raise ValueError("the lattice of counts has another sensitivity than its tables")
        if not self.start < self.stop:
            raise ValueError("counts are over some rows")
        return self


def sensitivity(tables: Sequence[Table], weights: Sequence[int], norm: str) -> int:
    """In lattice units, of these tables times their weights, under replacement of one record."""
    pairs = list(zip(tables, weights, strict=True))
    if norm == "l1":
        return sum(weight * table.absolute for table, weight in pairs)
    return _root(sum(weight**2 * table.squared for table, weight in pairs))


def calibrate_counts(
    goal: Target, start: int, stop: int, tables: Sequence[Table], shares: Sequence[Fraction]
) -> Counts:
    """The release of these tables, over these rows, that costs at most what the job asks. Each table
    has its share of the sensitivity, squared in l2; shares add up to 1 at most."""
    entries = sum(table.size for table in tables)
    if entries > ENTRIES_MAX:
        raise PlanRefused(f"{entries} numbers in one release; the most is {ENTRIES_MAX}.")
    norm, bits = norm_of(goal), 1
    while min(weights := _weights(goal, tables, shares, bits)) < _PRECISION:
        bits += 1
    largest = max(a * table.largest for a, table in zip(weights, tables, strict=True))
    if bits > BITS_MAX or (stop - start) * largest >= 2**62:
        raise PlanRefused(
            "the noise that this privacy needs is outside what 64-bit lattices hold; ask a larger "
            "epsilon, or fewer summaries."
        )
    lattice = CountLattice(
        noise="gaussian" if norm == "l2" else "laplace",
        bits=bits,
        norm=norm,
        sizes=tuple(table.size for table in tables),
        weights=weights,
        sensitivity_units=sensitivity(tables, weights, norm),
    )
    return Counts(start=start, stop=stop, tables=tuple(tables), lattice=lattice)


def _weights(
    goal: Target, tables: Sequence[Table], shares: Sequence[Fraction], bits: int
) -> tuple[int, ...]:
    """The largest: sum a^2 squared is at most the square of the sensitivity that fits, or sum a
    absolute that itself."""
    fits, pairs = largest_sensitivity(goal, 1, bits), list(zip(tables, shares, strict=True))
    if norm_of(goal) == "l1":
        return tuple(int(share * fits / table.absolute) for table, share in pairs)
    return tuple(isqrt(int(share * fits**2 / table.squared)) for table, share in pairs)


def _root(square: int) -> int:
    """Rounded up."""
    return isqrt(square - 1) + 1
