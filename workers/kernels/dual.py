"""Dual coordinate ascent over fixed-point rows: service/planning/shared/dual.py says what it does.

One row after the other, each with the weights that the last one left: there is nothing to share among
threads, and what floats do to the result is measured afterwards.
"""

import numpy as np
from numba import njit

from workers.kernels.losses import derivative64
from workers.kernels.minimise import clamped
from workers.kernels.steps import dot


@njit(cache=True, nogil=True, error_model="numpy")
def ascend(x, y, a, v, order, block, unit, loss, bound, step, strong, radius):
    """Visit the blocks of rows in this order, updating a and v in place. `unit` is the features' step;
    no radius is infinite."""
    rows, columns = x.shape
    for position in order:
        first = position * block
        for i in range(first, min(first + block, rows)):
            row = x[i]
            margin = dot(row, v) * unit
            if radius < np.inf:
                length = np.sqrt(dot(v, v))
                margin *= radius / length if length > radius else 1.0
            slope = clamped(derivative64(loss, margin, y[i]), bound)
            change = step * (-slope - a[i])
            a[i] += change
            factor = change / strong * unit
            for j in range(columns):
                v[j] += factor * row[j]
