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

from workers.kernels.losses import derivative32, derivative64
from workers.kernels.madd import ROWS, accumulate16, margins16

_f = np.float32
_i = np.int32
_HALF = _f(0.5)
BLOCK = 128
_TINY = 1e-290  # its reciprocal is finite


@njit(cache=True, nogil=True, error_model="numpy")
def _quantise(margins, y, margin_step, loss, scale, bound, q):
    """q = the derivatives times `scale`, to the nearest integer, within [-bound, bound].

    A NaN counts as zero, and only values within the bound are ever converted; the clamp of integers is
    what the guarantee rests on.
    """
    for i in range(q.size):
        slope = derivative32(loss, _f(_f(margins[i]) * margin_step), y[i])
        scaled = _f(slope * scale)
        scaled = scaled if scaled == scaled else _f(0.0)  # noqa: PLR0124 - vector code for isnan
        scaled = scaled if scaled < bound else bound
        scaled = scaled if scaled > -bound else _f(-bound)
        units = _i(np.floor(_f(scaled + _HALF)))
        units = units if units < _i(bound) else _i(bound)
        q[i] = units if units > _i(-bound) else _i(-bound)


@njit(cache=True, nogil=True, error_model="numpy")
def add_fixed(total, x, y, weights, margin_step, loss, scale, bound, fast):
    """total += sum of q x over int16 rows: |q| <= bound <= 2^15 - 1, so ||q x|| <= bound ||x||.

    `weights` are int16 units of margin_step such that no margin leaves int32, since
    ||weights||_2 ||x||_2 < 2^31 (caller's duty; else margins wrap, which no bound rests on). Blocks of
    rows stay in the nearest cache from margin to sum; sixteen products stay within int32. With
    `fast`, `weights` and `total` come in chunks (see madd.py); the loops here are the same thing for
    any CPU, and for the last rows.
    """
    rows, columns = x.shape
    margins, q = np.empty(BLOCK, dtype=np.int32), np.empty(BLOCK, dtype=np.int16)
    partial = np.zeros(total.size, dtype=np.int32)
    chunks = np.arange(columns)  # where each column stands in weights and total
    for j in range(columns - columns % ROWS if fast else columns, columns):
        chunks[j] = total.size - (columns - j)
    plain = weights[chunks]
    for first in range(0, rows, BLOCK):
        count = min(BLOCK, rows - first)
        quick = count - count % ROWS if fast else 0
        for r in range(0, quick, ROWS):
            margins16(x, first + r, weights, margins[r : r + ROWS])
        for r in range(quick, count):
            row, margin = x[first + r], _i(0)
            for j in range(columns):
                margin = _i(margin + _i(_i(row[j]) * _i(plain[j])))
            margins[r] = margin
        labels = y[first : first + count]
        _quantise(margins[:count], labels, margin_step, loss, scale, bound, q[:count])
        for r in range(0, quick, ROWS):
            accumulate16(x, first + r, q[r : r + ROWS], total)
        for low in range(quick, count, ROWS):
            for r in range(low, min(low + ROWS, count)):
                row, multiplier = x[first + r], _i(q[r])
                for j in range(columns):
                    partial[j] = _i(partial[j] + _i(multiplier * _i(row[j])))
            for j in range(columns):
                total[chunks[j]] += partial[j]
                partial[j] = 0


@njit(cache=True, nogil=True, error_model="numpy")
def add_float(total, x, y, weights, loss, clip, bound, use_l1):
    """total += sum of v over float64 rows, v = the gradient clipped to `clip` and written in units of
    clip/bound, rounded towards zero; the norm of v is then checked in integers against `bound`.

    A gradient with a non-finite entry counts as zero, and so does a row below 1e-290. Scaling by the
    largest entry first keeps every intermediate value finite, so a record at 1e300 is clipped like any
    other.
    """
    rows, columns = x.shape
    v = np.empty(columns, dtype=np.int64)
    for i in range(rows):
        row = x[i]
        slope = derivative64(loss, _dot(row, weights), y[i])
        largest, doubt = 0.0, slope * 0.0  # becomes NaN at the first infinity or NaN
        for j in range(columns):
            largest = max(largest, abs(row[j]))
            doubt += row[j] * 0.0
        # every record takes the same work: one that counts as zero is read as zeros below
        usable = doubt == 0.0 and largest > _TINY
        if not usable:
            slope, largest = 0.0, 1.0
        shrink = 1.0 / largest
        size = 0.0  # of x / largest: between 1 and sqrt(d), or d in l1
        for j in range(columns):
            part = abs(row[j] * shrink) if usable else 0.0
            size += part if use_l1 else part * part
        if not use_l1:
            size = np.sqrt(size)
        # |gradient| = reach * size; reach may overflow to inf, which clips. Below the clip
        # reach / clip is at most 1, so the factor is finite in either case.
        reach = abs(slope) * largest
        factor = bound / size if reach * size > clip else reach / clip * bound
        if slope < 0.0:
            factor = -factor
        while True:
            total_size = np.int64(0)
            for j in range(columns):
                v[j] = np.int64(row[j] * shrink * factor) if usable else 0
                total_size += abs(v[j]) if use_l1 else v[j] * v[j]
            if total_size <= (bound if use_l1 else bound * bound):
                break
            factor *= 1.0 - 2.0**-30  # rounding pushed it over: shrink until the integers agree
        for j in range(columns):
            total[j] += v[j]


@njit(cache=True, nogil=True, error_model="numpy")
def _dot(a, b):
    """In four interleaved sums: a fixed order, and four times the speed of one."""
    p = q = r = s = 0.0
    whole = a.size - a.size % 4
    for j in range(0, whole, 4):
        p += a[j] * b[j]
        q += a[j + 1] * b[j + 1]
        r += a[j + 2] * b[j + 2]
        s += a[j + 3] * b[j + 3]
    for j in range(whole, a.size):
        p += a[j] * b[j]
    return (p + q) + (r + s)
