"""Summaries: what columns look like, from tables of noisy counts and sums.

**Problem.** What the job's `summaries` ask of columns, by their names, and of the label: counts by
category or class, histograms, quantiles, means and variances, correlations, bounds. Nothing is fitted.

**Schedule.** Every summary is made of tables (service/planning/tables.py); all tables leave together,
once, over all rows. Where a mean is asked of a column without a range, the first release has how many
records are of each size, and a second one the moments of values clipped to the range that these say.
What is told (shares, intervals) is a function of both: service/planning/estimates.py. A bound r on the
k-th moment in the place of a range: values are clipped at C, whose bias is at most
r^k/((k - 1) C^(k-1)), for |E X - E clip(X)| <= E (|X| - C)+ = int_C^oo P(|X| > t) dt. With noise of
quantile nu C, C = r nu^(-1/k) makes the sum of both the least.

**Sensitivity.** Neighbours replace one record. tables.py; each summary has the same part of it,
squared in l2: with m of them noise is sqrt(m) times that of one, and m times that with delta = 0.

**Proof.** One or two releases over all rows, the second of which depends on the first by a range:
costs add, and its sensitivity is the same for every range. All else is post-processing. Which cells a
column has is said by the schema, never by rows.

**Errata.** LR-HT's lemma 8 puts the mean distance of the clipped average from the mean between bias
and bound; it includes sampling, and is not bounded so. The bound on the bias holds, as shown above.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from service.errors import PlanRefused
from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Prediction, rounded
from service.planning.estimates import SummarySchedule, clip_length, moment_noise
from service.planning.lattice import target
from service.planning.needs import Needs
from service.planning.releases import Sequence
from service.planning.shared.moments import part_of
from service.planning.spec import Facts, JobSpec
from service.planning.summaries import (
    BoundsAsked,
    ColumnFacts,
    CorrelationsAsked,
    CountsAsked,
    HistogramAsked,
    MeanAsked,
    QuantilesAsked,
)
from service.planning.tables import (
    LABEL,
    Bins,
    Categories,
    Classes,
    Counts,
    Crossed,
    Magnitudes,
    Moments,
    Products,
    Table,
    calibrate_counts,
)

NAME = "column-summaries"
RANGE_SHARE = Fraction(1, 5)  # of what a mean may spend, for a range of its own
COARSE, FINE, BOUND_CELLS = 16, 256, 64


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    confidence: float = Field(
        default=0.95, ge=0.5, le=0.999, description="Of each interval, by itself."
    )


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    goal, n = target(spec, facts), facts.rows
    first: list[tuple[Table, Fraction]] = []
    later: list[tuple[Table, Fraction]] = []
    for asked in spec.summaries:
        tables, part = list(tables_of(asked, facts)), Fraction(1, len(spec.summaries))
        if isinstance(asked, MeanAsked) and isinstance(tables[0], Magnitudes):
            first.append((tables[0], part * RANGE_SHARE))
            later.append((Moments(column=tables[0].column), part * (1 - RANGE_SHARE)))
        else:
            first += [(table, part / len(tables)) for table in tables]
    now = 1 - sum(share for _, share in later)
    counts = [_calibrated(part_of(goal, float(now)) if later else goal, n, first)]
    if later:
        left = replace(goal, units=goal.units - goal.cost(counts[0].lattice.release()))
        counts.append(_calibrated(left, n, later))
    counts[0] = _clipped(spec, facts, counts[0], parameters.confidence)
    releases = tuple(each.lattice.release() for each in counts)
    noise = max(map(_noise, counts)) / n
    sizes = [size for each in counts for size in each.lattice.sizes]
    return Draft(
        dimension=sum(sizes),
        schedule=SummarySchedule(counts=tuple(counts), confidence=parameters.confidence),
        lattice=counts[-1].lattice,
        release=releases[0] if len(releases) == 1 else Sequence(parts=releases),
        prediction=Prediction(
            theorem="the noise's standard deviation in a share of the rows, or of half a range",
            excess_risk=rounded(noise),
            noise_squared=rounded(sum(sizes) * noise**2),
            paper_noise=0.0,
            our_noise=rounded(noise),
        ),
        gradients=n * len(sizes),
    )


def _calibrated(goal: Any, n: int, tables: list[tuple[Table, Fraction]]) -> Counts:
    whole = sum(share for _, share in tables)
    return calibrate_counts(goal, 0, n, [t for t, _ in tables], [s / whole for _, s in tables])


def _noise(counts: Counts) -> float:
    """Of a count, or of half a range."""
    return max(
        counts.lattice.deviation(number) / table.largest
        for number, table in enumerate(counts.tables)
    )


def _clipped(spec: JobSpec, facts: Facts, counts: Counts, confidence: float) -> Counts:
    """With the range of each mean that has a bound on a moment: it follows from the noise."""
    tables, number = list(counts.tables), 0
    for asked in spec.summaries:
        if isinstance(asked, MeanAsked) and asked.moment is not None:
            assert asked.moment_bound is not None
            noise = moment_noise(counts.lattice, number, facts.rows, confidence)
            scale = column_of(asked.column, facts).scale
            length = rounded(clip_length(asked.moment, asked.moment_bound / scale, noise))
            tables[number] = tables[number].model_copy(update={"low": -length, "high": length})
        number += len(list(tables_of(asked, facts)))
    return counts.model_copy(update={"tables": tuple(tables)})


def tables_of(asked: Any, facts: Facts) -> Iterator[Any]:
    """The tables of the first release that a summary is made of."""
    if isinstance(asked, CorrelationsAsked):
        yield _products(asked, facts)
        return
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
        case QuantilesAsked():
            yield bins(column, asked, COARSE)
            yield bins(column, asked, FINE)
        case BoundsAsked():
            _require_numbers(column)
            yield (
                Bins(column=column.position, low=column.low, high=column.high, cells=BOUND_CELLS)
                if column.kind == "numeric"
                else Magnitudes(column=column.position)
            )
        case MeanAsked():
            yield _mean(column, asked)


def _products(asked: CorrelationsAsked, facts: Facts) -> Products:
    columns = [column_of(name, facts) for name in asked.columns]
    if len({column.position for column in columns}) < len(columns):
        raise PlanRefused("a column is correlated with others; name each once.")
    for column in columns:
        if column.kind not in ("numeric", "binary"):
            raise PlanRefused(
                f"{_named(column)} is no number with declared bounds, nor a binary label; leave it "
                "out, or declare bounds."
            )
    return Products(
        columns=tuple(column.position for column in columns),
        ranges=tuple((column.low, column.high) for column in columns),
    )


def _mean(column: ColumnFacts, asked: MeanAsked) -> Moments | Magnitudes:
    of_moment = (asked.moment, asked.moment_bound)
    if of_moment == (None, None):
        if column.kind == "unbounded" and (asked.lower, asked.upper) == (None, None):
            return Magnitudes(column=column.position)
        ranged = bins(column, asked, 1)
        return Moments(column=column.position, low=ranged.low, high=ranged.high)
    if None in of_moment:
        raise PlanRefused("a bound on a moment is moment and moment_bound; set both.")
    _require_numbers(column)
    if column.kind == "numeric" or (asked.lower, asked.upper) != (None, None):
        raise PlanRefused(
            f"{_named(column)} has a range, which bounds its mean; leave moment and moment_bound out."
        )
    return Moments(column=column.position, low=-1.0, high=1.0)


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


def _require_numbers(column: ColumnFacts) -> None:
    if column.kind in ("categorical", "binary"):
        raise PlanRefused(f"{_named(column)} holds no numbers; ask its counts.")


def bins(column: ColumnFacts, asked: Any, cells: int) -> Bins:
    """Of a numeric column's declared range, or of one that is given where there is none."""
    _require_numbers(column)
    given = asked.lower, asked.upper
    if column.kind == "numeric":
        if given != (None, None):
            raise PlanRefused(
                f"{_named(column)} has declared bounds, and they are used; leave lower and upper out."
            )
        return Bins(column=column.position, low=column.low, high=column.high, cells=cells)
    lower, upper = given
    if lower is None or upper is None or not lower / column.scale < upper / column.scale:
        raise PlanRefused(
            f"{_named(column)} has no declared bounds; set lower and upper, with lower the smaller: "
            'what lies outside is counted apart. They must not come from the data: {"kind": '
            '"bounds"} suggests some for a part of the budget.'
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
    title="Summaries of columns: counts, histograms, quantiles, means, correlations, bounds",
    paper=papers.LR_HT,
    algorithm="1, and the Gaussian or Laplace mechanism on counts of disjoint cells",
    theorem="lemma 8",
    problem="counts by category, histograms, quantiles, means and variances of columns or the label",
    cost="one noisy vector over all rows; a second one for means without a range",
    needs=Needs(sets=("all",), summaries=True),
    parameters=Parameters,
    schedule=SummarySchedule,
    plan=plan,
    examples=({"summaries": ["counts"]},),
    own_objective=True,
)
