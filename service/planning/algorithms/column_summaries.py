"""Summaries: what columns look like, from tables of noisy counts.

**Problem.** What the job's `summaries` ask of columns, by their names, and of the label: counts by
category or class, histograms. Nothing is fitted.

**Schedule.** Every summary is made of tables (service/planning/tables.py); all tables leave together,
once, over all rows. What is told (shares, intervals) is a function of them:
service/planning/estimates.py.

**Sensitivity.** Neighbours replace one record. tables.py; each summary has the same part of it,
squared in l2: with m of them noise is sqrt(m) times that of one, and m times that with delta = 0.

**Proof.** One release over all rows; all else is post-processing. Which cells a column has is said by
the schema, never by rows.
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from service.errors import PlanRefused
from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Prediction, rounded
from service.planning.estimates import SummarySchedule
from service.planning.lattice import target
from service.planning.needs import Needs
from service.planning.spec import Facts, JobSpec
from service.planning.summaries import ColumnFacts, CountsAsked, HistogramAsked
from service.planning.tables import (
    LABEL,
    Bins,
    Categories,
    Classes,
    Crossed,
    calibrate_counts,
)

NAME = "column-summaries"


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    confidence: float = Field(
        default=0.95, ge=0.5, le=0.999, description="Of each interval, by itself."
    )


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    goal, n = target(spec, facts), facts.rows
    tables = [list(tables_of(asked, facts)) for asked in spec.summaries]
    part = Fraction(1, len(tables))
    shares = [part / len(own) for own in tables for _ in own]
    counts = calibrate_counts(goal, 0, n, [one for own in tables for one in own], shares)
    lattice = counts.lattice
    noise = max(lattice.deviation(table) for table in range(len(lattice.sizes))) / n
    return Draft(
        dimension=sum(lattice.sizes),
        schedule=SummarySchedule(counts=(counts,), confidence=parameters.confidence),
        lattice=lattice,
        release=lattice.release(),
        prediction=Prediction(
            theorem="the standard deviation of the noise in a share of the rows, at most",
            excess_risk=rounded(noise),
            noise_squared=rounded(sum(lattice.sizes) * noise**2),
            paper_noise=0.0,
            our_noise=rounded(noise),
        ),
        gradients=n * len(lattice.sizes),
    )


def tables_of(asked: Any, facts: Facts) -> Iterator[Any]:
    """The tables that a summary is made of."""
    column = column_of(asked.column, facts)
    match asked:
        case CountsAsked():
            cells = _cells(column)
            yield (
                cells
                if asked.by is None
                else Crossed(first=_cells(column_of(asked.by, facts)), second=cells)
            )
        case HistogramAsked():
            yield bins(column, asked, asked.bins)


def column_of(name: str | None, facts: Facts) -> ColumnFacts:
    """The column of this name, or the label."""
    for column in facts.described:
        if column.name == name or (name is None and column.position == LABEL):
            return column
    if name is not None:
        raise PlanRefused(
            f"no column in use is called {name[:64]!r}; the dataset's schema names those there are."
        )
    kind = facts.label
    return ColumnFacts(
        name="", kind=kind, position=LABEL, cells=facts.classes or 2, low=-1.0, high=1.0
    )


def _cells(column: ColumnFacts) -> Categories | Classes:
    if column.kind in ("numeric", "unbounded"):
        raise PlanRefused(
            f"{_named(column)} holds numbers, which are not counted one by one; ask a histogram."
        )
    if column.position == LABEL:
        return Classes(cells=column.cells)
    return Categories(column=column.position, cells=column.cells)


def bins(column: ColumnFacts, asked: Any, cells: int) -> Bins:
    """Of a numeric column's declared range, or of one that is given where there is none."""
    if column.kind in ("categorical", "binary"):
        raise PlanRefused(f"{_named(column)} holds no numbers; ask its counts.")
    given = asked.lower, asked.upper
    if column.kind == "numeric":
        if given != (None, None):
            raise PlanRefused(
                f"{_named(column)} has declared bounds, and they are used; leave lower and upper out."
            )
        return Bins(column=column.position, low=column.low, high=column.high, cells=cells)
    lower, upper = given
    if lower is None or upper is None or not lower < upper:
        raise PlanRefused(
            f"{_named(column)} has no declared bounds; set lower and upper, with lower the smaller: "
            "what lies outside is counted apart. They must not come from the data."
        )
    return Bins(
        column=column.position,
        low=lower / column.scale,
        high=upper / column.scale,
        cells=cells,
        open=True,
    )


def _named(column: ColumnFacts) -> str:
    return "the label" if column.position == LABEL else f"column {column.name[:64]!r}"


ALGORITHM = Algorithm(
    name=NAME,
    title="Summaries of columns: counts and histograms",
    paper=papers.MECHANISMS,
    algorithm="the Gaussian or Laplace mechanism on counts of disjoint cells",
    theorem="3.6 and A.1",
    problem="counts by category, histograms of numbers, marginals of the label",
    cost="one noisy vector over all rows: the price of a single release",
    needs=Needs(sets=("all",), summaries=True),
    parameters=Parameters,
    schedule=SummarySchedule,
    plan=plan,
    examples=({"summaries": ["counts"]},),
    own_objective=True,
)
