"""Vector code and its portable twin: the same bits for any width, any number of rows, any float."""

from math import inf, nan
from pathlib import Path

import numpy as np
import pytest
from numba import njit

from workers.arrays import read_only
from workers.kernels import simd
from workers.kernels.simd import floats, madd, portable

WIDTHS = [1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 48, 100]
COUNTS = [1, 15, 16, 17, 40, simd.BLOCK]
NASTY = [0.0, -0.0, 5e-324, -1e-300, 1e-9, 1.0, -1.0, 2.0**30, 1e150, -1e300, inf, -inf, nan]
norms = pytest.mark.parametrize("use_l1", [False, True], ids=["l2", "l1"])


def test_this_machine_can_show_it():
    """The tests below compare something only where both twins are compiled."""
    assert madd.AVAILABLE and floats.AVAILABLE, "run the tests on an x86 CPU with AVX2 and FMA"
    assert simd.measure is floats.measure and simd.convert is floats.convert


def rows(columns, count, seed=0):
    rng = np.random.default_rng(seed + columns + 1000 * count)
    x = read_only(rng.integers(-4095, 4096, (count + 3, columns), dtype=np.int16))
    return rng, x


def layouts(columns):
    return simd.Layout(columns), simd.Layout(columns, fast=False)


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_layout_pads_what_it_unpads(columns):
    for layout in layouts(columns):
        values = np.arange(1, 3 * columns + 1, dtype=np.int16).reshape(3, columns)
        padded = layout.pad(values)
        assert padded.shape == (3, layout.size) and not padded.flags.writeable
        assert np.array_equal(layout.unpad(padded.astype(np.int64)), values)
        assert np.count_nonzero(padded) == values.size
    assert layouts(columns)[0].fast


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("columns", WIDTHS)
def test_margins_are_the_exact_products(columns, count):
    rng, x = rows(columns, count)
    weights = rng.integers(-2000, 2000, columns).astype(np.int16)
    expected = x[2 : 2 + count].astype(np.int64) @ weights.astype(np.int64)
    for layout in layouts(columns):
        out = np.empty(count, dtype=np.int32)
        simd.margins(x, 2, layout.pad(weights), layout.fast, out)
        assert np.array_equal(out, expected.astype(np.int32))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("columns", WIDTHS)
def test_margins_of_several_weights_are_the_exact_products(columns, count):
    rng, x = rows(columns, count)
    weights = rng.integers(-2000, 2000, (2 * simd.SIDE, columns)).astype(np.int16)
    expected = weights[simd.SIDE - 1 : -1].astype(np.int64) @ x[2 : 2 + count].astype(np.int64).T
    for layout in layouts(columns):
        out = np.full((simd.SIDE, simd.BLOCK), 7, dtype=np.int32)
        padded = layout.pad(weights)
        simd.margins_each(x, 2, count, padded, simd.SIDE - 1, layout.fast, out)
        assert np.array_equal(out[:, :count], expected.astype(np.int32))
        assert np.all(out[:, count:] == 7)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("columns", WIDTHS)
def test_sums_are_exact(columns, count):
    rng, x = rows(columns, count)
    q = rng.choice([-32767, 32767, 5], (3, simd.BLOCK)).astype(np.int16)
    for layout in layouts(columns):
        one = np.zeros(layout.size, dtype=np.int64)
        simd.accumulate(one, x, 2, q[0, :count], layout.fast)
        expected = q[0, :count].astype(np.int64) @ x[2 : 2 + count].astype(np.int64)
        assert np.array_equal(layout.unpad(one), expected)
        each = np.zeros((3, layout.size), dtype=np.int64)
        simd.accumulate_each(each, x[:count], q, layout.fast)
        expected = q[:, :count].astype(np.int64) @ x[:count].astype(np.int64)
        assert np.array_equal(layout.unpad(each), expected)


def wrapped(function):
    """A function that Python can call, which an intrinsic is not."""

    @njit
    def call(*arguments):
        return function(*arguments)

    return call


MEASURE = [wrapped(module.measure) for module in (floats, portable)]
CONVERT = [wrapped(module.convert) for module in (floats, portable)]
MARGINS = [wrapped(module.float_margins4) for module in (floats, portable)]


def float_rows(columns, count=24):
    """(x, the last columns of its rows, weights with zeros behind them)."""
    rng = np.random.default_rng(columns)
    x = rng.normal(size=(count, columns)) * 10.0 ** rng.uniform(-9, 9, (count, columns))
    x[::3] = rng.choice(NASTY, size=x[::3].shape)
    whole = columns - columns % simd.FLOAT_LANES
    ends, weights = np.zeros((count, simd.FLOAT_LANES)), np.zeros(whole + simd.FLOAT_LANES)
    ends[:, : columns - whole] = x[:, whole:]
    weights[:columns] = rng.normal(size=columns)
    return read_only(x), ends, weights


def bits(values):
    """Of floats, with one NaN: its sign and its digits mean nothing."""
    values = np.array(values, dtype=np.float64)
    values[np.isnan(values)] = nan
    return values.view(np.int64).tolist()


@norms
@pytest.mark.parametrize("columns", WIDTHS)
def test_measures_have_the_same_bits(columns, use_l1):
    x, ends, weights = float_rows(columns)
    for scale in (1.0, 2.0**700, 2.0**-700):
        for i in range(len(x)):
            vector, plain = (f(x, i, ends, i, scale, weights, use_l1) for f in MEASURE)
            assert bits(vector) == bits(plain)


@norms
@pytest.mark.parametrize("columns", WIDTHS)
def test_conversions_have_the_same_bits(columns, use_l1):
    x, ends, weights = float_rows(columns)
    finite = np.isfinite(x).all(axis=1)
    for factor in (1.0, -3e8, 2.0**31, 1e-5, 1e300):
        for limit in (0, 10**6, 2**60):
            for i in np.flatnonzero(finite):
                v = np.zeros((2, *ends.shape[:1], weights.size), dtype=np.int64)
                fits = [
                    f(x, i, ends, i, factor, mask, limit, use_l1, out)
                    for f, out in zip(CONVERT, v, strict=True)
                    for mask in (0, -1)
                ]
                assert fits[:2] == fits[2:] and fits[0]
                assert np.array_equal(*v)


@pytest.mark.parametrize("columns", WIDTHS)
def test_float_margins_have_the_same_bits(columns):
    rng, x = rows(columns, 8)
    weights = rng.normal(size=columns) * 10.0 ** rng.uniform(-9, 9, columns)
    vector, plain = np.empty((2, simd.TOGETHER))
    for first in (0, 3):
        for function, out in zip(MARGINS, (vector, plain), strict=True):
            function(x, first, weights, out)
        assert bits(vector) == bits(plain)


def test_nothing_outside_the_folder_spells_out_vectors():
    folder = Path(simd.__file__).parent
    for path in folder.parents[1].rglob("*.py"):
        if path.parent != folder:
            words = ("VectorType", "cgutils", "AVAILABLE", "avx")
            assert not [word for word in words if word in path.read_text()], path
