"""Sums of gradient differences: equal to a plain reference, fine however small the difference, and no
record adds more than its bound."""

from itertools import combinations
from math import isqrt

import numpy as np
import pytest

from service.planning.catalog import plan
from tests.planning.cases import facts, planned, spec
from tests.workers.exact import exact_change
from workers.data import Data
from workers.kernels import simd
from workers.randomness import Randomness
from workers.rows import WrongDataError

N, D = 150, 21
storages = pytest.mark.parametrize("storage", ["fixed", "float64"])


def data_of(storage: str, rows: int = N, columns: int = D, delta: float | None = None) -> Data:
    made = planned("gradient-descent", facts(storage, rows=rows, columns=columns), 1.0, delta)
    rng = np.random.default_rng(3)
    x = rng.integers(-700, 700, (rows, columns)).astype(np.int16)
    rows_given = x if storage == "fixed" else x / 4095
    labels = np.where(rng.uniform(size=rows) < 0.5, 1.0, -1.0)
    return Data(made, rows_given, labels, Randomness(bytes(32), "changes"))


def reference(data: Data, now, before, keep, start, stop) -> np.ndarray:
    x, y = np.asarray(data._rows._x[start:stop], dtype=float), data._rows._y[start:stop]
    x = x / 4095 if data._plan.facts.storage == "fixed" else x
    slopes = [-y / (1 + np.exp(y * (x @ w))) for w in (now, before)]
    return (slopes[0] - keep * slopes[1]) @ x


@storages
@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("apart", [1.0, 1e-3, 1e-9])
@pytest.mark.parametrize("keep", [1.0, 0.3, 0.0])
def test_a_change_is_that_of_the_gradients_however_small(storage, fast, apart, keep, monkeypatch):
    monkeypatch.setattr(simd, "AVAILABLE", simd.AVAILABLE and fast)
    data, rng = data_of(storage), np.random.default_rng(1)
    before = rng.normal(size=D)
    now = before + apart * rng.normal(size=D) / 5
    size = 1.0 if storage == "fixed" else np.sqrt(D) * 0.2  # rows are clipped as vectors, or slopes
    bound = (0.25 * keep * np.linalg.norm(now - before) * 1.5 + (1 - keep)) * size
    exact = exact_change(data, now, before, keep, bound, 5, 141)
    found, expected = (
        exact * data._sums.change_step(bound),
        reference(data, now, before, keep, 5, 141),
    )
    # fixed: slopes to half of 2^-15 of the bound, a common shift of both by 2^-15 of the weights
    tolerance = 2.0**-13 if storage == "fixed" else 1e-5
    assert np.abs(found - expected).max() <= tolerance * bound * 12


def test_both_inner_loops_give_the_same_bits(monkeypatch):
    rng = np.random.default_rng(2)
    now, before = rng.normal(size=(2, D))
    totals = []
    for fast in (True, False):
        monkeypatch.setattr(simd, "AVAILABLE", simd.AVAILABLE and fast)
        totals.append(exact_change(data_of("fixed"), now, before, 0.5, 1.0, 0, N).tolist())
    assert totals[0] == totals[1]


@storages
@pytest.mark.parametrize("delta", [None, 0.0])
def test_no_exchange_moves_a_change_beyond_the_lattice_s_bound_and_one_comes_near(storage, delta):
    """Whatever weights, labels and bound: a hostile pair of neighbours, the slopes far beyond it."""
    d = 3
    parameters = {"clip": 1.0} if storage == "float64" else {}
    job = spec("gradient-descent", 1.0, delta, loss="squared", parameters=parameters)
    made = plan(job, facts(storage, rows=4, columns=d))
    unit = 4095 if storage == "fixed" else 1.0
    rows = [np.zeros(d), *(unit * np.eye(d)), *(-unit * np.eye(d))]
    rows += [
        np.trunc(unit * np.array(row) / 3**0.5 * 1000) / 1000 for row in ([1, 1, 1], [-1, 1, -1])
    ]
    rows += (
        [] if storage == "fixed" else [np.array(r) for r in ([1e300, -1e300, 0], [np.nan, 1, 1])]
    )
    farthest, sensitivity = 0.0, made.lattice.release().sensitivity
    hostile = [np.zeros(d), np.full(d, 1e4), np.full(d, -1e300), np.full(d, np.nan)]
    for now, before in combinations(hostile, 2):
        for bound, keep in ((1.0, 1.0), (1e-12, 0.7), (1e-3, 0.0)):
            sums = []
            for row in rows:
                for label in (-1.0, 1.0):
                    x = np.array([rows[1], row, rows[2], rows[3]])
                    x = x.astype(np.int16) if storage == "fixed" else x
                    data = Data(
                        made, x, np.array([1.0, label, 1.0, -1.0]), Randomness(bytes(32), "m")
                    )
                    sums.append(
                        [int(v) for v in exact_change(data, now, before, keep, bound, 0, 4)]
                    )
            for a, b in combinations(sums, 2):
                moved = [p - q for p, q in zip(a, b, strict=True)]
                squares = sum(m * m for m in moved)
                l2 = isqrt(squares) + (isqrt(squares) ** 2 < squares)
                farthest = max(farthest, sum(map(abs, moved)) if delta == 0.0 else l2)
    assert sensitivity / 1.5 <= farthest <= sensitivity


def test_a_change_needs_a_bound_rows_and_a_loss_of_one_margin():
    data, w = data_of("fixed"), np.zeros(D)
    for bound, start, stop in ((0.0, 0, N), (float("nan"), 0, N), (1.0, 0, N + 1), (1.0, 4, 4)):
        with pytest.raises(WrongDataError):
            exact_change(data, w, w, 1.0, bound, start, stop)
    median = plan(spec("gradient-descent", loss="geometric_median"), facts(rows=N, columns=D))
    guarded = Data(
        median, np.zeros((N, D), dtype=np.int16), np.zeros(N), Randomness(bytes(32), "m")
    )
    with pytest.raises(WrongDataError):
        exact_change(guarded, w, w, 1.0, 1.0, 0, N)
