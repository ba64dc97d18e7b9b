"""The kernels: equal to a plain reference, and no record can add more than the Plan's bound."""

from math import exp, inf, isqrt, nan, sqrt, trunc

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import workers.rows
from service.planning.losses.logistic import Logistic
from service.planning.losses.squared import Squared
from service.planning.sets.l1_ball import L1Ball
from service.planning.sets.l2_ball import L2Ball
from service.planning.sets.simplex import Simplex
from tests.planning.cases import facts, planned
from tests.workers.exact import exact_sum
from workers.arrays import integer_weights, read_only
from workers.data import Data
from workers.kernels import simd
from workers.kernels.gradients import add_fixed, add_float
from workers.kernels.losses import derivative64, exact_slope, exponential32, straight32
from workers.randomness import Randomness

LOGISTIC, SQUARED = exact_slope(Logistic()), exact_slope(Squared())
CODES = {"logistic": LOGISTIC, "squared": SQUARED}
BOUNDS = (1, 2, 3, 100, 32767, 2**30)


def fixed_sum(x, y, weights, loss, scale, bound, margin_step=1.0, fast=False):
    """What add_fixed adds to zero, in the order of columns."""
    layout = simd.Layout(x.shape[1], fast)
    padded = layout.pad(np.asarray(weights))
    total = np.zeros(layout.size, dtype=np.int64)
    f = np.float32
    labels = read_only(np.asarray(y).astype(f))
    rows = read_only(x.astype(np.int16))
    add_fixed(total, rows, labels, padded, f(margin_step), loss, f(scale), f(bound), layout.fast)
    return [int(t) for t in layout.unpad(total)]


def float_sum(x, y, weights, loss, clip, bound, use_l1):
    total = np.zeros(x.shape[1], dtype=np.int64)
    add_float(total, read_only(x), read_only(y), weights, loss, clip, bound, use_l1)
    return [int(t) for t in total]


def slope(loss, margin, y):
    return -y / (1 + exp(y * margin)) if loss == LOGISTIC else margin - y


def size(vector, use_l1):
    """A norm that is compared with `bound`: l1, or l2 rounded up, in Python's integers."""
    if use_l1:
        return sum(abs(v) for v in vector)
    squares = sum(v * v for v in vector)
    return isqrt(squares - 1) + 1 if squares else 0


# --- equal to a reference -------------------------------------------------------------------------


SHAPES = [(1, 16), (15, 17), (16, 31), (50, 32), (33, 100), (300, 113), (64, 128)]
NARROW = [(1, 1), (50, 3), (40, 15)]


def example_rows(rows, columns):
    rng = np.random.default_rng(rows + columns)
    x = rng.integers(-4095, 4096, size=(rows, columns))
    x[:, 0] = 1  # so that a row's sum shows its multiplier
    weights = rng.integers(-300, 301, size=columns)
    return x, rng.choice([-1.0, 1.0], rows), weights


@pytest.mark.parametrize("loss", CODES.values(), ids=CODES)
@pytest.mark.parametrize(("rows", "columns"), [*NARROW, *SHAPES])
def test_the_fixed_kernel_is_the_sum_of_integer_multiples(loss, rows, columns):
    x, y, weights = example_rows(rows, columns)
    expected = [0] * columns
    for row, label in zip(x.tolist(), y.tolist(), strict=True):
        margin = sum(a * int(b) for a, b in zip(row, weights, strict=True)) * 1e-6
        single = fixed_sum(np.array([row]), [label], weights, loss, 700.0, 1000, 1e-6)
        q = single[0]
        wanted = max(-1000.0, min(1000.0, slope(loss, margin, label) * 700.0))
        assert abs(q - wanted) <= 0.501 and single == [q * entry for entry in row]
        expected = [t + q * entry for t, entry in zip(expected, row, strict=True)]
    assert fixed_sum(x, y, weights, loss, 700.0, 1000, 1e-6) == expected


@pytest.mark.parametrize("loss", CODES.values(), ids=CODES)
@pytest.mark.parametrize("bound", [1, 700, 32767])
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_vector_instructions_give_the_same_bits(loss, bound, rows, columns):
    assert simd.AVAILABLE, "this machine cannot show it: run the tests on an x86 CPU with AVX2"
    x, y, weights = example_rows(rows, columns)
    plain, vector = (
        fixed_sum(x, y, weights, loss, 900.0, bound, 1e-6, fast) for fast in (False, True)
    )
    assert vector == plain and any(plain)


def test_sixteen_of_the_largest_products_stay_within_int32():
    x, weights = np.full((64, 16), 4095), np.zeros(16)
    got = fixed_sum(x, np.full(64, -1.0), weights, SQUARED, 1e9, 32767, fast=simd.AVAILABLE)
    assert got == [64 * 4095 * 32767] * 16


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=200),
    st.integers(1, 2**21),
)
def test_integer_weights_leave_no_margin_beyond_int32(weights, l2_units):
    weights = np.array(weights)
    units, worth = integer_weights(weights, l2_units)
    exact = [int(u) for u in units]
    assert max(map(abs, exact)) <= 32767
    assert sum(u * u for u in exact) * l2_units**2 < 2**62
    assert np.abs(units * worth - weights).max() <= 0.5000001 * worth


@pytest.mark.parametrize("use_l1", [False, True])
@pytest.mark.parametrize("loss", CODES.values(), ids=CODES)
@pytest.mark.parametrize("clip", [0.01, 1.0, 100.0])
def test_the_float_kernel_is_the_sum_of_clipped_and_truncated_gradients(loss, clip, use_l1):
    rng = np.random.default_rng(3)
    x, y, w = rng.normal(size=(60, 5)) * 3, rng.choice([-1.0, 1.0], 60), rng.normal(size=5)
    bound, expected = 2**20, [0] * 5
    for row, label in zip(x.tolist(), y.tolist(), strict=True):
        margin = 0.0
        for entry, weight in zip(row, w.tolist(), strict=True):
            margin += entry * weight
        gradient = [slope(loss, margin, label) * entry for entry in row]
        norm = sum(map(abs, gradient)) if use_l1 else sum(g * g for g in gradient) ** 0.5
        units = [trunc(g * min(1.0, clip / norm) / clip * bound) for g in gradient]
        expected = [t + v for t, v in zip(expected, units, strict=True)]
    # by the textbook's order of operations a truncation may fall one unit to the other side
    got = float_sum(x, y, w, loss, clip, bound, use_l1)
    assert max(abs(g - e) for g, e in zip(got, expected, strict=True)) <= 3


@pytest.mark.parametrize("use_l1", [False, True])
@pytest.mark.parametrize("clip", [1e-9, 0.01, 1.0, 1e9])
def test_the_float_kernel_is_its_reference_to_the_last_unit(clip, use_l1):
    rng = np.random.default_rng(4)
    x = rng.normal(size=(80, 6)) * 10.0 ** rng.uniform(-12, 12, size=(80, 1))
    y, bound, expected = rng.normal(size=80), 2**30, [0] * 6
    for row, label in zip(x.tolist(), y.tolist(), strict=True):
        largest, total = max(map(abs, row)), 0.0
        for entry in row:
            total += abs(entry / largest) if use_l1 else abs(entry / largest) ** 2
        norm, reach = total if use_l1 else sqrt(total), abs(label) * largest
        factor = bound / norm if reach * norm > clip else reach / clip * bound
        factor = -factor if label > 0 else factor  # at w = 0 the slope is -y
        while size(v := [trunc(entry / largest * factor) for entry in row], use_l1) > bound:
            factor *= 1 - 2**-30
        expected = [t + entry for t, entry in zip(expected, v, strict=True)]
    assert float_sum(x, y, np.zeros(6), SQUARED, clip, bound, use_l1) == expected


@pytest.mark.parametrize(
    ("row", "clip", "bound", "units"),
    [
        ([3.0, 4.0], 5.0, 10, [6, 8]),  # on the clip
        ([3.0, 4.0], 50.0, 100, [6, 8]),  # below it
        ([30.0, 40.0], 5.0, 10, [6, 8]),  # above it
        ([3e300, 4e300], 5.0, 10, [6, 8]),
        ([0.0, 1e-320], 5.0, 10, [0, 0]),
        ([1.0, 0.0], 1.0, 1, [1, 0]),
        ([1.0, 1.0], 1.0, 1, [0, 0]),  # (0.7, 0.7) is cut to zero, not rounded to (1, 1)
        ([-7.0, 0.0], 7.0, 2**30, [-(2**30), 0]),
    ],
)
def test_a_gradient_in_units(row, clip, bound, units):
    """Squared loss at w = 0 and y = -1 has slope 1: the gradient is the row."""
    got = float_sum(np.array([row]), np.array([-1.0]), np.zeros(2), SQUARED, clip, bound, False)
    assert got == units


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=6), st.floats(0.1, 1e4))
def test_a_gradient_below_the_clip_is_off_by_less_than_one_unit(row, clip):
    got = float_sum(
        np.array([row]), np.array([-1.0]), np.zeros(len(row)), SQUARED, clip, 2**20, False
    )
    if np.linalg.norm(row) <= clip * (1 - 1e-9):
        for g, entry in zip(got, row, strict=True):
            assert abs(g) <= abs(entry) / clip * 2**20 * (1 + 1e-8)
            assert abs(g - entry / clip * 2**20) < 1.01


# --- the order of rows and the size of blocks -----------------------------------------------------


@pytest.mark.parametrize("delta", [None, 0.0], ids=["l2", "l1"])
@pytest.mark.parametrize("storage", ["fixed", "float64"])
def test_a_sum_depends_neither_on_the_order_of_rows_nor_on_blocks(storage, delta, monkeypatch):
    rng = np.random.default_rng(1)
    made = planned("gradient-descent", facts(storage, 200, 6), 1.0, delta)
    x = rng.integers(-1600, 1600, (200, 6)).astype(np.int16)
    x = x if storage == "fixed" else x.astype(np.float64) * 10.0 ** rng.uniform(-9, 9, (200, 1))
    y, w = rng.choice([-1.0, 1.0], 200), rng.normal(size=6)
    sums = set()
    for block in (1, 7, 64, 1025, 1 << 20):
        monkeypatch.setattr(workers.rows, "BLOCK_BYTES", block)
        monkeypatch.setattr(workers.rows, "THREADED", 1 if block % 2 else 2**40)
        monkeypatch.setattr(workers.rows, "thread_count", lambda count=block: min(count, 8))
        for order in (np.arange(200), np.arange(200)[::-1], rng.permutation(200)):
            noisy = Data(made, x[order], y[order], Randomness(bytes(32), ""))
            sums.add(tuple(exact_sum(noisy, w, 0, 200).tolist()))
            parts = [exact_sum(noisy, w, low, low + 50) for low in (0, 50, 100, 150)]
            sums.add(tuple(sum(parts).tolist()))
    assert len(sums) == 1 and any(next(iter(sums)))


# --- no record adds more than the bound -----------------------------------------------------------

anything = st.floats(width=64) | st.sampled_from(
    [0.0, -0.0, nan, inf, -inf, 1e300, -1e300, 1.7e308, 5e-324, -5e-324, 2.3e-308, 1.0, -1.0]
)
rows = st.integers(1, 6).flatmap(
    lambda d: st.tuples(*[st.lists(anything, min_size=d, max_size=d)] * 2)
)
losses = st.sampled_from([LOGISTIC, SQUARED])
NASTY = [1.7e308, 1e300, -1.7e308, 5e-324]


@given(
    rows,
    anything,
    losses,
    st.floats(1e-9, 1e9),
    st.sampled_from(BOUNDS),
    st.booleans(),
)
@example((NASTY, [0.0] * 4), 1.0, SQUARED, 1e-9, 2**30, False)
@example((NASTY, [0.0] * 4), 1.0, LOGISTIC, 1e9, 2**30, True)
@example((NASTY, [nan] * 4), 1.0, SQUARED, 1.0, 2**30, False)
@example(([1.0, nan], [1.0, 1.0]), 1.0, SQUARED, 1.0, 3, False)
@example(([inf], [0.0]), 1.0, SQUARED, 1.0, 3, False)
@example(([5e-324] * 3, [0.0] * 3), -1.7e308, SQUARED, 1e-9, 2**30, True)
@example(([1.0] * 6, [0.0] * 6), -1.0, SQUARED, 1.0, 2**30, False)
def test_no_float_row_exceeds_the_bound_in_exact_integers(
    row_and_weights, y, loss, clip, bound, l1
):
    row, weights = map(np.array, row_and_weights)
    got = float_sum(row[None, :], np.array([y]), weights, loss, clip, bound, l1)
    assert size(got, l1) <= bound
    if not np.isfinite(row).all() or np.isnan(y):
        assert not any(got)


@pytest.mark.parametrize("use_l1", [False, True])
@pytest.mark.parametrize("bound", BOUNDS)
def test_no_clipped_row_exceeds_the_bound_and_most_come_near(bound, use_l1):
    """Rows far above the clip, where every rounding is tempted to overshoot."""
    rng = np.random.default_rng(11)
    sizes = []
    for columns in (1, 2, 3, 5, 50, 1000):
        for _ in range(60):
            row = rng.normal(size=columns) * 10.0 ** rng.uniform(-3, 300)
            y = np.array([float(rng.choice([-1, 1]))])
            got = float_sum(row[None], y, np.zeros(columns), SQUARED, 1e-9, bound, use_l1)
            sizes.append(size(got, use_l1))
    assert max(sizes) == bound
    if bound == 2**30:
        assert min(sizes) > bound * (1 - 1e-5)


@given(st.integers(-32768, 32767), anything, losses, anything, st.sampled_from(BOUNDS[:-1]))
@example(1, nan, SQUARED, 1.0, 32767)
@example(1, inf, SQUARED, 1.0, 32767)
@example(1, 0.0, SQUARED, nan, 32767)
@example(0, 0.0, SQUARED, inf, 32767)
@example(0, -1.0, SQUARED, 32766.5000001, 32766)
@example(0, -1.0, SQUARED, 32767.4999, 32767)
def test_no_fixed_row_is_multiplied_by_more_than_the_bound(weight, y, loss, scale, bound):
    x = np.tile([1, -1, 4095, -4095, 0, 7, 1, 1], (16, 2))
    with np.errstate(over="ignore"):
        single = fixed_sum(x[:1], [y], np.full(16, weight), loss, scale, bound)
        many = fixed_sum(x, [y] * 16, np.full(16, weight), loss, scale, bound, fast=simd.AVAILABLE)
    q = single[0]
    assert abs(q) <= bound
    assert single == [q * int(entry) for entry in x[0]]
    assert many == [16 * entry for entry in single]


@pytest.mark.parametrize("small", [1e-9, 2e-9, 1e-8, 3e-8])
@pytest.mark.parametrize("columns", [2, 3, 200])
def test_a_row_whose_length_rounds_away_is_shortened_in_integers(small, columns):
    """In float64 sqrt(1 + small^2) may be 1: unchecked, (2^30, 1, ...) would exceed the bound."""
    row = np.full((1, columns), small)
    row[0, 0] = 1.0
    got = float_sum(row, np.array([-1.0]), np.zeros(columns), SQUARED, 1.0, 2**30, False)
    assert 2**30 - 3 <= size(got, False) <= 2**30


def test_a_derivative_that_is_no_number_adds_nothing():
    assert fixed_sum(np.array([[3, -4]]), [nan], [1, 0], SQUARED, 1.0, 100) == [0, 0]


@pytest.mark.parametrize(
    ("loss", "margin", "y", "value"),
    [
        (LOGISTIC, 0.0, 1.0, -0.5),
        (LOGISTIC, 0.0, -1.0, 0.5),
        (LOGISTIC, 1e300, 1.0, 0.0),
        (LOGISTIC, -1e300, 1.0, -1.0),
        (LOGISTIC, 1e300, -1.0, 1.0),
        (LOGISTIC, inf, 1.0, 0.0),
        (LOGISTIC, -inf, 1.0, -1.0),
        (SQUARED, 3.0, 1.0, 2.0),
        (SQUARED, -inf, 1.0, -inf),
    ],
)
def test_a_derivative(loss, margin, y, value):
    assert derivative64(loss, margin, y) == value


@given(st.floats(allow_nan=False), st.sampled_from([-1.0, 1.0]))
def test_the_logistic_derivative_never_leaves_its_range(margin, y):
    assert 0 <= -y * derivative64(LOGISTIC, margin, y) <= 1
    with np.errstate(over="ignore"):
        short = np.float32(margin)
    assert 0 <= -y * exponential32(LOGISTIC.code, LOGISTIC.line, short, np.float32(y)) <= 1


@given(st.floats(-200, 200, width=32), st.sampled_from([-1.0, 1.0]))
def test_the_short_derivative_is_right_to_twenty_bits(margin, y):
    short = exponential32(LOGISTIC.code, LOGISTIC.line, np.float32(margin), np.float32(y))
    assert abs(short - derivative64(LOGISTIC, margin, y)) < 2**-20
    short = straight32(SQUARED.code, SQUARED.line, np.float32(margin), np.float32(y))
    assert short == np.float32(margin - y)


@given(st.integers(-30000, 30000), st.sampled_from([-1.0, 1.0]), st.sampled_from(BOUNDS[:-1]))
def test_a_quantised_derivative_is_the_nearest_or_the_bound(margin, y, bound):
    (q,) = fixed_sum(np.array([[1]]), [y], [margin], SQUARED, 10.0, bound)
    assert q == max(-bound, min(bound, round((margin - y) * 10)))


@given(st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=5), st.floats(1e-9, 1e9))
def test_a_projection_ends_in_the_ball_and_moves_nothing_inside_it(w, radius):
    w = np.array(w)
    inside = L2Ball(radius=radius).project(w)
    assert np.linalg.norm(inside) <= radius * (1 + 1e-12)
    if np.linalg.norm(w) <= radius:
        assert np.array_equal(inside, w)


@given(st.lists(st.floats(-1e100, 1e100), min_size=1, max_size=5), st.floats(1e-9, 1e9))
def test_a_projection_far_from_a_small_simplex_ends_in_it(w, total):
    w = np.array(w)
    inside = Simplex(total=total).project(w)
    assert inside.min() >= 0 and inside.sum() == pytest.approx(total, rel=1e-9)
    ball = L1Ball(radius=total).project(w)
    assert np.abs(ball).sum() <= total * (1 + 1e-9)
    assert np.all(ball * w >= 0)
