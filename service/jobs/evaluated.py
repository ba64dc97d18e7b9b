"""What an evaluation tells of a model: metrics and curves with their intervals, from the noisy
tables of the Plan, the schema's names and nothing else."""

from collections.abc import Callable, Iterator
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from service.datasets.schema import (
    OTHER,
    CategoricalColumn,
    CategoricalLabel,
    NumericLabel,
    Schema,
)
from service.planning.intervals import (
    Estimate,
    Noisy,
    Z,
    area_under,
    average,
    difference,
    mean_of,
    plainly,
    quotient,
)
from service.planning.lattice import CountLattice
from service.planning.plan import Plan
from service.planning.scored import (
    LOG_LOSS_MAX,
    UNITS,
    Below,
    Confusion,
    Errors,
    Losses,
    Scores,
    bin_edges,
)

Floats = NDArray[np.float64]
BANDS = 10  # of chances, in a calibration curve


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Told(_Told):
    value: float
    low: float
    high: float
    confidence: float = Field(description="That the population's value lies between low and high.")


class CurvePoint(_Told):
    """Where rows whose chance is above this threshold are called positive."""

    threshold: float
    false_positive_rate: Told
    recall: Told
    precision: Told


class Band(_Told):
    """Rows whose chance lies between `above` and `up_to`: how many of them are positive."""

    above: float
    up_to: float
    share: Told = Field(description="Of the rows.")
    positive: Told


class ByClass(_Told):
    name: str
    precision: Told
    recall: Told
    f1: Told


class Group(_Told):
    """A category of the column: `gaps` are differences to all others together."""

    name: str
    share: Told = Field(description="Of the rows.")
    metrics: dict[str, Told]
    gaps: dict[str, Told]


class Evaluated(_Told):
    """One model on the rows that were held out."""

    of: str
    model_digest: str | None
    metrics: dict[str, Told]
    curve: list[CurvePoint] | None = None
    calibration: list[Band] | None = None
    classes: list[ByClass] | None = None
    groups: list[Group] | None = None


def evaluated(plan: Plan, schema: Schema, of: Floats, released: Floats) -> list[Evaluated]:
    """Of each model that the Plan names: `of` are their weights, one model after the other."""
    (counts,) = plan.counted
    weights = of.reshape(len(plan.spec.named), -1)
    parts: list[dict[str, Any]] = [{"metrics": {}} for _ in plan.spec.named]
    values = np.split(released, np.cumsum(counts.lattice.sizes)[:-1])
    for number, (table, own) in enumerate(zip(counts.tables, values, strict=True)):
        assert isinstance(table, Confusion | Scores | Losses | Errors | Below)
        world = _World(plan, schema, counts.lattice, number, weights[table.model])
        told = _TELLS[type(table)](world, table, own)
        parts[table.model]["metrics"] |= told.pop("metrics")
        parts[table.model] |= told
    return [
        Evaluated(of=named.job, model_digest=named.digest, **part)
        for named, part in zip(plan.spec.named, parts, strict=True)
    ]


class _World:
    """What is public about a table."""

    def __init__(
        self, plan: Plan, schema: Schema, lattice: CountLattice, number: int, weights: Floats
    ) -> None:
        self.plan, self.schema, self.weights = plan, schema, weights
        self.rows, self.noise = plan.facts.held_out, lattice.noise
        self.deviation, self.z = lattice.deviation(number), Z[lattice.noise]
        self.by = None if plan.spec.evaluate is None else plan.spec.evaluate.by

    def cells(self, counts: Floats) -> Noisy:
        """Every row is in one of them."""
        return Noisy(counts, self.deviation, self.noise).centred(self.rows)

    def mean(self, total: float, squares: float) -> Estimate:
        """Of a value between 0 and 1. Values were rounded down, by half a unit on average."""
        half, deviation = 0.5 / UNITS, self.deviation / UNITS
        found = mean_of(total / UNITS, squares / UNITS, self.rows, deviation, self.noise)
        moved = Estimate(found.value + half, found.low, found.high + 2 * half)
        return moved.within(0.0, 1.0)


def told(estimate: Estimate) -> Told:
    return Told.model_validate(estimate.view())


def _all_told(estimates: dict[str, Estimate]) -> dict[str, Told]:
    return {name: told(estimate) for name, estimate in estimates.items()}


# --- what is predicted, by label ---


def _confusion(world: _World, table: Confusion, counts: Floats) -> dict[str, Any]:
    cells, k = world.cells(counts), table.classes
    metrics, by_class = _rates(cells, np.ones(len(counts)), k)
    found: dict[str, Any] = {"metrics": _all_told(metrics)}
    label = world.schema.label
    if isinstance(label, CategoricalLabel):
        found["classes"] = [
            ByClass(name=name, **_all_told(rates))
            for name, rates in zip(label.classes, by_class, strict=True)
        ]
    if table.groups is not None:
        found["groups"] = [
            _group(name, cells, mask, lambda of: _of_group(cells, of, k))
            for name, mask in _groups(world, table)
        ]
    return found


def _rates(
    cells: Noisy, mask: Floats, k: int
) -> tuple[dict[str, Estimate], list[dict[str, Estimate]]]:
    """Of the records in these cells: the metrics of all, and those of each class."""
    called, label = np.divmod(np.arange(len(mask)) % k**2, k)
    by_class = []
    for c in range(k):
        right = mask * (called == c) * (label == c)
        by_class.append(
            {
                "precision": cells.ratio(right, mask * (called == c)),
                "recall": cells.ratio(right, mask * (label == c)),
                "f1": cells.ratio(
                    2 * right, mask * (called == c) + mask * (label == c), weighs=2.0
                ),
            }
        )
    recalls = average([rates["recall"] for rates in by_class])
    metrics = {
        "accuracy": cells.ratio(mask * (called == label), mask),
        "balanced_accuracy": recalls,
    }
    if k == 2:
        return metrics | by_class[1], by_class
    whole = {
        "precision": average([rates["precision"] for rates in by_class]),
        "recall": recalls,
        "f1": plainly([rates["f1"] for rates in by_class]),
    }
    return metrics | whole, by_class


# --- by group ---


def _groups(world: _World, table: Confusion | Below) -> Iterator[tuple[str, Floats]]:
    """The categories of the column, and which cells are theirs."""
    assert table.groups is not None
    column = next(
        c for c in world.schema.encoded if isinstance(c, CategoricalColumn) and c.name == world.by
    )
    for number, name in enumerate((*column.categories, OTHER)):
        yield name, (np.arange(table.size) // table.within == number).astype(np.float64)


def _group(
    name: str, cells: Noisy, mask: Floats, rates: Callable[[Floats], dict[str, Estimate]]
) -> Group:
    """Groups are disjoint parts of the rows, so a group and the rest are independent."""
    own, rest = rates(mask), rates(1 - mask)
    gaps = {metric: difference(value, rest[metric]) for metric, value in own.items()}
    share = cells.ratio(mask, np.ones(len(mask)))
    return Group(name=name, share=told(share), metrics=_all_told(own), gaps=_all_told(gaps))


def _of_group(cells: Noisy, mask: Floats, k: int) -> dict[str, Estimate]:
    metrics, _ = _rates(cells, mask, k)
    if k == 2:
        called = np.arange(len(mask)) % k**2 // k
        metrics["called_positive"] = cells.ratio(mask * (called == 1), mask)
    return metrics


# --- scores, losses, errors ---


def _scores(world: _World, table: Scores, counts: Floats) -> dict[str, Any]:
    cells, edges = world.cells(counts), bin_edges(world.weights, table.bins, world.plan.facts.l2)
    positive = (np.arange(len(counts)) % 2).astype(np.float64)
    chances = [0.0, *(1 / (1 + np.exp(-edges))).tolist(), 1.0]
    points = []
    for number, chance in enumerate(chances[1:-1]):
        above = (np.arange(len(counts)) // 2 > number).astype(np.float64)
        points.append(
            CurvePoint(
                threshold=chance,
                false_positive_rate=told(cells.ratio(above * (1 - positive), 1 - positive)),
                recall=told(cells.ratio(above * positive, positive)),
                precision=told(cells.ratio(above * positive, above)),
            )
        )
    found: dict[str, Any] = {"metrics": {"auc": told(area_under(cells))}, "curve": points}
    if world.plan.spec.loss.kind == "logistic":
        found["calibration"] = list(_bands(cells, table.bins, chances))
    return found


def _bands(cells: Noisy, bins: int, chances: list[float]) -> Iterator[Band]:
    """Bins together, so that there are a few of them."""
    of = np.arange(2 * bins) // 2
    for band in np.array_split(np.arange(bins), min(bins, BANDS)):
        within = ((of >= band[0]) & (of <= band[-1])).astype(np.float64)
        yield Band(
            above=chances[band[0]],
            up_to=chances[band[-1] + 1],
            share=told(cells.ratio(within, np.ones(2 * bins))),
            positive=told(cells.ratio(within * (np.arange(2 * bins) % 2), within)),
        )


def _losses(world: _World, table: Losses, sums: Floats) -> dict[str, Any]:
    brier, log_loss = world.mean(*sums[:2]), world.mean(*sums[2:])
    return {"metrics": _all_told({"brier": brier, "log_loss": log_loss.scaled(LOG_LOSS_MAX)})}


def _errors(world: _World, table: Errors, sums: Floats) -> dict[str, Any]:
    """In the label's own units; errors were halved, as shares of its range."""
    label = world.schema.label
    assert isinstance(label, NumericLabel)
    width = label.upper - label.lower
    absolute, square = world.mean(*sums[:2]), world.mean(*sums[1:3])
    rooted = Estimate(*(sqrt(max(v, 0.0)) for v in (square.value, square.low, square.high)))
    variance = _variance(world, *sums[3:])
    unexplained = quotient(square.scaled(4.0), variance)
    r2 = Estimate(1 - unexplained.value, 1 - unexplained.high, 1 - unexplained.low)
    estimates = {"mae": absolute.scaled(width), "rmse": rooted.scaled(width), "r2": r2}
    return {"metrics": _all_told(estimates)}


def _variance(world: _World, total: float, squares: float) -> Estimate:
    """Of the labels y in [-1, 1]. That of (y - m)^2 is at most (1 + |m|)^2 times their variance."""
    n, deviation = world.rows, world.deviation / UNITS / world.rows
    half = 0.5 / UNITS
    mean, of_squares = 2 * (total / UNITS / n + half) - 1, squares / UNITS / n + half
    variance = max(of_squares - mean**2, 0.0)
    drawn = (1 + abs(mean)) ** 2 * (variance + deviation) / n
    spread = world.z * sqrt(drawn + deviation**2 * (1 + 16 * mean**2)) + 5 * half
    return Estimate(variance, variance - spread, variance + spread).within(0.0, 1.0)


def _below(world: _World, table: Below, counts: Floats) -> dict[str, Any]:
    cells = world.cells(counts)
    at_most = (np.arange(len(counts)) % 2).astype(np.float64)
    covered = cells.ratio(at_most, np.ones(len(counts)))
    found: dict[str, Any] = {"metrics": {"coverage": told(covered)}}
    if table.groups is not None:
        found["groups"] = [
            _group(name, cells, mask, lambda of: {"coverage": cells.ratio(of * at_most, of)})
            for name, mask in _groups(world, table)
        ]
    return found


_TELLS: dict[type, Callable[[_World, Any, Floats], dict[str, Any]]] = {
    Confusion: _confusion,
    Scores: _scores,
    Losses: _losses,
    Errors: _errors,
    Below: _below,
}
