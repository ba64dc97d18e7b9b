"""Stochastic Frank-Wolfe whose releases are answered from a script, and the worlds that it runs in."""

import numpy as np

from service.planning.catalog import plan
from service.planning.plan import Plan
from tests.planning.cases import facts, spec
from workers.algorithms import RUNS
from workers.data import Data
from workers.progress import Progress
from workers.randomness import Randomness

KEY = bytes(range(32))
CHOICES, NOISY = "polyhedral-stochastic-frank-wolfe", "stochastic-frank-wolfe"
N, D, UNIT = 60, 3, 4095
L1 = {"kind": "l1_ball", "radius": 0.1}
WEDGE = {"kind": "polytope", "vertices": [[0.1, 0, 0], [0, 0.2, 0], [-0.1, -0.1, 0.3], [0, 0, 0]]}
BALLS = {
    "p=1.1": {"kind": "lp_ball", "p": 1.1, "radius": 0.1},
    "p=1.5": {"kind": "lp_ball", "p": 1.5, "radius": 0.1},
    "l2": {"kind": "l2_ball", "radius": 0.1},
    "l1": L1,
    "box": {"kind": "box", "lower": -0.05, "upper": 0.1},
    "simplex": {"kind": "simplex", "total": 0.1},
    "wedge": WEDGE,
}


def made_for(algorithm, where, l2_units=UNIT, rows=N, delta=None, loss="squared", **job) -> Plan:
    asked = {"loss": loss, "set": where, "parameters": {"rounds": 3}, **job}
    return plan(
        spec(algorithm, 1.0, delta, **asked), facts(rows=rows, columns=D, l2_units=l2_units)
    )


def records(l2_units: int) -> list[tuple[np.ndarray, float]]:
    """Zero, axes, the longest rows along pairs and diagonals, leaning both ways; a hostile label."""
    rows = [np.zeros(D), *np.eye(D), *-np.eye(D)]
    rows += [np.array(row, dtype=float) for row in ([1, -1, 0], [0, 1, -1], [1, 1, -1], [1, 3, -3])]
    kept = []
    for row in rows:
        largest = min(UNIT / max(1.0, np.abs(row).max()), l2_units / max(1.0, np.linalg.norm(row)))
        kept.append(np.trunc(row * largest))
    return [(row, label) for row in kept for label in (-1.0, 1.0)] + [(kept[1], 1e300)]


class Scripted(Data):
    """Data whose releases are written down, and answered from a script: the same in both worlds."""

    def __init__(self, made, x, y, script) -> None:
        super().__init__(made, x, y, Randomness(KEY, "script"))
        self.script, self.seen = script, []

    def _choice(self, ballot, scale, rows, running=None) -> int:
        scores = ballot.scores(ballot.exact)
        self.seen.append([int(s) for s in scores])
        return self.script(len(self.seen) - 1) % scores.size

    def _vector(self, exact, step, rows) -> np.ndarray:
        self.seen.append(([int(v) for v in exact], step))
        return self.script(len(self.seen) - 1)


def played(made: Plan, x, y, script) -> list:
    data = Scripted(made, np.asarray(x, dtype=np.int16), np.asarray(y), script)
    RUNS[made.algorithm](made, data, Progress())
    return data.seen


def positions(made: Plan) -> list[tuple[int, int, int]]:
    """(round, batch, its first row) of every batch."""
    return [
        (r, k, rows.start)
        for r, one in enumerate(made.schedule.rounds)
        for k, rows in enumerate(one.batches())
    ]


def worlds(place: int, pool) -> list[tuple[np.ndarray, np.ndarray]]:
    """The same rows but for the record at `place`, which is each of the pool in turn."""
    x = np.array([pool[(5 * i + 2) % len(pool)][0] for i in range(N)])
    y = np.array([pool[(5 * i + 2) % len(pool)][1] for i in range(N)])
    made = []
    for row, label in pool:
        x[place], y[place] = row, label
        made.append((x.copy(), y.copy()))
    return made
