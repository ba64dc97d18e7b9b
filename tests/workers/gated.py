"""Runs of every algorithm, with the gate and the data that a test puts in their place."""

import numpy as np
import pytest

from service.planning.catalog import plan
from tests.planning.cases import ROWS, facts, spec
from workers.algorithms import RUNS
from workers.data import Data
from workers.gate import Gate
from workers.held_out import HeldOutData
from workers.progress import Progress
from workers.randomness import Randomness

N, D, KEY = 97, 5, bytes(range(32))
CORNERS = [[1.0] * D, [-1.0] * D, [0.5, -1.0] + [0.0] * (D - 2)]
JOBS = {
    **{name: (name, {}) for name in ROWS},
    "drawn batches": ("gradient-descent", {"parameters": {"steps": 4, "batch": 9}}),
    "drawn phases": ("localized-accelerated-sgd", {"parameters": {"steps": 4, "halvings": 3}}),
    "no convex loss": ("proximal-sgd", {"loss": "sigmoid", "ridge": 0.0}),
    "a network": ("proximal-sgd", {"loss": "hinge", "model": "relu_network"}),
    "a box": ("stochastic-frank-wolfe", {"set": "box"}),
    "a chosen clip": ("clipped-sgd", {"parameters": {"clip": "private"}}),
    "several rounds": ("proximally-guided-mirror-descent", {"parameters": {"rounds": 3}}),
    "a tree": (
        "online-to-nonconvex",
        {"parameters": {"mechanism": "tree", "steps": 8, "period": 4}},
    ),
    "many passes": (
        "online-to-nonconvex",
        {"parameters": {"oracle": "first-order-multi-pass", "steps": 8, "period": 4, "batch": N}},
    ),
    "many passes over drawn batches": (
        "online-to-nonconvex",
        {"parameters": {"oracle": "first-order-multi-pass", "steps": 8, "period": 4, "batch": 9}},
    ),
    "a simplex": ("frank-wolfe", {"set": "simplex"}),
    "vertices": ("frank-wolfe", {"set": {"kind": "polytope", "vertices": CORNERS}}),
}
jobs = pytest.mark.parametrize("job", JOBS)
noises = pytest.mark.parametrize("delta", [1e-6, 0.0])


def planned(job, delta):
    name, more = JOBS[job]
    return plan(spec(name, 1.0, None, **more), facts(rows=N, columns=D, delta=delta))


def data_for(made, gate=Gate, data=Data):
    rng = np.random.default_rng(4)
    x = rng.integers(-900, 900, (N, D)).astype(np.int16)
    y = np.where(rng.uniform(size=N) < 0.5, 1.0, -1.0)
    randomness = Randomness(KEY, made.digest())
    if made.schedule.evaluates():
        x, y = x[: made.facts.held_out], y[: made.facts.held_out]
        data = HeldOutData if data is Data else data
    seen = data(made, x, y, randomness, released=np.zeros(made.weights_named))
    seen._gate = gate(made, randomness)
    return seen


def run(made, gate=Gate, data=Data):
    given = data_for(made, gate, data)
    RUNS[made.algorithm](made, given, Progress())
    given.close()
    return given._gate


class Recording(Gate):
    """Every ask of an honest run."""

    def __init__(self, made, randomness):
        super().__init__(made, randomness)
        self.asks = []

    def _pay(self, ask):
        self.asks.append(ask)
        super()._pay(ask)
