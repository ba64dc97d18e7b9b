"""Minimisers before noise, and how far an exchange of one record moves them."""

from decimal import Decimal
from itertools import combinations

import numpy as np

from service.planning.plan import Plan
from workers.algorithms import RUNS
from workers.data import Data
from workers.progress import Progress
from workers.randomness import Randomness

UNITS = 4095


class Bare(Data):
    """Data that hands out the point as it is before noise."""

    def noisy_point(self, make):
        def seen(blocks):
            self.point = make(blocks)
            return self.point

        return super().noisy_point(seen)


def point_of(made: Plan, x, y, kind=Bare) -> np.ndarray:
    data = kind(made, x, y, Randomness(bytes(32), made.digest()))
    progress = Progress()
    released = RUNS[made.algorithm](made, data, progress)
    assert progress.done == made.schedule.steps
    assert np.linalg.norm(released) <= made.schedule.radius * (1 + 1e-12)
    assert np.linalg.norm(data.point) <= made.schedule.radius * (1 + 1e-12)
    return data.point


def pool_of(d, rng):
    """Zero, axes and diagonals at the bound, random directions, each with either label."""
    rows = [np.zeros(d), *np.eye(d), *-np.eye(d), np.ones(d) / np.sqrt(d)]
    rows += [row / np.linalg.norm(row) for row in rng.normal(size=(2, d))]
    return [(np.trunc(row * UNITS).astype(np.int16), y) for row in rows for y in (-1.0, 1.0)]


def farthest(made: Plan, d: int, seed: int) -> float:
    """The largest movement of the point over exchanges of one record among zeros, among copies of one
    record, and among random ones, the exchanged one first or last."""
    rng = np.random.default_rng(seed)
    n, pool = made.facts.rows, pool_of(d, rng)
    found = 0.0
    for others in ("zeros", "copies", "random"):
        base = [pool[0 if others == "zeros" else rng.integers(len(pool))]] * n
        if others == "random":
            base = [pool[i] for i in rng.integers(len(pool), size=n)]
        x, y = np.array([row for row, _ in base]), np.array([label for _, label in base])
        place = int(rng.choice([0, n - 1])) if others == "random" else n - 1
        points = []
        for row, label in pool:
            x[place], y[place] = row, label
            points.append(point_of(made, x, y))
        found = max(found, *(float(np.linalg.norm(a - b)) for a, b in combinations(points, 2)))
    return found


def exact_slope(shape, bound, m, y):
    if not shape.straight:
        return -y / (1 + (y * m).exp())
    c = Decimal(shape.curvature)
    if shape.argument == "margin":
        return -y * min(max(c * (1 - y * m), Decimal(0)), Decimal(1))
    low, high = max(shape.low, -bound), min(shape.high, bound)
    return min(max(c * (m - y), Decimal(low)), Decimal(high))


def random_rows(n, d, rng):
    x = rng.normal(size=(n, d))
    x *= UNITS / np.linalg.norm(x, axis=1, keepdims=True)
    return np.trunc(x).astype(np.int16), rng.choice([-1.0, 1.0], n)
