"""Sums of clipped per-record gradients of linear models, as exact integers.

One pass per call: margin, derivative, clip, quantise, accumulate. What a record adds to the sum is an
integer vector whose norm is at most the Plan's bound *by integer arithmetic*, whatever the floats
did: a NaN, an infinity or a rounding can make a contribution useless but never too large. Sums are
int64 and exact, so they do not depend on the order of rows, blocks or threads. The Plan excludes
overflow; and a wrapped sum would still be a function of the exact one.

error_model="numpy": a division by zero gives an infinity, as IEEE 754 says, and not an exception,
which would depend on the data (and keep the compiler from writing vector code).

Checked here: the bound on every contribution. Caller's duty: for fixed rows, that ||x||_2 (or
||x||_1) is at most the row bound with which the Plan was made; ingestion verified that in integers.
"""

import numpy as np
from numba import njit

from workers.kernels.losses import (
    averaged32,
    averaged64,
    bent32,
    by_loop,
    derivative64,
    exponential32,
    straight32,
)
from workers.kernels.simd import (
    BLOCK,
    FLOAT_LANES,
    accumulate,
    convert,
    margins,
    measure,
)

_f = np.float32
_i = np.int32
_HALF = _f(0.5)

_LONG, _NARROW = 4 * BLOCK, 16  # rows of a block where they are short, and up to how many columns
GROUP = 8  # float64 rows that take each step together
_TINY = 1e-290
_SMALL, _LARGE, _SCALE = 2.0**-480, 2.0**480, 2.0**700  # squares: within 2^-960..2^960 in any case


@njit(cache=True, inline="always", error_model="numpy")
def _units(slope, scale, bound):
    scaled = _f(slope * scale)
    scaled = scaled if scaled == scaled else _f(0.0)  # noqa: PLR0124 - vector code for isnan
    scaled = scaled if scaled < bound else bound
    scaled = scaled if scaled > -bound else _f(-bound)
    units = _i(np.floor(_f(scaled + _HALF)))
    units = units if units < _i(bound) else _i(bound)
    return units if units > _i(-bound) else _i(-bound)


def _quantise(margins, y, margin_step, slope, scale, bound, q):
    """q = the derivatives times `scale`, to the nearest integer, within [-bound, bound].

    A NaN counts as zero, and only values within the bound are ever converted; the clamp of integers is
    what the guarantee rests on. Losses share a loop with their like: see shapes.py.
    """
    raise NotImplementedError


def _exponential(margins, y, margin_step, slope, scale, bound, q):
    for i in range(q.size):
        at = exponential32(slope.code, slope.line, _f(_f(margins[i]) * margin_step), y[i])
        q[i] = _units(at, scale, bound)


def _straight(margins, y, margin_step, slope, scale, bound, q):
    for i in range(q.size):
        at = straight32(slope.code, slope.line, _f(_f(margins[i]) * margin_step), y[i])
        q[i] = _units(at, scale, bound)


def _bent(margins, y, margin_step, slope, scale, bound, q):
    for i in range(q.size):
        at = bent32(slope.code, slope.line, _f(_f(margins[i]) * margin_step), y[i])
        q[i] = _units(at, scale, bound)


def _averaged_in_32(margins, y, margin_step, slope, scale, bound, q):
    for i in range(q.size):
        at = averaged32(slope.code, slope, _f(_f(margins[i]) * margin_step), y[i])
        q[i] = _units(at, scale, bound)


def _averaged_in_64(margins, y, margin_step, slope, scale, bound, q):
    for i in range(q.size):
        at = averaged64(slope, np.float64(_f(margins[i]) * margin_step), np.float64(y[i]))
        q[i] = _units(_f(at), scale, bound)


by_loop(
    _quantise,
    "never",  # called once a block, and compiled in half the time
    EXPONENTIAL=_exponential,
    STRAIGHT=_straight,
    BENT=_bent,
    AVERAGED32=_averaged_in_32,
    AVERAGED64=_averaged_in_64,
)


@njit(cache=True, nogil=True, error_model="numpy")
def add_fixed(total, x, y, weights, margin_step, loss, scale, bound, fast):
    """total += sum of q x over int16 rows: |q| <= bound <= 2^15 - 1, so ||q x|| <= bound ||x||.

    `weights` are int16 units of margin_step such that no margin leaves int32, since
    ||weights||_2 ||x||_2 < 2^31 (caller's duty; else margins wrap, which no bound rests on).
    `weights`, `total` and `fast` are of one simd.Layout.
    """
    rows, block = x.shape[0], _LONG if x.shape[1] <= _NARROW else BLOCK
    m, q = np.empty(_LONG, dtype=np.int32), np.empty(_LONG, dtype=np.int16)
    for first in range(0, rows, block):
        count = min(block, rows - first)
        margins(x, first, weights, fast, m[:count])
        labels = y[first : first + count]
        _quantise(m[:count], labels, margin_step, loss, scale, bound, q[:count])
        accumulate(total, x, first, q[:count], fast)


@njit(cache=True, nogil=True, error_model="numpy")
def add_fixed_change(
    total, x, y, before, before_step, move, move_step, loss, retain, scale, bound, fast
):
    """The same with q = the nearest integer to scale (l'(m) - retain l'(m')), within [-bound, bound],
    where m' = <before, x> and m = m' + <move, x>.

    Two margins, each of weights with a step of its own: rounding `before` moves both margins alike,
    so their difference is as fine as `move` is, however short that is. Slopes are float64,
    whose differences still have digits when they are small.
    """
    rows = x.shape[0]
    m, moves = np.empty((2, BLOCK), dtype=np.int32)
    q = np.empty(BLOCK, dtype=np.int16)
    for first in range(0, rows, BLOCK):
        count = min(BLOCK, rows - first)
        margins(x, first, before, fast, m[:count])
        margins(x, first, move, fast, moves[:count])
        for r in range(count):
            there, label = m[r] * before_step, y[first + r]
            slope = derivative64(loss, there + moves[r] * move_step, label)
            slope -= retain * derivative64(loss, there, label)
            scaled = slope * scale
            scaled = scaled if scaled == scaled else 0.0  # noqa: PLR0124 - a NaN counts as zero
            scaled = scaled if abs(scaled) <= bound else (bound if scaled > 0.0 else -bound)
            q[r] = min(max(np.int64(np.rint(scaled)), -bound), bound)
        accumulate(total, x, first, q[:count], fast)


@njit(cache=True, nogil=True, error_model="numpy")
def add_float(total, x, y, weights, loss, clip, bound, use_l1, before=None, retain=0.0):
    """total += sum of v over float64 rows, v = the gradient clipped to `clip` and written in units of
    clip/bound, rounded towards zero; the norm of v is checked in integers against `bound` <= 2^30.

    A gradient with a non-finite entry counts as zero, and so does a row below 1e-290. Rows whose
    squares could leave float64's range are measured once more, scaled by a power of two, so a record
    at 1e300 is clipped like any other. Else every record takes the same work. With `before`, a
    gradient is that at `weights` less `retain` times that at `before`: one vector, clipped as one.

    A few rows at a time go through each step while they are in the nearest cache, in vectors of
    FLOAT_LANES columns (see simd/floats.py). The columns after the last whole vector are copied to
    `ends`, which has zeros behind them.
    """
    rows, columns = x.shape
    whole = columns - columns % FLOAT_LANES
    w, sums = np.zeros(whole + FLOAT_LANES), np.zeros(whole + FLOAT_LANES, dtype=np.int64)
    w_before = np.zeros(whole + FLOAT_LANES)
    w[:columns], w_before[:columns] = weights, weights if before is None else before
    ends, v = np.zeros((GROUP, FLOAT_LANES)), np.zeros((GROUP, whole + FLOAT_LANES), dtype=np.int64)
    margins, sizes, scales, factors = np.ones((4, GROUP))
    mask = np.zeros(GROUP, dtype=np.int64)  # -1, or 0 for a record that counts as zero
    limit = np.int64(bound if use_l1 else bound * bound)
    for first in range(0, rows, GROUP):
        count = min(GROUP, rows - first)
        for r in range(count):
            for j in range(whole, columns):
                ends[r, j - whole] = x[first + r, j]
        for r in range(count):
            largest, margin, size = measure(x, first + r, ends, r, 1.0, w, use_l1)
            scale = 1.0
            if _TINY < largest < _SMALL or _LARGE < largest < np.inf:
                scale = _SCALE if largest < 1.0 else 1.0 / _SCALE
                _, margin, size = measure(x, first + r, ends, r, scale, w, use_l1)
            mask[r] = -1 if largest > _TINY else 0
            margins[r], sizes[r], scales[r] = margin, size, scale
        for r in range(count):
            slope = derivative64(loss, margins[r] / scales[r], y[first + r])
            if before is not None:
                _, margin, _ = measure(x, first + r, ends, r, scales[r], w_before, use_l1)
                slope -= retain * derivative64(loss, margin / scales[r], y[first + r])
            size = sizes[r] if use_l1 else np.sqrt(sizes[r])  # of x times its scale
            if size * 0.0 + slope * 0.0 != 0.0:  # NaN after an infinity or a NaN
                mask[r] = 0
            # |gradient| = reach * size; reach may overflow to inf, which clips
            reach = abs(slope) / scales[r]
            factor = bound / size if reach * size > clip else reach / clip * bound
            factors[r] = (-factor if slope < 0.0 else factor) * scales[r]
        for r in range(count):
            tries = 0
            while not convert(x, first + r, ends, r, factors[r], mask[r], limit, use_l1, v):
                # rounding pushed it over: shrink until the integers agree, which once will do
                factors[r] *= 1.0 - 2.0**-30
                tries += 1
                mask[r] = mask[r] if tries < 5 else 0
        v[count:] = 0
        for j in range(v.shape[1]):
            column = np.int64(0)
            for r in range(GROUP):
                column += v[r, j]
            sums[j] += column
    total += sums[:columns]
