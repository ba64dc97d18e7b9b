"""Gradients of a minimiser's objective: float64 sums over fixed-point rows.

What is summed here is not released; a point computed from it is. So nothing is quantised: every pass
computes the exact gradient up to a rounding error that shared/minimiser.py bounds, by the
order of the operations in this file:

- a margin is a sum of d products, in eight interleaved lanes;
- a record's slope is `derivative64`, clamped to the plan's bound; a NaN counts as zero;
- slopes times rows are summed over groups of GROUP rows, group sums over a block, block sums over the
  rows, each in order. Which thread took a block does not matter.
"""

from math import exp, sqrt

import numpy as np
from numba import njit

from service.planning.shared.minimiser import GROUP
from workers.kernels.losses import derivative64, value64
from workers.kernels.simd import FLOAT_LANES, TOGETHER, float_margins4


@njit(cache=True, nogil=True, error_model="numpy")
def margins(x, first, count, weights, out):
    """out[r] = <x[first + r], weights> for r < count."""
    columns = x.shape[1]
    whole = columns - columns % FLOAT_LANES
    quick = count - count % TOGETHER
    for r in range(0, quick, TOGETHER):
        float_margins4(x, first + r, weights, out[r : r + TOGETHER])
    for r in range(quick, count):
        out[r] = 0.0
        for j in range(whole):
            out[r] += x[first + r, j] * weights[j]
    for r in range(count):
        for j in range(whole, columns):
            out[r] += x[first + r, j] * weights[j]


@njit(cache=True, nogil=True, error_model="numpy")
def add_rows(total, x, first, factors):
    """total += sum over r of factors[r] x[first + r], row after row."""
    columns = x.shape[1]
    count = factors.size
    quick = count - count % TOGETHER
    for r in range(0, quick, TOGETHER):
        a, b, c, e = x[first + r], x[first + r + 1], x[first + r + 2], x[first + r + 3]
        p, q, s, t = factors[r], factors[r + 1], factors[r + 2], factors[r + 3]
        for j in range(columns):
            total[j] = (((total[j] + p * a[j]) + q * b[j]) + s * c[j]) + t * e[j]
    for r in range(quick, count):
        row, factor = x[first + r], factors[r]
        for j in range(columns):
            total[j] += factor * row[j]


@njit(cache=True, inline="always", error_model="numpy")
def clamped(value, bound):
    """Within [-bound, bound]; a NaN is zero."""
    value = value if value == value else 0.0  # noqa: PLR0124 - vector code for isnan
    value = value if value < bound else bound
    return value if value > -bound else -bound


@njit(cache=True, nogil=True, error_model="numpy")
def gradient_sum(x, y, weights, loss, bound):
    """The sum of slope times row over a block. `weights` times an integer row is its margin; the sum
    is in units of the features' step."""
    rows, columns = x.shape
    total, group = np.zeros(columns), np.zeros(columns)
    slopes = np.empty(GROUP)
    for first in range(0, rows, GROUP):
        count = min(GROUP, rows - first)
        margins(x, first, count, weights, slopes)
        for r in range(count):
            slopes[r] = clamped(derivative64(loss, slopes[r], y[first + r]), bound)
        group[:] = 0.0
        add_rows(group, x, first, slopes[:count])
        for j in range(columns):
            total[j] += group[j]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def sgd_block(w, x, y, unit, loss, bound, eta, strong, radius):
    """One projected SGD step per row of a block, in order; `unit` is the features' step."""
    rows, columns = x.shape
    m, shrink = np.empty(1), 1.0 - eta * strong
    for i in range(rows):
        margins(x, i, 1, w, m)
        factor = eta * clamped(derivative64(loss, m[0] * unit, y[i]), bound) * unit
        row, square = x[i], 0.0
        for j in range(columns):
            w[j] = shrink * w[j] - factor * row[j]
            square += w[j] * w[j]
        norm = np.sqrt(square)
        scale = radius / norm if norm > radius else 1.0
        for j in range(columns):
            w[j] *= scale


@njit(cache=True, nogil=True, error_model="numpy")
def merge_tilted(total, part, tilt):
    """total += part, of sums in which each record counts exp(tilt (loss - largest loss)): the largest
    loss, the sum of these weights, and the sum of weight times slope times row."""
    largest = max(total[0], part[0])
    a, b = exp(tilt * (total[0] - largest)), exp(tilt * (part[0] - largest))
    total[0] = largest
    for j in range(1, total.size):
        total[j] = a * total[j] + b * part[j]


@njit(cache=True, nogil=True, error_model="numpy")
def tilted_sum(x, y, weights, loss, bound, tilt):
    """The sums of `merge_tilted` over a block."""
    rows, columns = x.shape
    total, group = np.zeros(columns + 2), np.zeros(columns + 2)
    total[0] = -np.inf
    slopes, values = np.empty(GROUP), np.empty(GROUP)
    for first in range(0, rows, GROUP):
        count = min(GROUP, rows - first)
        margins(x, first, count, weights, values)
        group[:] = 0.0
        group[0] = -np.inf
        for r in range(count):
            label = y[first + r]
            slopes[r] = clamped(derivative64(loss, values[r], label), bound)
            values[r] = value64(loss, values[r], label, slopes[r])
            group[0] = max(group[0], values[r])
        for r in range(count):
            weight = exp(tilt * (values[r] - group[0]))
            group[1] += weight
            slopes[r] *= weight
        add_rows(group[2:], x, first, slopes[:count])
        merge_tilted(total, group, tilt)
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def robust_sum(x, y, weights, loss, bound, shift, corner):
    """For rows that an adversary may move so that every margin moves by up to `shift`, whichever way
    hurts: the sum of |slope| in the shift, then the sum of slope times row."""
    rows, columns = x.shape
    total, group = np.zeros(columns + 1), np.zeros(columns + 1)
    slopes = np.empty(GROUP)
    regresses = loss.residual
    for first in range(0, rows, GROUP):
        count = min(GROUP, rows - first)
        margins(x, first, count, weights, slopes)
        group[:] = 0.0
        for r in range(count):
            label = y[first + r]
            if not regresses:
                slopes[r] = clamped(derivative64(loss, slopes[r] - label * shift, label), bound)
                group[0] += abs(slopes[r])
            else:
                residual = slopes[r] - label
                size = sqrt(residual * residual + corner * corner)
                slope = clamped(derivative64(loss, size + shift, 0.0), bound)
                group[0] += slope
                slopes[r] = slope * (residual / size)
        add_rows(group[1:], x, first, slopes[:count])
        for j in range(columns + 1):
            total[j] += group[j]
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def penalised_sum(x, y, weights, loss, bound, give, iterations):
    """For an adversary that moves a margin m to the z with z = m + give slope(z), found by iterating
    that from m: the sum of slope(z)^2, then the sum of slope(z) times row."""
    rows, columns = x.shape
    total, group = np.zeros(columns + 1), np.zeros(columns + 1)
    slopes = np.empty(GROUP)
    for first in range(0, rows, GROUP):
        count = min(GROUP, rows - first)
        margins(x, first, count, weights, slopes)
        group[:] = 0.0
        for r in range(count):
            m, label = slopes[r], y[first + r]
            slope = clamped(derivative64(loss, m, label), bound)
            for _ in range(iterations):
                slope = clamped(derivative64(loss, m + give * slope, label), bound)
            slopes[r] = slope
            group[0] += slope * slope
        add_rows(group[1:], x, first, slopes[:count])
        for j in range(columns + 1):
            total[j] += group[j]
    return total
