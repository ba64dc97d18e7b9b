"""What a job's summaries told, in the owner's words and units: a function of the Plan, the public
schema and the vector that a worker released. Every shape that it may have is written down here."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log1p
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, NonNegativeFloat, PositiveFloat

from service.datasets.encode import LINF_UNITS
from service.datasets.schema import (
    NumericColumn,
    NumericLabel,
    Schema,
    UnboundedColumn,
    UnboundedLabel,
)
from service.jobs.columns import Declared, declared, decoder, names_of
from service.planning.estimates import (
    Interval,
    SummarySchedule,
    Told,
    clip_bias,
    cumulative,
    ranges_for,
    releases,
)
from service.planning.plan import Plan
from service.planning.summaries import (
    BoundsAsked,
    CorrelationsAsked,
    CountsAsked,
    HistogramAsked,
    MeanAsked,
    QuantilesAsked,
)
from service.planning.tables import Bins, Magnitudes


class _Closed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Estimate(_Closed):
    """A number of the population, and the interval that holds it with the summary's confidence."""

    value: float
    low: float
    high: float


class Cell(Estimate):
    """A share of the population. Of a histogram, from `lower` up to `upper`; null: without end."""

    name: str | None
    by: str | None
    lower: float | None
    upper: float | None
    count: float


class _Summary(_Closed):
    column: str
    confidence: PositiveFloat


class CountsTold(_Summary):
    kind: Literal["counts", "histogram"]
    by: str | None
    noise: NonNegativeFloat = Field(description="The standard deviation of that in a count.")
    cells: list[Cell]


class Quantile(_Closed):
    """Null: beyond the range."""

    probability: float
    value: float
    low: float | None
    high: float | None


class QuantilesTold(_Summary):
    kind: Literal["quantiles"]
    quantiles: list[Quantile]


class MeanTold(_Summary):
    kind: Literal["mean"]
    mean: Estimate
    variance: Estimate
    lower: float = Field(description="Values were clipped to this range.")
    upper: float
    clip: Literal["declared", "given", "moment", "private"]
    log1p: bool = Field(description="All numbers are of log(1 + value), as the schema says.")
    bias: float = Field(
        description="What clipping, or the resolution of stored numbers, may add to the error of the "
        "mean; the interval is that much wider. Of a given or private range: of the clipped values."
    )


class BoundsTold(_Summary):
    kind: Literal["bounds"]
    lower: float
    upper: float
    inside: Estimate = Field(description="The share of the population between them.")


class Correlation(Estimate):
    first: str
    second: str


class CorrelationsTold(_Closed):
    kind: Literal["correlations"]
    columns: list[str]
    confidence: PositiveFloat
    pairs: list[Correlation]


Summary = Annotated[
    CountsTold | QuantilesTold | MeanTold | BoundsTold | CorrelationsTold,
    Field(discriminator="kind"),
]


@dataclass(frozen=True)
class _Source:
    """What is left of what was released, and how to read it."""

    schema: Schema
    first: Iterator[Told]
    later: Iterator[tuple[Told, Sequence[float]]]  # with its range


def summaries_of(plan: Plan, schema: Schema, vector: Sequence[float]) -> list[Summary]:
    schedule, released = plan.schedule, np.array(vector)
    assert isinstance(schedule, SummarySchedule)
    told = releases(schedule, released)
    later: list[tuple[Told, Sequence[float]]] = []
    if len(told) > 1:
        first = released[: sum(schedule.counts[0].lattice.sizes)]
        later = list(zip(told[1], ranges_for(schedule, first).tolist(), strict=True))
    source = _Source(schema, iter(told[0]), iter(later))
    return [_TELL[type(asked)](asked, source) for asked in plan.spec.summaries]


def _counts(asked: CountsAsked | HistogramAsked, source: _Source) -> CountsTold:
    told, column = next(source.first), declared(source.schema, asked.column)
    if isinstance(asked, CountsAsked):
        labels = _categories(asked, source.schema, column)
    else:
        labels = _edges(told.table, column)
    counts, variance = told.counts()
    cells = [
        Cell(**vars(share), **label, count=float(count))
        for share, label, count in zip(told.shares(), labels, counts, strict=True)
    ]
    return CountsTold(
        kind=asked.kind,
        column=column.name,
        by=asked.by if isinstance(asked, CountsAsked) else None,
        confidence=told.confidence,
        noise=float(np.sqrt(variance)),
        cells=cells,
    )


def _categories(asked: CountsAsked, schema: Schema, column: Declared) -> list[dict[str, Any]]:
    others = [None] if asked.by is None else names_of(declared(schema, asked.by))
    return [_label(name=name, by=other) for other in others for name in names_of(column)]


def _edges(table: Bins, column: Declared) -> list[dict[str, Any]]:
    place = placed(column, table.low, table.high)
    inner: list[float | None] = [place(i / table.cells) for i in range(table.cells + 1)]
    edges = [None, *inner, None] if table.open else inner
    return [_label(lower=a, upper=b) for a, b in pairwise(edges)]


def _label(**known: Any) -> dict[str, Any]:
    return dict.fromkeys(("name", "by", "lower", "upper")) | known


def _quantiles(asked: QuantilesAsked, source: _Source) -> QuantilesTold:
    coarse, fine = next(source.first), next(source.first)
    column, table = declared(source.schema, asked.column), fine.table
    shares, place = cumulative(coarse, fine), placed(column, table.low, table.high)

    def edge(cell: float) -> float:
        return place(cell / table.cells)

    found = []
    for probability in asked.probabilities:
        value, low, high = shares.at(probability)
        if not table.open:  # nothing lies beyond a declared range
            low, high = low or 0, table.cells if high is None else high
        ends = [None if end is None else edge(end) for end in (low, high)]
        found.append(
            Quantile(probability=probability, value=edge(value), low=ends[0], high=ends[1])
        )
    return QuantilesTold(
        kind="quantiles", column=column.name, confidence=fine.confidence, quantiles=found
    )


def _mean(asked: MeanAsked, source: _Source) -> MeanTold:
    told, column = next(source.first), declared(source.schema, asked.column)
    clip: Literal["declared", "given", "moment", "private"] = "declared"
    bias = 0.0
    if isinstance(told.table, Magnitudes):
        clip, (told, (low, high)) = "private", next(source.later)
    else:
        low, high = told.table.low, told.table.high
    log = isinstance(column, NumericColumn) and column.log1p
    if isinstance(column, NumericColumn | NumericLabel):
        lower, upper = (log1p(v) if log else v for v in (column.lower, column.upper))
        if isinstance(column, NumericColumn) and source.schema.storage == "fixed":
            bias = (upper - lower) / LINF_UNITS / 2  # stored numbers were truncated
    else:
        lower, upper = (placed(column, low, high)(end) for end in (0.0, 1.0))
        clip = "given" if asked.lower is not None else clip
    if asked.moment is not None and asked.moment_bound is not None:
        clip, bias = "moment", clip_bias(asked.moment, asked.moment_bound, upper)
    middle, half = (lower + upper) / 2, (upper - lower) / 2
    mean, variance = told.moments()
    return MeanTold(
        kind="mean",
        column=column.name,
        confidence=told.confidence,
        mean=_estimate(mean.mapped(middle, half, bias)),
        variance=_estimate(variance.mapped(0.0, half**2)),
        lower=lower,
        upper=upper,
        clip=clip,
        log1p=log,
        bias=bias,
    )


def _bounds(asked: BoundsAsked, source: _Source) -> BoundsTold:
    told, column = next(source.first), declared(source.schema, asked.column)
    first, last = told.inside()
    table, whole = told.table, len(told.entries)
    if isinstance(table, Magnitudes):
        low, high = table.edges(first)[0], table.edges(last)[1]
        ends = placed(column, low, high)(0.0), placed(column, low, high)(1.0)
    else:
        place = placed(column, table.low, table.high)
        ends = place(first / whole), place((last + 1) / whole)
    counts, _ = told.counts()
    few, rest = counts[first : last + 1], len(counts) - (last + 1 - first)
    variance = told.deviation**2 * len(few) * rest / len(counts)
    return BoundsTold(
        kind="bounds",
        column=column.name,
        confidence=told.confidence,
        lower=ends[0],
        upper=ends[1],
        inside=_estimate(told.share_of(float(few.sum()) if rest else told.rows, variance)),
    )


def _correlations(asked: CorrelationsAsked, source: _Source) -> CorrelationsTold:
    told, names = next(source.first), list(asked.columns)
    pairs = [
        Correlation(first=names[j], second=names[i], **vars(found))
        for (i, j), found in told.correlations().items()
    ]
    return CorrelationsTold(
        kind="correlations", columns=names, confidence=told.confidence, pairs=pairs
    )


def _estimate(interval: Interval) -> Estimate:
    return Estimate(**vars(interval))


def placed(column: Declared, low: float, high: float) -> Callable[[float], float]:
    """From a share of a range, in stored units, to the owner's; a declared one is the whole."""
    if isinstance(column, NumericColumn | NumericLabel):
        return decoder(column)
    assert isinstance(column, UnboundedColumn | UnboundedLabel)
    scale = column.scale
    return lambda share: (low + share * (high - low)) * scale


_TELL: dict[type, Callable[[Any, _Source], Any]] = {
    CountsAsked: _counts,
    HistogramAsked: _counts,
    QuantilesAsked: _quantiles,
    MeanAsked: _mean,
    BoundsAsked: _bounds,
    CorrelationsAsked: _correlations,
}
