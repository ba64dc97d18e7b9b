"""Tables: exact sums in which what one record adds is known beforehand, as a Plan names them.

A `Table` is a function of one row and its label, written down as plain data, and the sum of its values
over a range of rows. Those of `Cells` put every record in exactly one cell. The worker computes them
(workers/tables.py); a run says which of the Plan's releases it wants and never what is counted.

**Sensitivity.** Neighbours replace one record. Of one table, in units of its entries, replacing it
moves the sum by at most sqrt(`squared`) in l2 and `absolute` in l1:

    cells    one count falls by 1 and another rises by 1: sqrt(2), and 2
    moments  with a = |t - t'|, b = |t + t'|, a + b <= 2B: in l2 a sqrt(1 + (b/B)^2), which is largest
             at a = 2B, for (2 - p)^2 (1 + p^2) <= 4 on [0, 2]; in l1 a (1 + b/B), largest at a = 3B/2.
             Rounding t^2/B moves the difference by at most 1: 2B + 1, and 9B/4 + 1
    products see `Products`

Several tables that leave together, times integer weights a, are one vector: squares and absolute
values add, D^2 = sum a^2 squared (rounded up to an integer D) in l2, D = sum a absolute in l1. One
Gaussian or Laplace release of sensitivity D over these rows. A finer lattice than the counts' own
costs nothing: the exact sum stays a vector of integers.

To add a table: its class here and in `Table` below, and its function in workers/tables.py.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import isqrt
from typing import Annotated, ClassVar, Literal, Self

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
_PRECISION, _WEIGHT_MIN = 2**16, 2**10  # of an entry's unit: what rounding weights down may cost
MOMENT_UNITS = 2**15  # B: of half a range
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


class Magnitudes(BaseTable):
    """How many records have a value of each sign and size: a cell for every power of two from 2^least
    to 2^most, and one in the middle for what is smaller. In stored units, for what has no range."""

    kind: Literal["magnitudes"] = "magnitudes"
    column: NonNegativeInt
    least: int = -40
    most: int = 60

    @property
    def size(self) -> int:
        return 2 * (self.most - self.least + 1) + 1

    def edges(self, cell: int) -> tuple[float, float]:
        """Between which values it is."""
        middle = self.size // 2
        if cell == middle:
            return -(2.0**self.least), 2.0**self.least
        away = abs(cell - middle) - 1
        near, far = 2.0 ** (self.least + away), 2.0 ** (self.least + away + 1)
        return (near, far) if cell > middle else (-far, -near)


class Moments(BaseTable):
    """The sums of t and of t^2/B, rounded, over the records, for t the value's place in [low, high] as
    an integer from -B to B: values beyond are clipped. Without a range, one is given that follows from
    what was released before."""

    kind: Literal["moments"] = "moments"
    squared: ClassVar[int] = (2 * MOMENT_UNITS + 1) ** 2
    absolute: ClassVar[int] = 9 * MOMENT_UNITS // 4 + 1
    largest: ClassVar[int] = MOMENT_UNITS
    column: NonNegativeInt
    low: float | None = None
    high: float | None = None

    @property
    def size(self) -> int:
        return 2


class Products(BaseTable):
    """The sums over the records of p places t, as in `Moments`; of their squares t^2/B; and, times
    less than sqrt(2), of the products of two of them over B, rounded.

    With z = t/B in [-1, 1]^p before and w after, c = <z, w>: in l2 a record moves places by |z - w|^2
    and the others by no more than the matrix zz' - ww', |z|^4 + |w|^4 - 2c^2, together by at most
    2p - 2c + 2p^2 - 2c^2 <= 2 (p + 1/2)^2, at c = -1/2. In l1 a place and its square move by 9/4, and
    products by what is convex in every entry of z and of w, so largest at signs, where a pair differs
    if one of the two changed: twice the most that a cut of p has, floor(p^2/4). Rounding moves an
    entry by at most 1.
    """

    kind: Literal["products"] = "products"
    BESIDE: ClassVar[int] = 46340  # over 2^15: below sqrt(2)
    largest: ClassVar[int] = 2 * MOMENT_UNITS
    columns: Annotated[tuple[NonNegativeInt, ...], Field(min_length=2, max_length=32)]
    ranges: tuple[tuple[float, float], ...]

    @model_validator(mode="after")
    def _each_column_has_a_range(self) -> Self:
        if len(self.ranges) != len(self.columns):
            raise ValueError("each column has a range")
        return self

    @property
    def size(self) -> int:
        p = len(self.columns)
        return p + p * (p + 1) // 2

    @property
    def squared(self) -> int:  # type: ignore[override]
        p = len(self.columns)
        return (_root(((2 * p + 1) * MOMENT_UNITS) ** 2 // 2 + 1) + _root(p * (p + 1) // 2)) ** 2

    @property
    def absolute(self) -> int:  # type: ignore[override]
        p, B = len(self.columns), MOMENT_UNITS
        beside = 2 * (p * p // 4) * B * self.BESIDE // 2**15 + 1
        return p * (9 * B // 4 + 1) + beside + p * (p - 1) // 2


Cells = Annotated[Categories | Classes | Bins, Field(discriminator="kind")]
Table = Annotated[
    Categories
    | Classes
    | Bins
    | Crossed
    | Magnitudes
    | Moments
    | Products
    | Confusion
    | Scores
    | Losses
    | Errors
    | Below,
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
    least = [max(_PRECISION // table.largest, _WEIGHT_MIN) for table in tables]
    while any(a < b for a, b in zip(_weights(goal, tables, shares, bits), least, strict=True)):
        bits += 1
    weights = _weights(goal, tables, shares, bits)
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
