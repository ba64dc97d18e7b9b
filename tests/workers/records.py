"""Records that move a sum the farthest, and the data that they are exchanged in."""

from math import isqrt

import numpy as np
import pytest

from service.planning.plan import Plan
from workers.data import Data
from workers.randomness import Randomness

KEY = bytes(range(32))
N, D = 6, 3
MIXES = {"gaussian": None, "laplace": 0.0}
storages = pytest.mark.parametrize("storage", ["fixed", "float64"])
noises = pytest.mark.parametrize("noise", MIXES)


def sums(made: Plan, x: np.ndarray, y: np.ndarray, kind: type[Data] = Data) -> Data:
    return kind(made, x, y, Randomness(KEY, made.digest()))


def movement(made: Plan, a: np.ndarray, b: np.ndarray) -> float:
    """How far two sums are apart in the lattice's norm; never rounded down past an integer."""
    moved = [int(p) - int(q) for p, q in zip(a, b, strict=True)]
    if made.lattice.norm == "l1":
        return sum(map(abs, moved))
    squares = sum(m * m for m in moved)
    return isqrt(squares) + (isqrt(squares) ** 2 < squares)


def within_norm(row: np.ndarray, l2: int) -> np.ndarray:
    """The integer row, shortened until its exact l2 norm is at most l2."""
    row = np.trunc(row).astype(int)
    while sum(int(v) ** 2 for v in row) > l2 * l2:
        row = np.trunc(row * (1 - 1e-4)).astype(int)
    return row


def records(made: Plan, rng: np.random.Generator) -> list[tuple[np.ndarray, float]]:
    """Records that an adversary would try: zero, axes, diagonals, opposite pairs that lean the same
    way along (1, -1, 0) and so share a saturated derivative, random ones; float rows also extreme."""
    lean = np.array([1.0, -1.0, 0.0])
    rows = [np.zeros(D), *np.eye(D), *-np.eye(D)]
    for long in (np.array([0, 0, 1.0]), np.ones(D) / np.sqrt(D), np.array([1, 1, 0]) / np.sqrt(2)):
        rows += [long - 0.03 * lean, -long - 0.03 * lean, long + 0.03 * lean]
    rows += [row / np.linalg.norm(row) for row in rng.normal(size=(4, D))]
    if made.facts.storage == "fixed":
        rows = [within_norm(row * made.facts.l2_units, made.facts.l2_units) for row in rows]
    else:
        rows = [row * scale for row in rows for scale in (1.0, 1e6)]
        rows += [np.array(row) for row in ([1e300, -1e300, 1.7e308], [5e-324, 0, 0])]
        rows += [np.array(row) for row in ([np.nan, 1, 1], [np.inf, 1, 1], [0, -np.inf, 0])]
    return [(row, y) for row in rows for y in (-1.0, 1.0)]


def weights(rng: np.random.Generator) -> list[np.ndarray]:
    lean = np.array([1.0, -1.0, 0.0])
    extreme = [np.zeros(D), 1e4 * lean, -1e4 * lean, 1e300 * lean, np.full(D, np.nan)]
    return [*extreme, rng.normal(size=D)]


def data(made: Plan, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(9)
    x = rng.integers(-2300, 2300, (n, D))
    x = x.astype(np.int16) if made.facts.storage == "fixed" else x / 1000
    return x, rng.choice([-1.0, 1.0], n)
