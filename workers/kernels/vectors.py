"""Sums of per-record gradients that are no multiple of the row: softmax and the geometric median.

As in gradients.py a record adds an integer vector whose norm is at most the Plan's bound by integer
arithmetic, whatever the floats did. A softmax gradient is an outer product q (x) x with one q per
class, and the norm of an outer product, l2 or l1, is the product of the norms: so it suffices that
the integers on either side keep a norm each, and no vector of classes times columns is ever checked.
A record's floats are computed in an order of their own and the sums are exact integers: neither
blocks nor threads change a bit. Every record takes the same work.
"""

from math import exp, inf, sqrt

import numpy as np
from numba import njit

from workers.kernels.simd import BLOCK, accumulate, margins

_i = np.int32
TINY = 1e-290  # its reciprocal is finite
_FAR = 1e300  # margins beyond it count as this far


@njit(cache=True, nogil=True, error_model="numpy")
def integers(values, bound, use_l1, out):
    """out = the values to the nearest integers, of norm at most bound <= 2^30 in exact arithmetic.

    Callers scale values to a norm of `bound` or less, up to a float's rounding, so only rounding to
    integers can exceed it; then every entry moves by one towards zero, which leaves each below its
    value by at least a half unless it is zero. Should the integers still be too long, the vector
    counts as zero. A NaN counts as zero, and only values within the bound are ever converted.
    """
    for j in range(values.size):
        v = values[j]
        v = v if v == v else 0.0  # noqa: PLR0124 - vector code for isnan
        v = v if v < bound else bound
        v = v if v > -bound else -bound
        out[j] = _i(np.floor(v + 0.5))
    if _too_long(out, bound, use_l1):
        for j in range(out.size):
            out[j] -= _i(out[j] > 0) - _i(out[j] < 0)
        if _too_long(out, bound, use_l1):
            out[:] = 0


@njit(cache=True, nogil=True, error_model="numpy")
def _too_long(v, bound, use_l1):
    """Whether the norm exceeds the bound. A sum of squares may leave int64, so they are also summed in
    units of 2^30: if those stay within the bound's, all squares together are below 2^60 + 2^30 d."""
    whole, coarse = np.int64(0), np.int64(0)
    limit = np.int64(bound) if use_l1 else np.int64(bound) * np.int64(bound)
    for j in range(v.size):
        size = np.int64(abs(v[j])) if use_l1 else np.int64(v[j]) * np.int64(v[j])
        whole += size
        coarse += size >> 30
    return coarse > limit >> 30 or whole > limit


@njit(cache=True, nogil=True, error_model="numpy")
def norm(values, use_l1):
    size = 0.0
    for j in range(values.size):
        size += abs(values[j]) if use_l1 else values[j] * values[j]
    return size if use_l1 else sqrt(size)


@njit(cache=True, nogil=True, error_model="numpy")
def minus_label(margins, label):
    """The margins become q = softmax(margins) - e_label; all NaN if one of them was."""
    top = -inf
    for k in range(margins.size):
        m = _FAR if margins[k] > _FAR else margins[k]
        margins[k] = -_FAR if m < -_FAR else m
        top = max(top, margins[k])
    total = 0.0
    for k in range(margins.size):
        margins[k] = exp(margins[k] - top)
        total += margins[k]
    for k in range(margins.size):
        margins[k] = margins[k] / total - (1.0 if k == label else 0.0)


@njit(cache=True, nogil=True, error_model="numpy")
def add_softmax_fixed(total, x, y, weights, steps, scale, bound, use_l1, fast):
    """total[k] += sum of q_k x over int16 rows, q integers of norm at most bound <= 2^15 - 1.

    Class k has int16 weights in units of steps[k], such that no margin leaves int32. `weights`,
    `total` and `fast` are of one simd.Layout, once per class; `scale` is units of q per unit
    of derivative.
    """
    rows = x.shape[0]
    classes = weights.shape[0]
    m, q = np.empty((classes, BLOCK), dtype=np.int32), np.empty((classes, BLOCK), np.int16)
    slopes, units = np.empty(classes), np.empty(classes, dtype=np.int32)
    for first in range(0, rows, BLOCK):
        count = min(BLOCK, rows - first)
        for k in range(classes):
            margins(x, first, weights[k], fast, m[k, :count])
        for r in range(count):
            for k in range(classes):
                slopes[k] = m[k, r] * steps[k]
            minus_label(slopes, y[first + r])
            size = norm(slopes, use_l1)
            factor = scale if size * scale <= bound else bound / size
            for k in range(classes):
                slopes[k] *= factor
            integers(slopes, bound, use_l1, units)
            for k in range(classes):
                q[k, r] = units[k]
        for k in range(classes):
            accumulate(total[k], x, first, q[k, :count], fast)


@njit(cache=True, nogil=True, error_model="numpy")
def add_softmax_float(total, x, y, weights, clip, slope_bound, row_bound, use_l1):
    """total += sum of a (x) b over float64 rows: b is the row's direction in integers of norm at most
    row_bound, a is q with the length of the clipped gradient, in integers of norm at most slope_bound.

    `weights` has one column per class. A row with a non-finite entry counts as zero, and so does one
    below 1e-290; scaling by the largest entry first keeps every intermediate value finite.
    """
    rows, columns = x.shape
    classes = weights.shape[1]
    slopes, a = np.empty(classes), np.empty(classes, dtype=np.int32)
    direction, b = np.empty(columns), np.empty(columns, dtype=np.int32)
    for i in range(rows):
        largest, doubt = 0.0, 0.0  # doubt becomes NaN at the first infinity or NaN
        slopes[:] = 0.0
        for j in range(columns):
            entry = x[i, j]
            largest = max(largest, abs(entry))
            doubt += entry * 0.0
            for k in range(classes):
                slopes[k] += entry * weights[j, k]
        minus_label(slopes, y[i])
        usable = doubt == 0.0 and largest > TINY
        shrink = 1.0 / largest
        for j in range(columns):
            direction[j] = x[i, j] * shrink
        size = norm(direction, use_l1)
        for j in range(columns):
            direction[j] *= row_bound / size
        integers(direction, row_bound, use_l1, b)
        slope = norm(slopes, use_l1)
        share = slope * largest * size / clip
        factor = (share if share < 1.0 else 1.0) * slope_bound / slope if usable else 0.0
        for k in range(classes):
            slopes[k] *= factor
        integers(slopes, slope_bound, use_l1, a)
        for k in range(classes):
            for j in range(columns):
                total[k, j] += np.int64(a[k]) * np.int64(b[j])


@njit(cache=True, nogil=True, error_model="numpy")
def add_median(total, x, step, weights, curvature, clip, bound, use_l1):
    """total += sum of v over rows of `step` times x: v = (w - x) min(curvature, 1/||w - x||_2), the
    gradient of the distance's Moreau envelope, clipped to `clip` and written in units of clip/bound.

    A difference with a non-finite entry counts as zero, and so does one below 1e-290.
    """
    rows, columns = x.shape
    values, v = np.empty(columns), np.empty(columns, dtype=np.int32)
    for i in range(rows):
        largest, doubt = 0.0, 0.0
        for j in range(columns):
            values[j] = weights[j] - x[i, j] * step
            largest = max(largest, abs(values[j]))
            doubt += values[j] * 0.0
        usable = doubt == 0.0 and largest > TINY
        shrink = 1.0 / largest
        for j in range(columns):
            values[j] *= shrink
        size = norm(values, False)
        reach = curvature * largest * size  # may overflow to inf, which is beyond the corner
        length = (reach if reach < 1.0 else 1.0) / size  # of the gradient, per unit of values
        span = length * (norm(values, True) if use_l1 else size)
        factor = (bound / span if span > clip else bound / clip) * length if usable else 0.0
        for j in range(columns):
            values[j] *= factor
        integers(values, bound, use_l1, v)
        for j in range(columns):
            total[j] += v[j]
