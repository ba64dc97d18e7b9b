"""Softmax and the geometric median: equal to NumPy, and no record adds more than the Plan's bound."""

from itertools import combinations
from math import inf, isqrt, nan

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import workers.rows
from service.planning.catalog import plan
from service.planning.draft import Ball
from service.planning.plan import Plan
from service.planning.spec import Facts
from tests.planning.cases import facts, spec
from tests.workers.exact import exact_sum
from workers.data import Data
from workers.kernels import simd
from workers.kernels.vectors import integers
from workers.randomness import Randomness
from workers.rows import WrongDataError

NOISES = {"gaussian": None, "laplace": 0.0}
N, D, K = 6, 3, 3

losses = pytest.mark.parametrize("loss", ["softmax", "geometric_median"])
storages = pytest.mark.parametrize("storage", ["fixed", "float64"])
noises = pytest.mark.parametrize("noise", NOISES)


def planned(loss, storage, noise, rows=N, columns=D, classes=K, clip=None) -> Plan:
    """On a ball of radius 1 the median's envelope has its corner within reach of the rows."""
    about = facts(storage, rows, columns).model_dump()
    about = Facts.model_validate(about | {"label": "categorical", "classes": classes})
    parameters = {"steps": 10} | ({"clip": clip or 1.0} if clip or storage == "float64" else {})
    ball = {"set": {"radius": 1.0}, "parameters": parameters}
    return plan(spec("gradient-descent", 1.0, NOISES[noise], loss=loss, **ball), about)


def exact(made: Plan, x, y, w) -> list[int]:
    data = Data(made, x, y, Randomness(bytes(32), ""))
    return [int(v) for v in exact_sum(data, w, 0, made.facts.rows)]


def size(made: Plan, vector) -> int:
    """In the lattice's norm, never rounded down past an integer; in Python's integers."""
    if made.lattice.norm == "l1":
        return sum(map(abs, vector))
    squares = sum(v * v for v in vector)
    return isqrt(squares) + (isqrt(squares) ** 2 < squares)


def gradients(made: Plan, x, y, w) -> np.ndarray:
    """[n, dimension] by the textbook, clipped in the lattice's norm."""
    clip, norm_order = made.lattice.clip, 1 if made.lattice.norm == "l1" else 2
    if made.facts.storage == "fixed":
        x = x * made.facts.feature_step
    if made.spec.loss.kind == "softmax":
        margins = x @ w.reshape(made.facts.classes, -1).T
        p = np.exp(margins - margins.max(axis=1, keepdims=True))
        q = p / p.sum(axis=1, keepdims=True) - np.eye(made.facts.classes)[y.astype(int)]
        if made.facts.storage == "fixed":  # the derivative is clipped, not the gradient
            bound = made.lattice.derivative_units * made.lattice.step / made.facts.feature_step
            q *= np.minimum(1, bound / np.linalg.norm(q, norm_order, axis=1))[:, None]
            clip = inf
        g = (q[:, :, None] * x[:, None, :]).reshape(len(x), -1)
    else:
        g = w - x
        g *= np.minimum(made.smoothing.smoothness, 1 / np.linalg.norm(g, axis=1))[:, None]
    return g * np.minimum(1, clip / np.linalg.norm(g, norm_order, axis=1))[:, None]


def generated(made: Plan, seed=0):
    rng = np.random.default_rng(seed)
    n, d = made.facts.rows, made.facts.columns
    x = rng.normal(size=(n, d)) / np.sqrt(d)
    x /= np.maximum(1, np.linalg.norm(x, axis=1))[:, None]
    if made.facts.storage == "fixed":
        x = np.trunc(x * 4095).astype(np.int16)
    y = rng.integers(made.facts.classes, size=n).astype(np.float64)
    scale = 3.0 if made.spec.loss.kind == "softmax" else 1 / d
    return x, y, rng.normal(size=made.dimension) * scale


# --- equal to a reference ---------------------------------------------------------------------------


@losses
@storages
@noises
@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize(("rows", "columns", "classes"), [(50, 3, 2), (300, 17, 5), (129, 40, 11)])
def test_a_sum_is_the_textbooks(loss, storage, noise, clip, rows, columns, classes):
    made = planned(loss, storage, noise, rows, columns, classes, clip)
    x, y, w = generated(made)
    got = np.array(exact(made, x, y, w)) * made.lattice.step
    expected = gradients(made, x, y, w).sum(axis=0)
    # integers of fifteen bits on either side of softmax, of thirty for the median
    unit = made.lattice.clip * (2.0**-13 if loss == "softmax" else 2.0**-27)
    assert np.abs(got - expected).max() <= unit * np.sqrt(rows)
    assert np.abs(expected).max() > 100 * unit


@storages
@noises
def test_softmax_of_two_classes_is_logistic(storage, noise):
    made = planned("softmax", storage, noise, 200, 5, 2)
    x, y, w = generated(made)
    step, worth = made.lattice.step, made.facts.feature_step or 1.0
    margin = x @ (w[5:] - w[:5]) * worth
    slope = 1 / (1 + np.exp(-margin)) - y  # of class one
    sums = np.array(exact(made, x, y, w)) * step
    if storage == "fixed":
        np.testing.assert_allclose(sums[5:], slope @ x * worth, atol=0.01)
    np.testing.assert_allclose(sums[5:], -sums[:5], atol=0.01)


@noises
def test_far_below_the_corner_the_median_is_the_mean(noise):
    """The envelope is then a parabola: curvature times the sum of w - x."""
    made = planned("geometric_median", "float64", noise, 40, 4)
    b = made.smoothing.smoothness
    x = np.random.default_rng(1).normal(size=(40, 4)) * 0.01
    w = np.full(4, 0.01)
    sums = np.array(exact(made, x, np.zeros(40), w)) * made.lattice.step
    np.testing.assert_allclose(sums, b * (w - x).sum(axis=0), atol=1e-6)


@losses
@storages
@noises
def test_a_sum_depends_neither_on_the_order_of_rows_nor_on_blocks(
    loss, storage, noise, monkeypatch
):
    made = planned(loss, storage, noise, 200, 18, 4)
    x, y, w = generated(made)
    rng, sums = np.random.default_rng(1), set()
    for block in (1, 7, 64, 1025, 1 << 20):
        monkeypatch.setattr(workers.rows, "BLOCK_BYTES", block)
        monkeypatch.setattr(workers.rows, "THREADED", 1 if block % 2 else 2**40)
        monkeypatch.setattr(workers.rows, "thread_count", lambda count=block: min(count, 8))
        for order in (np.arange(200), np.arange(200)[::-1], rng.permutation(200)):
            data = Data(made, x[order], y[order], Randomness(bytes(32), ""))
            sums.add(tuple(exact_sum(data, w, 0, 200).tolist()))
            parts = [exact_sum(data, w, low, low + 50) for low in (0, 50, 100, 150)]
            sums.add(tuple(sum(parts).tolist()))
    assert len(sums) == 1 and any(next(iter(sums)))


@noises
@pytest.mark.parametrize(("rows", "columns"), [(1, 16), (15, 17), (33, 31), (300, 100)])
def test_vector_instructions_give_the_same_bits(noise, rows, columns, monkeypatch):
    assert simd.AVAILABLE, "this machine cannot show it: run the tests on an x86 CPU with AVX2"
    made = planned("softmax", "fixed", noise, rows, columns, 4)
    x, y, w = generated(made)
    vector = exact(made, x, y, w)
    monkeypatch.setattr(simd, "AVAILABLE", False)
    assert exact(made, x, y, w) == vector and any(vector)


# --- no record adds more than the bound -------------------------------------------------------------

anything = st.floats(width=64) | st.sampled_from(
    [0.0, -0.0, nan, inf, -inf, 1e300, -1e300, 1.7e308, 5e-324, -5e-324, 2.3e-308, 1.0, -1.0]
)


@given(
    st.lists(anything | st.integers(-(2**30), 2**30).map(float), min_size=1, max_size=40),
    st.sampled_from([1, 2, 3, 100, 32767, 2**30 - 1, 2**30]),
    st.booleans(),
)
@example([float(2**30)] * 32, 2**30, False)  # thirty-two squares of 2^60: twice around int64
@example([float(2**30)] * 16, 2**30, False)
@example([float(2**30), 1.0], 2**30, False)
@example([0.5, 0.5, 0.5], 1, True)
def test_integers_keep_their_norm_whatever_the_floats(values, bound, use_l1):
    out = np.full(len(values), 7, dtype=np.int32)
    integers(np.array(values), float(bound), use_l1, out)
    got = [int(v) for v in out]
    within = sum(map(abs, got)) <= bound if use_l1 else sum(v * v for v in got) <= bound**2
    assert within
    for v, value in zip(got, values, strict=True):
        assert v == 0 or v * value > 0


@given(
    st.lists(st.floats(-1, 1), min_size=1, max_size=50).filter(any),
    st.sampled_from([3, 100, 32767, 2**30]),
    st.booleans(),
)
def test_a_vector_on_the_bound_loses_at_most_one_and_a_half_units_per_entry(
    direction, bound, use_l1
):
    direction = np.array(direction)
    direction /= np.abs(direction).max()
    values = direction * (bound / np.linalg.norm(direction, 1 if use_l1 else 2))
    out = np.empty(values.size, dtype=np.int32)
    integers(values, float(bound), use_l1, out)
    assert np.abs(out - values).max() <= 1.5 + 1e-6


@pytest.mark.parametrize("dimension", [2, 30, 1000])
@pytest.mark.parametrize("use_l1", [False, True])
def test_a_vector_on_the_bound_never_counts_as_zero(dimension, use_l1):
    """Where floats are honest one step towards zero is enough: the last resort is never taken."""
    rng = np.random.default_rng(dimension)
    for _ in range(300):
        values = rng.normal(size=dimension) * 10.0 ** rng.uniform(-6, 0, size=dimension)
        bound = float(rng.choice([2**15 - 1, 2**30]))
        values *= bound / np.linalg.norm(values, 1 if use_l1 else 2) * (1 + 2e-16 * dimension)
        out = np.empty(dimension, dtype=np.int32)
        integers(values, bound, use_l1, out)
        kept = np.linalg.norm(out.astype(float), 1 if use_l1 else 2)
        assert bound - 1.5 * dimension <= kept <= bound


@given(
    st.lists(anything, min_size=D, max_size=D),
    st.lists(anything, min_size=D * K, max_size=D * K),
    st.sampled_from([0.0, 1.0, 2.0]) | anything,
    st.sampled_from(["softmax", "geometric_median"]),
    st.sampled_from(["gaussian", "laplace"]),
    st.sampled_from([1e-9, 0.1, 1.0, 1e9]),
)
@example([1e300, -1e300, 1.7e308], [1e10] * 9, 1.0, "softmax", "gaussian", 1.0)
@example([1e300, -1e300, 1.7e308], [1.7e308] * 9, 1.0, "geometric_median", "laplace", 1.0)
@example([1.0, 1.0, 1.0], [inf, 1, 1] * 3, 0.0, "softmax", "gaussian", 1.0)
@example([5e-324] * 3, [0.0] * 9, 0.0, "softmax", "laplace", 1e-9)
@example([1.7e308] * 3, [1.7e308] * 9, 7.0, "softmax", "gaussian", 1e-9)
def test_no_float_record_exceeds_the_bound_in_exact_integers(row, weights, y, loss, noise, clip):
    made = planned(loss, "float64", noise, rows=1, clip=clip)
    x, w = np.array([row]), np.array(weights)[: made.dimension]
    got = exact(made, x, np.array([y]), w)
    assert size(made, got) <= made.lattice.contribution_units
    if not np.isfinite(x).all() or np.isnan(w).any():
        assert not any(got)


@given(
    st.lists(st.integers(-2364, 2364), min_size=D, max_size=D),  # 4095/sqrt(3): any of these fits
    st.lists(anything, min_size=D * K, max_size=D * K),
    st.sampled_from([0.0, 1.0, 2.0]) | anything,
    st.sampled_from(["softmax", "geometric_median"]),
    st.sampled_from(["gaussian", "laplace"]),
)
@example([2364] * 3, [1e300, -1e300, 0] * 3, 1.0, "softmax", "gaussian")
@example([2364] * 3, [nan] * 9, 1.0, "softmax", "laplace")
@example([2364] * 3, [inf] * 9, 1.0, "geometric_median", "gaussian")
def test_no_fixed_record_exceeds_the_bound_in_exact_integers(row, weights, y, loss, noise):
    made = planned(loss, "fixed", noise, rows=1)
    w = np.array(weights)[: made.dimension]
    got = exact(made, np.array([row], dtype=np.int16), np.array([y]), w)
    assert size(made, got) <= made.lattice.contribution_units


@storages
def test_a_saturated_softmax_adds_plus_and_minus_the_row(storage):
    """p = e_0 and label 1: q is (1, -1, 0), the longest that there is."""
    made = planned("softmax", storage, "gaussian", rows=1, clip=None)
    x = np.array([[4095, 0, 0]], dtype=np.int16) if storage == "fixed" else np.array([[9.0, 0, 0]])
    got = exact(made, x, np.array([1.0]), np.array([1e4, 0, 0, 0, 0, 0, 0, 0, 0]))
    bound = made.lattice.contribution_units
    assert got[0] == -got[3] and not any(got[1:3] + got[4:])
    assert bound * (1 - 1e-3) <= size(made, got) <= bound


def test_the_median_is_not_averaged_over_a_ball():
    made = planned("geometric_median", "fixed", "gaussian")
    made = made.model_copy(update={"smoothing": Ball(radius=1.0)})
    with pytest.raises(WrongDataError):
        exact(made, np.zeros((N, D), dtype=np.int16), np.zeros(N), np.zeros(D))


@losses
def test_a_bound_beyond_what_kernels_can_hold_is_refused(loss):
    made = planned(loss, "float64", "gaussian")
    lattice = made.lattice.model_copy(update={"contribution_units": 2**31})
    made = made.model_copy(update={"lattice": lattice})
    with pytest.raises(WrongDataError):
        exact(made, np.zeros((N, D)), np.zeros(N), np.zeros(made.dimension))


# --- the attack on sensitivity ----------------------------------------------------------------------


def records(made: Plan, rng) -> list[tuple[np.ndarray, float]]:
    """Zero, axes, diagonals, opposite pairs that lean the same way along (1, -1, 0) and so share a
    saturated softmax, random ones; float rows also extreme."""
    lean = np.array([1.0, -1.0, 0.0])
    rows = [np.zeros(D), *np.eye(D), *-np.eye(D)]
    for long in (np.array([0, 0, 1.0]), np.ones(D) / np.sqrt(D)):
        rows += [long - 0.03 * lean, -long - 0.03 * lean]
    rows += [row / np.linalg.norm(row) for row in rng.normal(size=(3, D))]
    if made.facts.storage == "fixed":
        longest = [max(1.0, np.linalg.norm(row)) * 1.0001 for row in rows]
        rows = [np.trunc(4095 * row / by) for row, by in zip(rows, longest, strict=True)]
        assert all(sum(int(v) ** 2 for v in row) <= 4095**2 for row in rows)
    else:
        rows = [row * scale for row in rows for scale in (1.0, 1e6)]
        rows += [np.array(row) for row in ([1e300, -1e300, 1.7e308], [5e-324, 0, 0])]
        rows += [np.array(row) for row in ([nan, 1, 1], [inf, 1, 1], [0, -inf, 0])]
    labels = range(K) if made.spec.loss.kind == "softmax" else [0]
    return [(row, float(y)) for row in rows for y in labels]


def weights(made: Plan, rng) -> list[np.ndarray]:
    lean, d = np.tile([1.0, -1.0, 0.0], K)[: made.dimension], made.dimension
    lean[D : 2 * D] *= -1  # of two classes, one wins on either side
    extreme = [np.zeros(d), 1e4 * lean, 1e300 * lean, np.full(d, nan)]
    return [*extreme, rng.normal(size=d), rng.normal(size=d) * 0.1]


@losses
@storages
@noises
def test_no_exchange_moves_a_sum_beyond_its_sensitivity_and_one_comes_near(loss, storage, noise):
    rng = np.random.default_rng(5)
    made = planned(loss, storage, noise)
    pool = records(made, rng)
    dtype = np.int16 if storage == "fixed" else np.float64
    base = [pool[i] for i in rng.integers(len(pool), size=N)]
    x, y = np.array([row for row, _ in base], dtype=dtype), np.array([label for _, label in base])
    farthest = 0
    for place, w in enumerate(weights(made, rng)):
        results = []
        for row, label in pool:
            x[place], y[place] = row, label
            results.append(exact(made, x, y, w))
        moved = ([p - q for p, q in zip(*pair, strict=True)] for pair in combinations(results, 2))
        farthest = max(farthest, *(size(made, vector) for vector in moved))
    sensitivity = made.lattice.release().sensitivity
    print(f"{loss} {storage} {noise}: {farthest / sensitivity:.4f} of the sensitivity")
    assert sensitivity / 1.5 <= farthest <= sensitivity
