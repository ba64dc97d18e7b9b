"""How often the intervals of an evaluation hold the truth: `make bench-evaluation`.

Made-up populations of some hundred kinds of records, so that every true metric is a finite sum. Many
samples of n records each are drawn, counted by the code that counts held-out rows, given the Plan's
noise, and told with intervals; how many of these hold the truth is printed in percent. Nominal is 95.
"""

import argparse
from collections import Counter
from collections.abc import Iterator

import numpy as np

from service.datasets.schema import Schema
from service.jobs.evaluated import Evaluated, evaluated
from service.planning.catalog import plan
from service.planning.lattice import CountLattice
from service.planning.plan import Plan
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec
from service.planning.summaries import ColumnFacts
from workers.scored import add_scored

ROWS = (1_000, 10_000, 100_000, 1_000_000)
EPSILONS = (0.1, 0.5, 2.0, 8.0)
ATOMS = 300
LINF = 4095
LABELS = {
    "binary": {"kind": "binary", "positive": "1", "negative": "0"},
    "numeric": {"kind": "numeric", "lower": -1, "upper": 1},
    "categorical": {"kind": "categorical", "classes": ["a", "b", "c"]},
}
SPECS = {
    "binary": {"loss": "logistic", "evaluate": {"by": "g"}},
    "numeric": {"loss": {"kind": "pinball", "quantile": 0.8}, "evaluate": {"by": "g"}},
    "categorical": {"loss": "softmax"},
}
WEIGHTS = {
    "binary": [-6.0, 9.0, 0.0, 0.0],
    "numeric": [-1.2, 2.2, 0.0, 0.0],
    "categorical": [0.0, 4.0, 0, 0, 1.0, 1.0, 0, 0, 2.2, -3.0, 0, 0],
}


class Population:
    """Kinds of records with their chances, for a label of this kind."""

    def __init__(self, label: str) -> None:
        rng = np.random.default_rng(11)
        self.label = label
        self.x = np.zeros((ATOMS, 4), dtype=np.int16)
        self.x[:, 0] = LINF
        value = rng.beta(2, 3, ATOMS)
        self.x[:, 1] = LINF * value
        second = rng.uniform(size=ATOMS) < 0.3
        self.x[:, 2], self.x[:, 3] = LINF * ~second, LINF * second
        if label == "binary":
            self.y = np.where(rng.uniform(size=ATOMS) < value * np.where(second, 0.5, 1), 1.0, -1.0)
        elif label == "numeric":
            self.y = np.clip(2 * value - 1 + 0.3 * rng.standard_t(3, ATOMS), -1, 1)
        else:
            self.y = np.clip(np.floor(3 * value + 0.4 * rng.normal(size=ATOMS)), 0, 2)
        self.chances = rng.dirichlet(np.full(ATOMS, 0.7))
        self.weights = np.array(WEIGHTS[label])
        self.schema = Schema.model_validate(
            {
                "columns": [
                    {"name": "v", "kind": "numeric", "lower": 0, "upper": 1},
                    {"name": "g", "kind": "categorical", "categories": ["first"]},
                ],
                "label": {"name": "y", **LABELS[label]},
            }
        )

    def plan(self, rows: int, epsilon: float, delta: float) -> Plan:
        facts = Facts(
            rows=rows,
            held_out=rows,
            columns=4,
            storage="fixed",
            feature_step=1 / LINF,
            linf_units=LINF,
            l2_units=2 * LINF,
            label=self.label,
            classes=3 if self.label == "categorical" else None,
            account=AccountTerms.for_ceiling(8.0, delta, None),
            described=(ColumnFacts(name="g", kind="categorical", position=2, cells=2),),
        )
        asked = {
            "dataset": "d",
            "algorithm": "model-evaluation",
            "of": "m",
            "privacy": {"epsilon": epsilon},
        }
        return plan(JobSpec.model_validate(asked | SPECS[self.label]), facts)

    def entries(self, made: Plan) -> np.ndarray:
        """What a record of each kind adds to the tables."""
        (counts,) = made.counted
        lattice = counts.lattice
        add = add_scored(made.facts, counts, self.weights[None])
        units = np.stack([add(self.x[i : i + 1], self.y[i : i + 1]) for i in range(ATOMS)])
        return units / np.repeat(lattice.weights, lattice.sizes)


def noise_of(lattice: CountLattice, rng: np.random.Generator) -> np.ndarray:
    deviations = [lattice.deviation(table) for table in range(len(lattice.sizes))]
    scale = np.repeat(deviations, lattice.sizes)
    if lattice.noise == "laplace":
        return rng.laplace(0.0, scale / np.sqrt(2))
    return rng.normal(0.0, scale)


def numbers(told: Evaluated) -> Iterator[tuple[str, float, float, float]]:
    """Every number of an evaluation, by what it is."""
    for name, one in told.metrics.items():
        yield name, one.value, one.low, one.high
    for point in told.curve or ():
        for name in ("false_positive_rate", "recall", "precision"):
            one = getattr(point, name)
            yield f"curve: {name}", one.value, one.low, one.high
    for band in told.calibration or ():
        yield "calibration", band.positive.value, band.positive.low, band.positive.high
    for of in told.classes or ():
        for name in ("precision", "recall", "f1"):
            one = getattr(of, name)
            yield f"class: {name}", one.value, one.low, one.high
    for group in told.groups or ():
        if group.name != "<other>":
            for kind, found in (("group", group.metrics), ("gap", group.gaps)):
                for name, one in found.items():
                    yield f"{kind}: {name}", one.value, one.low, one.high


def covered(
    population: Population, rows: int, epsilon: float, delta: float, times: int, seed: int
) -> dict[str, tuple[float, float]]:
    """By metric: how many of a hundred intervals hold the truth, and how wide they are on average."""
    rng = np.random.default_rng(seed)
    made = population.plan(rows, epsilon, delta)
    entries, (counts,) = population.entries(made), made.counted
    exact = rows * population.chances @ entries
    truth = [value for _, value, _, _ in numbers(told(population, made, exact))]
    held, widths, seen = Counter[str](), Counter[str](), Counter[str]()
    for drawn in rng.multinomial(rows, population.chances, times):
        released = drawn @ entries + noise_of(counts.lattice, rng)
        for true, (name, _, low, high) in zip(
            truth, numbers(told(population, made, released)), strict=True
        ):
            held[name] += low <= true <= high
            widths[name] += high - low
            seen[name] += 1
    return {name: (100 * held[name] / seen[name], widths[name] / seen[name]) for name in seen}


def told(population: Population, made: Plan, released: np.ndarray) -> Evaluated:
    (one,) = evaluated(made, population.schema, population.weights, released)
    return one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=1000)
    parser.add_argument("--label", choices=sorted(LABELS), action="append")
    parser.add_argument("--delta", type=float, default=1e-6)
    options = parser.parse_args()
    for label in options.label or LABELS:
        population = Population(label)
        print(
            f"\n{label} label, delta {options.delta:g}: % held (mean width), {options.times} samples"
        )
        held: dict[str, list[float]] = {}
        for rows in ROWS:
            for epsilon in EPSILONS:
                found = covered(population, rows, epsilon, options.delta, options.times, rows)
                words = [
                    f"{name} {share:.1f} ({width:.2g})" for name, (share, width) in found.items()
                ]
                print(f"n {rows} epsilon {epsilon:g}: {', '.join(words)}", flush=True)
                for name, (share, _) in found.items():
                    held.setdefault(name, []).append(share)
        for name, shares in held.items():
            print(f"| {label} | {name} | {min(shares):.1f} | {max(shares):.1f} |")


if __name__ == "__main__":
    main()
