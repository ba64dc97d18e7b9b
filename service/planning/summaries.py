"""What a job may ask about a dataset besides a model: summaries of its columns, by their names."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from service.planning.kinds import Kind, Public

ASKED_MAX = 64  # summaries of one job
_OF = "A column of the schema by its name; left out: the label."


class ColumnFacts(Public):
    """How a column is stored, or the label: public, for jobs whose summaries name it."""

    name: str
    kind: Literal["numeric", "unbounded", "categorical", "binary"]
    position: NonNegativeInt = Field(
        description="Of its first entry in a stored row; 0: the label."
    )
    cells: PositiveInt = Field(default=1, description="Categories with <other>, or classes.")
    low: float = Field(default=0.0, description="The least stored value, where it has bounds.")
    high: float = Field(default=1.0, description="The largest.")
    scale: PositiveFloat = Field(
        default=1.0, description="What a stored unit is worth, if it has none."
    )


class _Summary(Kind):
    column: str | None = Field(default=None, min_length=1, max_length=200, description=_OF)

    def names(self) -> tuple[str | None, ...]:
        """Of the columns that it is about; None for the label."""
        return (self.column,)


class _Ranged(_Summary):
    """Of numbers: on the declared range, or, for a column without one, on a range that is given."""

    lower: float | None = Field(default=None, description="For a column without bounds.")
    upper: float | None = Field(default=None, description="For a column without bounds.")


class CountsAsked(_Summary):
    """How many records have each category of a column, or each value of a label; with `by`, each pair
    of a value of this and one of another."""

    kind: Literal["counts"] = "counts"
    by: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Another column, or the label's name.",
    )

    def names(self) -> tuple[str | None, ...]:
        return (self.column,) if self.by is None else (self.column, self.by)


class HistogramAsked(_Ranged):
    """How many records have a number in each part of the range, all of one width."""

    kind: Literal["histogram"] = "histogram"
    bins: int = Field(default=20, ge=2, le=1000)


class QuantilesAsked(_Ranged):
    """The numbers below which these shares lie, to a 256th of the range."""

    kind: Literal["quantiles"] = "quantiles"
    probabilities: tuple[Annotated[float, Field(gt=0, lt=1)], ...] = Field(
        default=(0.25, 0.5, 0.75), min_length=1, max_length=99
    )


class MeanAsked(_Ranged):
    """Mean and variance of a number. Where no range is declared or given, values are clipped: at a
    length that follows from a bound on a moment (Lowy and Razaviyayn 2023, algorithm 1), which the
    interval then includes, or to a range that is chosen from the data for a part of the budget."""

    kind: Literal["mean"] = "mean"
    moment: float | None = Field(
        default=None, ge=1.5, le=100, description="k, with moment_bound r: E|X|^k is at most r^k."
    )
    moment_bound: float | None = Field(default=None, gt=0, description="r, in the column's units.")


class BoundsAsked(_Summary):
    """A lower and an upper bound to declare for a column: the ends of the outermost parts of a
    logarithmic grid (or of 64 parts of its range) that certainly hold records."""

    kind: Literal["bounds"] = "bounds"


class CorrelationsAsked(Kind):
    """The correlation of every pair of some columns that have declared bounds, the label among them if
    it is named."""

    kind: Literal["correlations"] = "correlations"
    columns: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(
        min_length=2, max_length=32
    )

    def names(self) -> tuple[str | None, ...]:
        return self.columns


Summary = Annotated[
    CorrelationsAsked | CountsAsked | HistogramAsked | QuantilesAsked | MeanAsked | BoundsAsked,
    Field(discriminator="kind"),
]
