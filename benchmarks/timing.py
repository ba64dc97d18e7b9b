"""Does the time of a job tell of one record? Welch's statistic over many runs on neighbouring data.

    make bench-timing
    make bench-timing ARGS="--runs 2000 --rows 20000"

For each algorithm two datasets that differ in one record: all zeros but for a row at the bound that
fits its label in one, and its opposite with the other label, in the other. Kernels are warm; each run
is what a worker does from opened arrays to the vector that it publishes, under a fresh key, in random
order. The five slowest percent of either side are left out, as an attacker would: they are the
machine's doing. |t| stays below about 2 in 19 of 20 honest comparisons of equal means, and what an
attacker can learn from N jobs grows with |t| as sqrt(N).
"""

import argparse
import os
import secrets
import time
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.planning.catalog import plan
from service.planning.plan import Plan
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec
from workers.algorithms import RUNS
from workers.data import Data
from workers.progress import Progress
from workers.randomness import Randomness
from workers.transcript import Rowless, run_privately

COLUMNS, UNITS, KEPT = 20, 4095, 0.95
JOBS: dict[str, dict[str, Any]] = {
    "gradient-descent": {"parameters": {"steps": 20}},
    "frank-wolfe": {"set": {"kind": "l1_ball", "radius": 1.0}, "parameters": {"steps": 20}},
    "output-perturbation": {"ridge": 0.1, "parameters": {"steps": 20}},
}
World = tuple[NDArray[Any], NDArray[np.float64]]


def planned(name: str, rows: int) -> Plan:
    facts = Facts(
        rows=rows,
        columns=COLUMNS,
        storage="fixed",
        feature_step=1 / UNITS,
        linf_units=UNITS,
        l2_units=UNITS,
        label="binary",
        account=AccountTerms.for_ceiling(4.0, 1e-6),
    )
    asked = {"dataset": "timing", "algorithm": name, "loss": "logistic", **JOBS[name]}
    return plan(JobSpec.model_validate(asked | {"privacy": {"epsilon": 1.0}}), facts)


def worlds(rows: int) -> tuple[World, World]:
    made = []
    for sign in (1, -1):
        x, y = np.zeros((rows, COLUMNS), dtype=np.int16), np.ones(rows)
        x[rows // 2, 0], y[rows // 2] = sign * UNITS, sign
        made.append((x, y))
    return made[0], made[1]


def seconds(made: Plan, world: World) -> float:
    randomness = Randomness(secrets.token_bytes(32), made.digest())
    data, rowless = Data(made, *world, randomness), Rowless(made, randomness, None)
    begin = time.perf_counter()
    run_privately(RUNS[made.algorithm], made, data, rowless, Progress())
    return time.perf_counter() - begin


def measure(name: str, rows: int, runs: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The times of `runs` runs in either world, but for the slowest."""
    made, both = planned(name, rows), worlds(rows)
    for world in both:
        for _ in range(5):
            seconds(made, world)
    taken: tuple[list[float], list[float]] = ([], [])
    for coin in np.random.default_rng().permutation([0, 1] * runs):
        taken[coin].append(seconds(made, both[coin]))
    zero, one = (np.sort(each)[: max(2, int(KEPT * runs))] for each in taken)
    return zero, one


def welch(zero: NDArray[np.float64], one: NDArray[np.float64]) -> tuple[float, float, float]:
    """The difference of means, its standard error, and their ratio."""
    error = sqrt(zero.var(ddof=1) / zero.size + one.var(ddof=1) / one.size)
    difference = float(one.mean() - zero.mean())
    return difference, error, difference / error


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=500, help="in either world")
    parser.add_argument("--rows", type=int, default=10_000)
    asked = parser.parse_args()
    print(f"{asked.runs} runs in either world, {asked.rows} rows, {os.cpu_count()} processors\n")
    print("| algorithm | mean, ms | difference, us | its standard error, us | Welch's t |")
    print("|:--|--:|--:|--:|--:|")
    for name in JOBS:
        zero, one = measure(name, asked.rows, asked.runs)
        difference, error, t = welch(zero, one)
        print(
            f"| {name} | {1e3 * zero.mean():.2f} | {1e6 * difference:+.1f} | {1e6 * error:.1f} "
            f"| {t:+.2f} |"
        )


if __name__ == "__main__":
    main()
