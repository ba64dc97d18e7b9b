"""Projected SGD over fixed-point rows, one record per step, and the sum of its iterates.

What is computed here is not released; a mean made of it is. So nothing is quantised, and every step is
the exact one up to the rounding error that its plan bounds, by the order of the operations in this
file. The iterate is f v: projecting it on the ball is a change of f.
Every record takes the same work.
"""

import numpy as np
from numba import njit

from workers.kernels.losses import derivative64
from workers.kernels.minimise import clamped
from workers.kernels.steps import dot


@njit(cache=True, nogil=True, error_model="numpy")
def descend(v, total, f, weight, x, y, feature_step, loss, bound, ridge, eta, radius):
    """A step w <- P(w - eta (c x + ridge w)) for every row, c = the slope within [-bound, bound], from
    w = f v; v is overwritten and the new f returned.

    total += the iterates before each step, the first of them times weight/f: so a run whose first
    weight is 0, and to which the last iterate is added in the end, counts those after its steps.
    Labels are kept within [-1, 1]: outside, a loss would be less smooth than was planned.
    """
    shrink, pace = 1.0 - eta * ridge, eta * feature_step
    for i in range(x.shape[0]):
        row = x[i]
        margin = dot(row, v) * (f * feature_step)
        slope = clamped(derivative64(loss, margin, y[i]), bound)
        kept, move = shrink * f, pace * slope
        for j in range(v.size):
            total[j] += weight * v[j]
            v[j] = kept * v[j] - move * row[j]
        norm = np.sqrt(dot(v, v))
        f = radius / norm if norm > radius else 1.0
        weight = f
    return f
