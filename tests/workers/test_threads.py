"""Neither our threads nor those of BLAS change a bit: a job that is run again goes the same way."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import workers.rows
from service.planning.catalog import plan
from service.planning.sets.l2_ball import L2Ball
from tests.planning.cases import facts, spec
from tests.workers.exact import exact_estimate
from workers.data import Data
from workers.directions import frame
from workers.prefixes import Root
from workers.randomness import Randomness, Use

ROWS, COLUMNS, DIRECTIONS = 1748, 150, 100
MODELS = {"linear": "linear", "network": {"kind": "relu_network", "width": 3}}


def zero_order(model: str, storage: str) -> bytes:
    """A sum of differences so small that what is left of them is mostly rounding, and all of it
    counts, because the clip is smaller still."""
    parameters = {"oracle": "zero-order-multi-pass", "directions": DIRECTIONS, "steps": 4}
    parameters |= {"period": 4, "batch": ROWS}  # differences, whatever is drawn by default
    parameters |= {"clip": 1.0, "smoothness": 1e-9}
    job = spec("online-to-nonconvex", loss="logistic", model=MODELS[model], parameters=parameters)
    made = plan(job, facts(storage, ROWS, COLUMNS))
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, COLUMNS))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    if storage == "fixed":
        x = np.rint(4000 * x).astype(np.int16)
    data = Data(made, x, np.ones(ROWS), Randomness(bytes(32), made.digest()))
    at, move = rng.normal(size=(2, made.dimension))
    directions = frame(data.stream(Use.DIRECTIONS, 0), DIRECTIONS, made.dimension)
    return exact_estimate(data, at, at + 1e-9 * move, directions, 0, ROWS).tobytes()


def after_the_noise() -> bytes:
    """What becomes of released vectors, long enough for BLAS to share the work."""
    released = np.random.default_rng(1).normal(size=(16, 30_011))
    sums = Root(16, released.shape[1])
    for row in released:
        sums.due(np.zeros(row.size, dtype=np.int64))
        estimate = sums.estimate([row])
    return estimate.tobytes() + L2Ball(radius=1.0).project(estimate).tobytes()


def everything() -> str:
    sums = [zero_order(model, storage) for model in MODELS for storage in ("fixed", "float64")]
    directions = frame(Randomness(bytes(32), "x").stream(Use.DIRECTIONS, 0), 300, 500).tobytes()
    parts = [*sums, directions, after_the_noise()]
    return " ".join(hashlib.sha256(part).hexdigest() for part in parts)


def test_the_threads_of_blas_change_no_bit():
    code = "from tests.workers.test_threads import everything; print(everything())"
    found = []
    for threads in ("1", "2"):
        names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | dict.fromkeys(names, threads),
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(done.stdout.split())
    assert found[0] == found[1] and len(set(found[0])) == 6


@pytest.mark.parametrize("storage", ["fixed", "float64"])
@pytest.mark.parametrize("model", MODELS)
def test_our_threads_change_no_bit_of_a_zero_order_estimate(model, storage, monkeypatch):
    found = set()
    for threads in (1, 2, 3):
        monkeypatch.setattr(workers.rows, "thread_count", lambda threads=threads: threads)
        found.add(zero_order(model, storage))
    assert len(found) == 1
