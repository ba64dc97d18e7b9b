"""What a job's summaries told, in the owner's words and units: a function of the Plan, the public
schema and the vector that a worker released. Every shape that it may have is written down here."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveFloat

from service.datasets.schema import Schema
from service.jobs.columns import declared, decoder, names_of
from service.planning.estimates import SummarySchedule, Told, tables
from service.planning.plan import Plan
from service.planning.summaries import CountsAsked, HistogramAsked


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


class Summary(_Closed):
    kind: Literal["counts", "histogram"]
    column: str
    by: str | None
    confidence: PositiveFloat
    noise: NonNegativeFloat
    cells: list[Cell]


def summaries_of(plan: Plan, schema: Schema, vector: Sequence[float]) -> list[Summary]:
    schedule = plan.schedule
    assert isinstance(schedule, SummarySchedule)
    (counts,) = schedule.counts
    told = iter(
        tables(counts.lattice, counts.stop - counts.start, np.array(vector), schedule.confidence)
    )
    return [_summary(asked, schema, told) for asked in plan.spec.summaries]


def _summary(asked: Any, schema: Schema, told: Iterator[Told]) -> Summary:
    table = next(told)
    labels = _categories(asked, schema) if isinstance(asked, CountsAsked) else _edges(asked, schema)
    counts, variance = table.counts()
    cells = [
        Cell(**vars(share), **label, count=float(count))
        for share, label, count in zip(table.shares(), labels, counts, strict=True)
    ]
    return Summary(
        kind=asked.kind,
        column=declared(schema, asked.column).name,
        by=asked.by if isinstance(asked, CountsAsked) else None,
        confidence=table.confidence,
        noise=float(np.sqrt(variance)),
        cells=cells,
    )


def _categories(asked: CountsAsked, schema: Schema) -> list[dict[str, Any]]:
    names = names_of(declared(schema, asked.column))
    others = [None] if asked.by is None else names_of(declared(schema, asked.by))
    return [_label(name=name, by=other) for other in others for name in names]


def _edges(asked: HistogramAsked, schema: Schema) -> list[dict[str, Any]]:
    shares = [i / asked.bins for i in range(asked.bins + 1)]
    if asked.lower is None or asked.upper is None:
        edges: list[float | None] = list(map(decoder(declared(schema, asked.column)), shares))
    else:
        inner = [asked.lower + share * (asked.upper - asked.lower) for share in shares]
        edges = [None, *inner, None]
    return [_label(lower=a, upper=b) for a, b in pairwise(edges)]


def _label(**known: Any) -> dict[str, Any]:
    return dict.fromkeys(("name", "by", "lower", "upper")) | known
