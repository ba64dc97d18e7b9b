"""How often intervals of summaries hold the truth: `make bench-coverage`.

Each line is so many made-up datasets of one kind. Rows are drawn from a known distribution on points
of a grid, as the number of records at each point: what a table counts of them is exact arithmetic, and
a million rows take no longer than a thousand. Noise is drawn by the samplers that jobs use, at
the scale that the Plan has; what is told is computed by the code that makes the card."""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from service.datasets.schema import Schema
from service.jobs.columns import described
from service.jobs.told import summaries_of
from service.planning.catalog import plan
from service.planning.estimates import ranges_for
from service.planning.plan import Plan
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec
from service.planning.tables import Counts
from workers.randomness import Randomness, Use
from workers.samplers import rounded_laplace, rounded_normal
from workers.tables import add_tables

POINTS = 400  # of a distribution's grid
SCHEMA = Schema.model_validate(
    {
        "columns": [
            {"name": "number", "kind": "numeric", "lower": 0, "upper": 1},
            {"name": "free", "kind": "unbounded"},
            {"name": "rare", "kind": "categorical", "categories": ["a", "b", "c", "d"]},
            {"name": "other", "kind": "numeric", "lower": 0, "upper": 1},
        ],
        "label": {"name": "y", "kind": "binary", "positive": "1", "negative": "0"},
    }
)
ROWS, EPSILONS, DELTA = (10**3, 10**4, 10**5, 10**6), (0.1, 0.5, 2.0, 8.0), 1e-6


@dataclass(frozen=True)
class Line:
    """A summary, the distribution of its column, and which intervals it tells of which numbers."""

    name: str
    asked: dict[str, Any]
    x: np.ndarray  # stored rows at the points
    p: np.ndarray
    told: Callable[[Any], list[tuple[float, float]]]
    truth: Callable[[Any], list[float]]


def rows_at(number: np.ndarray, free: np.ndarray, rare: np.ndarray) -> np.ndarray:
    x = np.zeros((len(number), 9))
    x[:, 0], x[:, 1], x[:, 2] = 1.0, number, free
    x[np.arange(len(rare)), 3 + rare] = 1.0
    return x


def lines() -> Iterator[Line]:
    grid = (np.arange(POINTS) + 0.5) / POINTS
    shape = np.exp(-((grid - 0.3) ** 2) / 0.02) + 0.1 * (grid > 0.8)
    shape /= shape.sum()
    rare = np.array([0.9, 0.08, 0.015, 0.004, 0.001])
    places, none = np.arange(5), np.zeros(5)
    by_kind = rows_at(none, none, places)
    number = rows_at(grid, np.zeros(POINTS), np.zeros(POINTS, dtype=int))

    def cells(told: Any) -> list[tuple[float, float]]:
        return [(cell.low, cell.high) for cell in told.cells]

    yield Line(
        "counts of 5 categories",
        {"kind": "counts", "column": "rare"},
        by_kind,
        rare,
        cells,
        lambda told: list(rare),
    )
    yield Line(
        "histogram of 20 bins",
        {"kind": "histogram", "column": "number"},
        number,
        shape,
        cells,
        lambda told: list(shape.reshape(20, -1).sum(axis=1)),
    )
    below = np.cumsum(shape)
    yield Line(
        "quantiles .1, .5, .9",
        {"kind": "quantiles", "column": "number", "probabilities": [0.1, 0.5, 0.9]},
        number,
        shape,
        lambda told: [(q.low, q.high) for q in told.quantiles],
        lambda told: [float(grid[np.searchsorted(below, q)]) for q in (0.1, 0.5, 0.9)],
    )
    mean, second = grid @ shape, grid**2 @ shape
    yield Line(
        "mean, variance of a range",
        {"kind": "mean", "column": "number"},
        number,
        shape,
        lambda told: [(told.mean.low, told.mean.high), (told.variance.low, told.variance.high)],
        lambda told: [mean, second - mean**2],
    )
    # Student's t with 3 degrees of freedom, at its quantiles; E X^2 = 3 without the grid's ends
    t = np.sort(np.random.default_rng(0).standard_t(3, 400_000))[500::1000] + 5.0
    tails = rows_at(np.zeros(POINTS), t, np.zeros(POINTS, dtype=int))
    even = np.full(POINTS, 1 / POINTS)
    yield Line(
        "mean, 2nd moment at most 36",
        {"kind": "mean", "column": "free", "moment": 2, "moment_bound": 6.0},
        tails,
        even,
        lambda told: [(told.mean.low, told.mean.high)],
        lambda told: [float(t.mean())],
    )
    yield Line(
        "mean, range from the data",
        {"kind": "mean", "column": "free"},
        tails,
        even,
        lambda told: [(told.mean.low, told.mean.high)],
        lambda told: [float(np.clip(t, told.lower, told.upper).mean())],
    )
    u = np.random.default_rng(1).normal(size=(POINTS, 2)) @ [[1.0, 0.6], [0.0, 0.8]]
    pair = rows_at(np.clip(0.5 + u[:, 0] / 8, 0, 1), np.zeros(POINTS), np.zeros(POINTS, dtype=int))
    pair[:, 8] = np.clip(0.5 + u[:, 1] / 8, 0, 1)
    yield Line(
        "correlation of two columns",
        {"kind": "correlations", "columns": ["number", "other"]},
        pair,
        even,
        lambda told: [(one.low, one.high) for one in told.pairs],
        lambda told: [float(np.corrcoef(pair[:, 1], pair[:, 8])[0, 1])],
    )
    yield Line(
        "share within bounds",
        {"kind": "bounds", "column": "free"},
        tails,
        even,
        lambda told: [(told.inside.low, told.inside.high)],
        lambda told: [float(((t >= told.lower) & (t < told.upper)).mean())],
    )


def planned(line: Line, rows: int, epsilon: float, delta: float) -> Plan:
    job = {"dataset": "d", "algorithm": "column-summaries", "summaries": [line.asked]}
    spec = JobSpec.model_validate(job | {"privacy": {"epsilon": epsilon}})
    facts = Facts(
        rows=rows,
        columns=line.x.shape[1],
        storage="float64",
        label="binary",
        account=AccountTerms.for_ceiling(100.0, delta),
        described=described(SCHEMA, spec),
    )
    return plan(spec, facts)


class Simulated:
    """Releases of one Plan on datasets that are drawn anew."""

    def __init__(self, line: Line, made: Plan) -> None:
        self._line, self._made = line, made
        self._of: dict[bytes, np.ndarray] = {}

    def _points(self, counts: Counts, ranges: np.ndarray | None) -> np.ndarray:
        """What a record at each point adds to the tables."""
        key = b"" if ranges is None else ranges.tobytes()
        if (found := self._of.get(key)) is None:
            add, x = add_tables(self._made.facts, counts, ranges), self._line.x
            y = np.ones(1)
            found = np.array([add(x[i : i + 1], y) for i in range(len(x))])
            self._of[key] = found
        return found

    def told(self, number: int) -> Any:
        made = self._made
        rng = np.random.default_rng([made.facts.rows, number])
        randomness = Randomness(number.to_bytes(32, "big"), made.digest())
        drawn = rng.multinomial(made.facts.rows, self._line.p)
        first: np.ndarray | None = None
        vector = []
        for use, counts in enumerate(made.counted):
            ranges = None if first is None else ranges_for(made.schedule, first)  # type: ignore[arg-type]
            lattice = counts.lattice
            exact = drawn @ self._points(counts, ranges)
            sampler = rounded_normal if lattice.noise == "gaussian" else rounded_laplace
            noisy = exact + sampler(randomness.stream(Use.NOISE, use), exact.size, lattice.bits)
            first = noisy / np.repeat(lattice.weights, lattice.sizes)
            vector.append(first)
        return summaries_of(made, SCHEMA, np.concatenate(vector).tolist())[0]


def coverage(line: Line, rows: int, epsilon: float, delta: float, datasets: int) -> list[float]:
    """How often each of the intervals held its number."""
    simulated = Simulated(line, planned(line, rows, epsilon, delta))
    held = []
    for number in range(datasets):
        told = simulated.told(number)
        pairs = zip(line.told(told), line.truth(told), strict=True)
        held.append([low <= truth <= high for (low, high), truth in pairs])
    return [float(share) for share in np.mean(held, axis=0)]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--datasets", type=int, default=1000)
    parser.add_argument("--only", default="", help="part of a line's name")
    parser.add_argument("--delta", type=float, default=DELTA, help="0: Laplace noise")
    options = parser.parse_args()
    print(f"nominal 95 %, {options.datasets} datasets each, delta {options.delta:g}: least, most")
    print("| summary | rows |" + "".join(f" epsilon {epsilon:g} |" for epsilon in EPSILONS))
    print("|:--|--:|" + "--:|" * len(EPSILONS))
    for line in lines():
        if options.only not in line.name:
            continue
        for rows in ROWS:
            found = [
                coverage(line, rows, epsilon, options.delta, options.datasets)
                for epsilon in EPSILONS
            ]
            told = "".join(f" {min(one):.1%} to {max(one):.1%} |" for one in found)
            print(f"| {line.name} | {rows:,} |{told}", flush=True)


if __name__ == "__main__":
    main()
