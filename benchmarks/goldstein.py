"""Goldstein stationarity against the number of rows, beside KLT's theorems; and the two ways to
release prefix sums against each other.

    make bench-goldstein
    make bench-goldstein ARGS="--runs 20 --plot docs/goldstein.png"
    make bench-goldstein ARGS="--only prefixes"

The problem is neither smooth nor convex: ramp loss, rows of norm 1 whose first entry is 0.8 or -0.8
and whose others are random signs, labels the sign of the first entry but for one in ten. The search is
unconstrained and starts at 0, where the gradient has length 0.64. The theorems bound the mean over the
random output, a block of the run's steps. Here that mean is taken over all blocks of a run (64 of them
where there are more), so that the draw adds no variance. Of each block's point w is measured an upper
bound on its stationarity: the mean of gradients of the loss over fresh rows at points drawn uniformly
within a of w is one of the convex combinations of which the shortest counts. Over many passes the
theorem is about the mean over the rows that were given, so there these are taken; and its T grows like
n^2, so there as many steps are asked for as the bound wants, up to 2^16.

A theorem is an upper bound: what is asked is that the fitted exponent of 1/n is at least the
theorem's, less 0.1, where its leading term dominates. Means over runs; every run draws rows and noise
anew. The standard error is that of the exponent over 200 resamplings of the runs.
"""

import argparse
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.pictures import picture
from service.planning.catalog import plan
from service.planning.price import AccountTerms
from service.planning.shared.prefixes import burden, columns, vectors
from service.planning.spec import Facts, JobSpec
from workers.algorithms import RUNS
from workers.data import Data
from workers.prefixes import prefixes
from workers.progress import Progress
from workers.randomness import Randomness

SPIKE, FLIPPED = 0.8, 0.1
DELTA, RADIUS = 1e-6, 0.1
POINTS, FRESH, BLOCKS, RESAMPLED = 8, 20_000, 64, 200
UNITS = 4095


@dataclass(frozen=True)
class Regime:
    oracle: str
    epsilon: float
    d: int
    sizes: tuple[int, ...]
    exponent: float  # of 1/n, in the theorem's leading term
    leading: str
    steps: tuple[int, ...] = ()  # instead of the default, for each size


MANY = (2**14, 2**15, 2**15, 2**16)
REGIMES = [
    Regime("first-order", 8.0, 4, (2**8, 2**10, 2**12, 2**14), 1 / 3, "n^-1/3, not private"),
    Regime("first-order", 0.5, 4, (2**13, 2**14, 2**15, 2**16, 2**17), 1 / 2, "n^-1/2, private"),
    Regime("zero-order", 8.0, 4, (2**8, 2**10, 2**12, 2**14), 1 / 3, "n^-1/3, not private"),
    *(
        Regime(oracle, 8.0, 4, (2**6, 2**7, 2**8, 2**9), 2 / 3, "n^-2/3, private", MANY)
        for oracle in ("first-order-multi-pass", "zero-order-multi-pass")
    ),
]


def draw(rng, n, d):
    """Rows in units, and labels."""
    x = rng.choice(np.array([-1.0, 1.0]), (n, d))
    x[:, 0] *= SPIKE
    x[:, 1:] *= np.sqrt((1 - SPIKE**2) / (d - 1))
    y = np.sign(x[:, 0]) * np.where(rng.uniform(size=n) < FLIPPED, -1.0, 1.0)
    return np.trunc(x * (UNITS - 1)).astype(np.int16), y


class Watched(Data):
    """Data that also notes where gradients were asked for."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.points = []

    def _estimated(self, estimate, rows):
        self.points.append(estimate.at)
        return super()._estimated(estimate, rows)


def planned(regime, n):
    facts = Facts(
        rows=n,
        columns=regime.d,
        storage="fixed",
        feature_step=1 / UNITS,
        linf_units=UNITS,
        l2_units=UNITS,
        label="binary",
        account=AccountTerms.for_ceiling(regime.epsilon, DELTA),
    )
    spec = {
        "dataset": "d",
        "algorithm": "online-to-nonconvex",
        "loss": "ramp",
        "set": "all",
        "privacy": {"epsilon": regime.epsilon},
        "parameters": {"oracle": regime.oracle, "radius": RADIUS},
    }
    if regime.steps:
        spec["parameters"]["steps"] = regime.steps[regime.sizes.index(n)]
    return plan(JobSpec.model_validate(spec), facts)


def stationarity(w, rng, rows=None):
    """The length of the mean of gradients at points drawn from the ball of radius a about w."""
    d = w.size
    units, y = rows or draw(rng, FRESH, d)
    points = rng.normal(size=(POINTS, d))
    lengths = RADIUS * rng.uniform(size=(POINTS, 1)) ** (1 / d)
    points *= lengths / np.linalg.norm(points, axis=1, keepdims=True)
    points = np.concatenate([points, -points])  # opposite ones: their mean is w
    x = units / UNITS
    inside = np.mean(np.abs(x @ (w + points).T) < 1, axis=1)
    slopes = -y * inside
    return float(np.linalg.norm(slopes @ x / len(y)))


def measured(regime, runs, seed=0):
    rng = np.random.default_rng(seed)
    table = np.empty((len(regime.sizes), runs))
    for i, n in enumerate(regime.sizes):
        made = planned(regime, n)
        s = made.schedule
        for j in range(runs):
            randomness = Randomness(os.urandom(32), made.digest())
            rows = draw(rng, n, regime.d)
            data = Watched(made, *rows, randomness)
            RUNS[made.algorithm](made, data, Progress())
            means = np.array(data.points).reshape(-1, s.block, regime.d).mean(axis=1)
            some = means[np.linspace(0, len(means) - 1, min(BLOCKS, len(means))).astype(int)]
            given = rows if regime.oracle.endswith("multi-pass") else None
            table[i, j] = np.mean([stationarity(w, rng, given) for w in some])
        print(
            f"  n {n:>7,}: {table[i].mean():.4f} +- {table[i].std() / np.sqrt(runs):.4f}"
            f"   bound {made.prediction.excess_risk:.3f}"
            f"   T {s.steps}, N {s.period}, M {s.block}, batches {s.first_batch} and {s.batch}",
            flush=True,
        )
    return table


def exponent(sizes, means):
    return -np.polyfit(np.log(sizes), np.log(means), 1)[0]


def rates(runs, plot, regimes=REGIMES):
    rng, curves = np.random.default_rng(1), []
    for regime in regimes:
        print(f"{regime.oracle}, epsilon {regime.epsilon:g}, d {regime.d}; {regime.leading}")
        table = measured(regime, runs)
        found = exponent(regime.sizes, table.mean(axis=1))
        again = [
            exponent(regime.sizes, table[:, rng.integers(runs, size=runs)].mean(axis=1))
            for _ in range(RESAMPLED)
        ]
        enough = "as steep" if found >= regime.exponent - 0.1 else "NOT as steep"
        print(
            f"  exponent {found:.2f} +- {np.std(again):.2f}, the theorem's {regime.exponent:.2f}: "
            f"{enough}",
            flush=True,
        )
        curves.append(curve(regime, table))
    if plot:
        picture(plot, "stationarity within a", {"": curves})


def curve(regime, table):
    return {
        "label": f"{regime.oracle}, epsilon {regime.epsilon:g}",
        "n": regime.sizes,
        "values": table.mean(axis=1).tolist(),
        "errors": (table.std(axis=1) / np.sqrt(table.shape[1])).tolist(),
        "exponent": regime.exponent,
    }


def release_error(lengths=tuple(2**k for k in range(4, 15)), repeats=200):
    """Root against tree at equal cost: prefixes of zeros under noise that costs the same."""
    print("standard deviation of a prefix's noise at equal cost, tree over root")
    print(f"{'length':>8}{'Gaussian, exact':>18}{'measured':>10}{'Laplace, exact':>18}")
    rng = np.random.default_rng(0)
    for length in lengths:
        exact = burden("tree", "l2", length) / burden("root", "l2", length)
        pure = burden("tree", "l1", length) / burden("root", "l1", length)
        spread = {}
        for mechanism in ("root", "tree"):
            scale = np.sqrt(columns(mechanism, length)[0].squares)
            count = vectors(mechanism, length)
            noise = iter(scale * rng.normal(size=(count, repeats)))
            sums, total = prefixes(mechanism, length, repeats), 0.0
            for _ in range(length):
                due = sums.due(np.zeros(repeats, dtype=np.int64))
                total += np.mean(sums.estimate([next(noise) for _ in due]) ** 2)
            spread[mechanism] = np.sqrt(total / length)
        found = spread["tree"] / spread["root"]
        print(f"{length:>8}{exact:>18.3f}{found:>10.3f}{pure:>18.3f}", flush=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--only", choices=("prefixes", "rates"))
    options = parser.parse_args(arguments)
    if options.only != "rates":
        release_error(repeats=40)
    if options.only != "prefixes":
        rates(options.runs, options.plot)


if __name__ == "__main__":
    main()
