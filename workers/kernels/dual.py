"""Dual coordinate ascent over fixed-point rows: service/planning/shared/dual.py says what it does.

One row after the other, each with the weights that the last one left: there is nothing to share among
threads, and what floats do to the result is measured afterwards.
"""

import numpy as np
from numba import njit

from workers.kernels.losses import derivative64
from workers.kernels.minimise import clamped

_LANES = 8


@njit(cache=True, inline="always", error_model="numpy")
def _dot(row, v):
    """In eight interleaved sums, which the compiler keeps in vectors."""
    whole = v.size - v.size % _LANES
    a = b = c = d = e = f = g = h = 0.0
    for j in range(0, whole, _LANES):
        a += row[j] * v[j]
        b += row[j + 1] * v[j + 1]
        c += row[j + 2] * v[j + 2]
        d += row[j + 3] * v[j + 3]
        e += row[j + 4] * v[j + 4]
        f += row[j + 5] * v[j + 5]
        g += row[j + 6] * v[j + 6]
        h += row[j + 7] * v[j + 7]
    for j in range(whole, v.size):
        a += row[j] * v[j]
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@njit(cache=True, nogil=True, error_model="numpy")
def ascend(x, y, a, v, order, block, unit, loss, bound, step, strong, radius):
    """Visit the blocks of rows in this order, updating a and v in place. `unit` is the features' step;
    no radius is infinite."""
    rows, columns = x.shape
    for position in order:
        first = position * block
        for i in range(first, min(first + block, rows)):
            row = x[i]
            margin = _dot(row, v) * unit
            if radius < np.inf:
                length = np.sqrt(_dot(v, v))
                margin *= radius / length if length > radius else 1.0
            slope = clamped(derivative64(loss, margin, y[i]), bound)
            change = step * (-slope - a[i])
            a[i] += change
            factor = change / strong * unit
            for j in range(columns):
                v[j] += factor * row[j]
