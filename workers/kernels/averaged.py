"""Averaged SGD over fixed-point rows: a pass over blocks of rows in a given order, one projected step
each (service/planning/shared/averaged.py).

As in minimise.py nothing is quantised: a step is the exact one up to the rounding error that its plan
bounds, by the order of the operations here. Every record takes the same work.
"""

from math import exp, sqrt
from typing import NamedTuple

import numpy as np
from numba import njit

from workers.kernels.losses import derivative64, value64
from workers.kernels.minimise import add_rows, clamped, margins, penalised_sum, robust_sum
from workers.kernels.steps import collect, dot, step


class Levels(NamedTuple):
    """Of tilted losses, minimised over a level besides: low + scale v, v within [0, width]."""

    tilt: float
    low: float
    scale: float
    width: float


class Hostile(NamedTuple):
    """Of an adversary who moves rows: a penalised one has a `penalty`, a bounded one is in l2 or linf,
    with the square of `corner` under every root."""

    penalised: bool
    linf: bool
    reach: float
    corner: float
    penalty: float
    iterations: int


@njit(cache=True, nogil=True, error_model="numpy")
def averaged_pass(w, total, x, y, order, unit, loss, bound, steps):
    """A step per block in this order; total += the iterate after each. `unit` is the features'
    step."""
    rows, columns = x.shape
    move, group, slopes = np.empty(columns), np.zeros(columns), np.empty(steps.block)
    pace = steps.size / steps.block * unit
    for position in range(order.size):
        first = order[position] * steps.block
        count = min(steps.block, rows - first)
        margins(x, first, count, w, slopes)
        for r in range(count):
            slope = clamped(derivative64(loss, slopes[r] * unit, y[first + r]), bound)
            slopes[r] = pace * slope
        move[:] = 0.0
        add_rows(move, x, first, slopes[:count])
        step(w, move, group, steps)
        collect(total, group, position)
    total += group


@njit(cache=True, nogil=True, error_model="numpy")
def tilted_averaged_pass(w, v, total, x, y, order, unit, loss, bound, steps, levels):
    """The same for tilted losses and their level `v`, an array of one, by single rows."""
    columns = x.shape[1]
    move, group, margin = np.empty(columns), np.zeros(columns), np.empty(1)
    for position in range(order.size):
        i = order[position]
        margins(x, i, 1, w, margin)
        m = margin[0] * unit
        slope = clamped(derivative64(loss, m, y[i]), bound)
        above = value64(loss, m, y[i], slope) - (levels.low + levels.scale * v[0])
        weight = exp(levels.tilt * above)
        factor = steps.size * (weight * slope) * unit
        for j in range(columns):
            move[j] = factor * x[i, j]
        step(w, move, group, steps)
        level = v[0] + steps.size * levels.scale * (weight - 1.0)
        v[0] = min(max(level, 0.0), levels.width)
        collect(total, group, position)
    total += group


@njit(cache=True, nogil=True, error_model="numpy")
def robust_averaged_pass(w, total, x, y, order, unit, loss, bound, steps, hostile):
    """The same for rows that an adversary moves."""
    rows, columns = x.shape
    move, group, weights, roots = np.empty((4, columns))
    group[:] = 0.0
    pace = steps.size / steps.block
    for position in range(order.size):
        first = order[position] * steps.block
        last = min(first + steps.block, rows)
        for j in range(columns):
            weights[j] = w[j] * unit
        square = dot(w, w)
        if hostile.penalised:
            roots[:] = hostile.penalty
            part = penalised_sum(
                x[first:last],
                y[first:last],
                weights,
                loss,
                bound,
                square / hostile.penalty,
                hostile.iterations,
            )
        else:
            shift = 0.0
            for j in range(columns):
                within = w[j] * w[j] if hostile.linf else square
                roots[j] = sqrt(within + hostile.corner * hostile.corner)
                shift += roots[j]
            shift = hostile.reach * (shift if hostile.linf else roots[0])
            part = robust_sum(
                x[first:last], y[first:last], weights, loss, bound, shift, hostile.corner
            )
            part[0] *= hostile.reach
        for j in range(columns):
            move[j] = pace * (part[j + 1] * unit + part[0] * (w[j] / roots[j]))
        step(w, move, group, steps)
        collect(total, group, position)
    total += group
