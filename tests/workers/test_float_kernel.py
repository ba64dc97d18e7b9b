"""The float64 pass against exact arithmetic: clipping, truncation and the bound, for any float and any
number of columns."""

from fractions import Fraction
from math import inf, isqrt, nan

import numpy as np
import pytest
from numba import njit

from service.planning.losses.logistic import Logistic
from service.planning.losses.squared import Squared
from workers.arrays import read_only
from workers.kernels.gradients import GROUP, add_float
from workers.kernels.losses import exact_slope
from workers.kernels.simd import FLOAT_LANES, convert

LOGISTIC, SQUARED = exact_slope(Logistic()), exact_slope(Squared())
BOUNDS = (1, 2, 1000, 2**30)
NASTY = [0.0, -0.0, 5e-324, -1e-300, 1e-291, 1e-289, -1e-150, 1e-9, 1.0, -1.0, 3.0, 1e150, -1e300]
NASTY += [1.7976931348623157e308, 2.0**480, 2.0**-480, 1e-160, -1e160]
BROKEN = [inf, -inf, nan]
WIDTHS = [*range(1, 41), 100, 1000]
norms = pytest.mark.parametrize("use_l1", [False, True], ids=["l2", "l1"])


def one_by_one(x, y, weights, loss, clip, bound, use_l1):
    """What each row adds by itself."""
    totals = np.zeros(x.shape, dtype=np.int64)
    x, y = read_only(np.ascontiguousarray(x)), read_only(y)
    for i in range(len(x)):
        add_float(totals[i], x[i : i + 1], y[i : i + 1], weights, loss, clip, bound, use_l1)
    return totals


def within(v, bound, use_l1):
    v = [int(entry) for entry in v]
    return sum(map(abs, v)) <= bound if use_l1 else sum(e * e for e in v) <= bound**2


def clipped(row, slope, clip, bound, use_l1):
    """The gradient in units before truncation: exact, but for a root taken to 2^-200."""
    gradient = [Fraction(slope) * Fraction(entry) for entry in row]
    if use_l1:
        norm = sum(map(abs, gradient))
    else:
        squares = sum(g * g for g in gradient)
        lift = 2 ** max(0, 400 + squares.denominator.bit_length() - squares.numerator.bit_length())
        norm = Fraction(isqrt(int(squares * lift * lift)), lift)
    return [g * bound / max(norm, Fraction(clip)) for g in gradient]


def adversarial(rng, rows, columns, values):
    """Mixtures of the values, of one value and ordinary ones, and of random exponents."""
    x = rng.choice(values, size=(rows, columns))
    x[::4] = rng.normal(size=x[::4].shape)
    x[::4, rng.integers(columns)] = rng.choice(values, size=len(x[::4]))
    exponents = rng.uniform(-320, 308, size=x[1::4].shape)
    x[1::4] = rng.choice([-1.0, 1.0], size=exponents.shape) * 10.0**exponents
    return x


@norms
@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("clip", [1e-9, 1.0, 1e9, 1e299])
@pytest.mark.parametrize("columns", [1, 2, 3, 7, 8, 9, 17])
def test_it_is_the_clipped_gradient_cut_to_integers(columns, clip, bound, use_l1):
    """Off by the float error of the factor at most, which shows only next to an integer."""
    rng = np.random.default_rng(columns)
    x = adversarial(rng, 60, columns, NASTY)
    y = rng.choice([-1.0, 1.0, 1e-5, -1e200], 60)
    got = one_by_one(x, y, np.zeros(columns), SQUARED, clip, bound, use_l1)
    for row, label, v in zip(x.tolist(), y.tolist(), got.tolist(), strict=True):
        assert within(v, bound, use_l1)
        if max(map(abs, row)) < 1e-290:
            assert not any(v)
            continue
        for units, wanted in zip(v, clipped(row, -label, clip, bound, use_l1), strict=True):
            slack = abs(wanted) * Fraction(1, 2**29) + Fraction(1, 2**40)  # shrunk twice, at most
            assert abs(wanted) - 1 - slack < abs(units) <= abs(wanted) + slack
            assert units * wanted >= 0


@norms
@pytest.mark.parametrize("bound", BOUNDS)
def test_no_record_passes_the_bound_and_a_broken_one_adds_nothing(bound, use_l1):
    rng = np.random.default_rng(bound % 97)
    nonzero = 0
    for columns in WIDTHS:
        x = adversarial(rng, 48, columns, [*NASTY, *BROKEN] if columns % 3 else NASTY)
        y = rng.choice([-1.0, 1.0, 1e300, 5e-324, *BROKEN], 48, p=[0.4, 0.4, *[0.04] * 5])
        weights = rng.choice([0.0, 1.0, -1e-5, 1e300], columns)
        for loss in (SQUARED, LOGISTIC):
            got = one_by_one(x, y, weights, loss, 1e-6, bound, use_l1)
            broken = ~np.isfinite(x).all(axis=1) | np.isnan(y)
            assert all(within(v, bound, use_l1) for v in got)
            assert not got[broken].any()
            nonzero += int(got.any(axis=1).sum())
    assert nonzero > 300  # at a bound of 1 nothing is left of rows that lean to no axis


@norms
@pytest.mark.parametrize("bound", BOUNDS)
def test_rows_on_the_bound_stay_there(bound, use_l1):
    """Norms that are exact in integers: rounding up by one bit would pass the bound."""
    for columns in (1, 4, 9, 16, 25, 64, 100, 400):
        for scale in (1e-289, 1e-150, 3.7, 1e150, 1e300):
            row = np.full((1, columns), scale)
            (v,) = one_by_one(row, np.ones(1), np.zeros(columns), SQUARED, 1e-300, bound, use_l1)
            share = bound // columns if use_l1 else bound // isqrt(columns)
            assert within(v, bound, use_l1)
            assert set(v.tolist()) <= {-share, -share + 1, -share + 2}


@norms
@pytest.mark.parametrize("columns", WIDTHS)
def test_a_sum_is_the_sum_of_its_rows_for_any_number_of_rows_and_columns(columns, use_l1):
    rng = np.random.default_rng(columns)
    for rows in (0, 1, GROUP - 1, GROUP, GROUP + 1, 3 * GROUP + 2):
        x = rng.normal(size=(rows, columns)) * 10.0 ** rng.uniform(-3, 3, (rows, 1))
        x[rows // 2 :: 5] *= 1e200
        x[rows // 3 :: 7] = nan
        y, weights = rng.choice([-1.0, 1.0], rows), rng.normal(size=columns)
        total = np.full(columns, 7, dtype=np.int64)
        add_float(total, read_only(x), read_only(y), weights, LOGISTIC, 1.0, 2**30, use_l1)
        alone = one_by_one(x, y, weights, LOGISTIC, 1.0, 2**30, use_l1)
        assert np.array_equal(total - 7, alone.sum(axis=0))


@pytest.mark.parametrize("columns", [*range(1, 2 * FLOAT_LANES + 2), 100])
def test_every_column_counts_once_in_margin_and_size(columns):
    """Squared loss at y = 0: the gradient of a unit row is its column's weight along that column."""
    for j in range(columns):
        row, weights = np.zeros((1, columns)), np.arange(1.0, columns + 1)
        row[0, j] = 1.0
        for use_l1 in (False, True):
            (v,) = one_by_one(row, np.zeros(1), weights, SQUARED, 1024.0, 1024, use_l1)
            assert v[j] == j + 1 and np.count_nonzero(v) == 1


def test_the_integer_check_sees_sums_that_would_wrap():
    """Sixteen units of 2^30 have squares that sum to 2^64: zero, were the sum to wrap. No gradient
    gets there, so the step is asked by itself, with a factor that no caller would give."""

    @njit
    def fits(x, factor, keep, limit, use_l1):
        ends, v = np.zeros((1, 8)), np.zeros((1, x.shape[1] + 8), dtype=np.int64)
        return convert(x, 0, ends, 0, factor, keep, limit, use_l1, v), v

    for columns in (8, 16, 32, 64, 128, 1024):
        x = np.ones((1, columns))
        for factor in (2.0**28, 2.0**29, 2.0**30, 2.0**31, 2.0**40, 1e300, inf, nan, -(2.0**31)):
            good, v = fits(x, factor, -1, 2**60, False)
            assert np.abs(v).max() <= 2**31
            assert good == (sum(int(e) ** 2 for e in v[0]) <= 2**60)
            good, v = fits(x, factor, 0, 1, False)
            assert good and not v.any()
