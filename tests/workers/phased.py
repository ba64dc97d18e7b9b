"""Phased SGD whose means are seen before noise."""

from itertools import pairwise

import numpy as np
from mpmath import mp, mpf

from service.planning.algorithms.phased_sgd import PhasedSgdSchedule
from service.planning.catalog import plan
from service.planning.loss import Scalar
from service.planning.plan import Plan
from tests.planning.cases import facts, spec
from workers.algorithms import RUNS
from workers.data import Blocks, Data
from workers.progress import Progress
from workers.randomness import Randomness

KEY = bytes(range(32))
NAME = "phased-sgd"
D = 3
UNIT = 4095


def made_for(rows: int, delta: float | None = None, **job) -> Plan:
    return plan(spec(NAME, 1.0, delta, **job), facts(rows=rows, columns=D))


def phases_of(made: Plan) -> list[tuple[range, float]]:
    """The rows and the sensitivity of every phase."""
    assert isinstance(made.schedule, PhasedSgdSchedule)
    ends = np.cumsum([0, *(phase.rows for phase in made.schedule.phases)]).tolist()
    rows = [range(a, b) for a, b in pairwise(ends)]
    return list(zip(rows, (p.sensitivity for p in made.schedule.phases), strict=True))


class Bare(Data):
    """Notes every mean before its noise, and starts each phase where the attacker says."""

    def __init__(self, made, x, y, starts):
        super().__init__(made, x, y, Randomness(KEY, made.digest()))
        self.means, self.rows, self.starts = [], [], starts

    def noisy_point(self, make):
        rows, _ = self._points[len(self.means)]
        self.means.append(make(Blocks(self._rows, rows)).copy())
        self.rows.append(rows)
        return self.starts[len(self.means) % len(self.starts)].copy()


def means(made, x, y, start):
    """Every phase's mean if each starts at `start` (the first always does at 0)."""
    guarded = Bare(made, x.astype(np.int16), y, [start])
    RUNS[NAME](made, guarded, Progress())
    return guarded.means


JOBS = {
    "hinge": {"loss": "hinge", "set": {"radius": 1.0}},
    "absolute": {"loss": "absolute", "set": {"radius": 0.5}},
    "huber": {"loss": "huber", "set": {"radius": 3.0}},
    "pinball": {"loss": {"kind": "pinball", "quantile": 0.9}, "set": {"radius": 1.0}},
    "logistic": {"loss": "logistic", "set": {"radius": 10.0}},
    "squared": {"loss": "squared", "set": {"radius": 2.0}},
    "ridge": {"loss": "hinge", "set": {"radius": 1.0}, "ridge": 0.5},
    "all": {"loss": "hinge", "set": "all"},
}


def exact_slope(shape: Scalar, m, y):
    if not shape.straight:
        return -y / (1 + mp.exp(y * m))
    if shape.argument == "margin":
        return -y * min(max(mpf(shape.curvature) * (1 - y * m), mpf(0)), mpf(1))
    return min(max(mpf(shape.curvature) * (m - y), mpf(shape.low)), mpf(shape.high))
