"""Sums of clipped per-record gradients of linear models, as exact integers.

One pass per call: margin, derivative, clip, quantise, accumulate. What a record adds to the sum is an
integer vector whose norm is at most the Plan's bound *by integer arithmetic*, whatever the floats
did: a NaN, an infinity or a rounding can make a contribution useless but never too large. Sums are
int64 and exact, so they do not depend on the order of rows, blocks or threads. The Plan excludes
overflow; and a wrapped sum would still be a function of the exact one.

Checked here: the bound on every contribution. Caller's duty: for fixed rows, that ||x||_2 (or ||x||_1)
is at most the row bound with which the Plan was made; ingestion verified that in integers.
"""

from math import isfinite

import numpy as np
from numba import njit

from workers.kernels.losses import derivative


@njit(cache=True, nogil=True)
def add_fixed(total, x, y, weights, loss, scale, bound):  # type: ignore[no-untyped-def]
    """total += sum of q x over int16 rows, q = the derivative times `scale` as an integer.

    `weights` already contain the feature step. |q| <= bound is enforced on the integer, so
    ||q x|| <= bound * ||x||.
    """
    rows, columns = x.shape
    for i in range(rows):
        margin = 0.0
        for j in range(columns):
            margin += x[i, j] * weights[j]
        scaled = derivative(loss, margin, y[i]) * scale
        if not isfinite(scaled):
            scaled = 0.0
        q = np.int64(np.rint(min(max(scaled, -2.0 * bound), 2.0 * bound)))
        q = min(max(q, -bound), bound)
        for j in range(columns):
            total[j] += q * np.int64(x[i, j])


@njit(cache=True, nogil=True)
def add_float(total, x, y, weights, loss, clip, bound, use_l1):  # type: ignore[no-untyped-def]
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
        slope = derivative(loss, margin, y[i])
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
