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

from math import isfinite

import numpy as np
from numba import njit

from workers.kernels.losses import derivative32, derivative64
from workers.kernels.madd import ROWS, accumulate16, margins16

_f = np.float32
_i = np.int32
_HALF = _f(0.5)


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
    ||weights||_2 ||x||_2 < 2^31 (caller's duty; else margins wrap, which no bound rests on). With
    `fast`, `weights` and `total` come in chunks (see madd.py).
    """
    rows, columns = x.shape
    margins, q = np.empty(ROWS, dtype=np.int32), np.empty(ROWS, dtype=np.int16)
    whole = rows - rows % ROWS if fast else 0
    for first in range(0, whole, ROWS):
        margins16(x, first, weights, margins)
        _quantise(margins, y[first : first + ROWS], margin_step, loss, scale, bound, q)
        accumulate16(x, first, q, total)
    for i in range(whole, rows):
        margin = _i(0)
        for j in range(columns):
            place = _place(j, columns) if fast else j
            margin = _i(margin + _i(_i(x[i, j]) * _i(weights[place])))
        margins[0] = margin
        _quantise(margins[:1], y[i : i + 1], margin_step, loss, scale, bound, q[:1])
        for j in range(columns):
            place = _place(j, columns) if fast else j
            total[place] += np.int64(q[0]) * np.int64(x[i, j])


@njit(cache=True, inline="always")
def _place(column, columns):
    """Where a column stands among the chunks: in its own, or in the overlapping last one."""
    last = columns - columns % 16
    return column if column < last else last + 16 - (columns - column)


@njit(cache=True, nogil=True, error_model="numpy")
def add_float(total, x, y, weights, loss, clip, bound, use_l1):
    """total += sum of v over float64 rows, v = the gradient clipped to `clip` and written in units of
    clip/bound, rounded towards zero; the norm of v is then checked in integers against `bound`.

    A gradient with a non-finite entry counts as zero. Scaling by the largest entry first keeps every
    intermediate value finite, so a record at 1e300 is clipped like any other.
    """
    rows, columns = x.shape
    v = np.empty(columns, dtype=np.int64)
    for i in range(rows):
        margin = 0.0
        for j in range(columns):
            margin += x[i, j] * weights[j]
        slope = derivative64(loss, margin, y[i])
        largest = 0.0
        usable = isfinite(slope)
        for j in range(columns):
            usable = usable and isfinite(x[i, j])
            largest = max(largest, abs(x[i, j]))
        usable = usable and largest > 0.0
        # every record takes the same work: one that counts as zero is read as zeros below
        if not usable:
            slope, largest = 0.0, 1.0
        size = 0.0  # of x / largest: between 1 and sqrt(d), or d in l1
        for j in range(columns):
            part = abs(x[i, j] / largest) if usable else 0.0
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
                v[j] = np.int64(x[i, j] / largest * factor) if usable else 0
                total_size += abs(v[j]) if use_l1 else v[j] * v[j]
            if total_size <= (bound if use_l1 else bound * bound):
                break
            factor *= 1.0 - 2.0**-30  # rounding pushed it over: shrink until the integers agree
        for j in range(columns):
            total[j] += v[j]
