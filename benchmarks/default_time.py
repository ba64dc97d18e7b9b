"""Seconds of a fit of `auto` with nothing set, planning included, beside scikit-learn without privacy,
diffprivlib, and twenty epochs of Opacus (from one on at most 50,000 rows).

In brackets the processor time of all threads, which a machine's other tenants change less; then how
many times ours that is, by the clock and by the processor. The least of three fits each; one of
diffprivlib and Opacus."""

import json
import time
from collections.abc import Iterable
from math import log, sqrt

import numpy as np

from benchmarks.kernels import in_peers
from service.planning.choose import choose, compare
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec
from workers.algorithms import RUNS
from workers.data import Data
from workers.progress import Progress
from workers.randomness import Randomness

SIZES = ("100000x10", "100000x100", "100000x1000", "1000000x10", "1000000x100")
REPEATS = 3
UNITS = 4095


def ours(rows: int, columns: int) -> tuple[str, float, float]:
    """(what auto takes, seconds by the clock, seconds of processor)."""
    rng = np.random.default_rng(0)
    facts = Facts(
        rows=rows,
        columns=columns,
        storage="fixed",
        feature_step=1 / sqrt(columns) / UNITS,
        linf_units=UNITS,
        l2_units=int(sqrt(columns) * UNITS),
        label="binary",
        account=AccountTerms.for_ceiling(1.0, 1e-6),
    )
    x = rng.integers(0, UNITS, (rows, columns), dtype=np.int16)
    x[:, 0] = UNITS
    y = rng.choice([-1.0, 1.0], rows)
    clock, processor, name = np.inf, np.inf, ""
    for repeat in range(REPEATS + 1):  # the first compiles
        start, used = time.perf_counter(), time.process_time()
        spec = {"dataset": "ds_bench", "algorithm": "auto", "loss": "logistic"}
        asked = JobSpec.model_validate({**spec, "privacy": {"epsilon": 1.0}})
        plan, choice = choose(compare(asked, facts, 10**12))
        data = Data(plan, x, y, Randomness(bytes([repeat] * 32), plan.digest()))
        RUNS[plan.algorithm](plan, data, Progress())
        if repeat:
            clock = min(clock, time.perf_counter() - start)
            processor, name = min(processor, time.process_time() - used), choice.algorithm
    return name, clock, processor


def main(sizes: Iterable[str] = SIZES) -> None:
    seen: dict[int, tuple[int, float]] = {}
    for size in sizes:
        rows, columns = map(int, size.split("x"))
        name, clock, processor = ours(rows, columns)
        print(f"{rows:,} x {columns}\n  auto ({name}) {clock:.2f} s ({processor:.2f})", flush=True)
        if columns in seen:
            fewer, used = seen[columns]
            exponent = log(processor / used) / log(rows / fewer)
            print(f"  from {fewer:,} rows: processor time grows with n^{exponent:.2f}", flush=True)
        seen[columns] = rows, processor
        for line in in_peers("default_peers.py", "--time", str(rows), str(columns)):
            found = json.loads(line)
            its = found["seconds"], found["processor"]
            print(
                f"  {found['name']} {its[0]:.2f} s ({its[1]:.2f}): "
                f"{its[0] / clock:.1f} times ({its[1] / processor:.1f})",
                flush=True,
            )
