"""Averaged SGD for losses whose gradients are no multiple of the row: as in averaged.py."""

from math import sqrt

import numpy as np
from numba import njit

from workers.kernels.steps import collect, dot, step
from workers.kernels.vectors import minus_label


@njit(cache=True, nogil=True, error_model="numpy")
def softmax_averaged_pass(w, total, x, y, order, classes, unit, steps):
    """A step per block in this order; total += the iterate after each. Weights are one class after
    the other."""
    rows, columns = x.shape
    move, group, q = np.empty(w.size), np.zeros(w.size), np.empty(classes)
    pace = steps.size / steps.block * unit
    for position in range(order.size):
        first = order[position] * steps.block
        move[:] = 0.0
        for i in range(first, min(first + steps.block, rows)):
            for k in range(classes):
                q[k] = dot(x[i], w[k * columns : (k + 1) * columns]) * unit
            minus_label(q, y[i])
            for k in range(classes):
                factor, at = pace * q[k], k * columns
                for j in range(columns):
                    move[at + j] += factor * x[i, j]
        step(w, move, group, steps)
        collect(total, group, position)
    total += group


@njit(cache=True, nogil=True, error_model="numpy")
def median_averaged_pass(w, total, x, order, curvature, unit, steps):
    """The same for the distance's envelope: (w - x) min(curvature, 1/||w - x||)."""
    rows, columns = x.shape
    move, group, away = np.empty(columns), np.zeros(columns), np.empty(columns)
    pace = steps.size / steps.block
    for position in range(order.size):
        first = order[position] * steps.block
        move[:] = 0.0
        for i in range(first, min(first + steps.block, rows)):
            for j in range(columns):
                away[j] = w[j] - x[i, j] * unit
            norm = sqrt(dot(away, away))
            factor = pace * (1.0 / norm if norm * curvature > 1.0 else curvature)
            for j in range(columns):
                move[j] += factor * away[j]
        step(w, move, group, steps)
        collect(total, group, position)
    total += group
