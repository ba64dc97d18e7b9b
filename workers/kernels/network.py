"""Sums of per-record gradients of a network of one hidden layer of rectified units, as exact integers.

With t_h = <w_h, x>, r_h = max(0, t_h), output a_1 r_1 + ... + b and slope s of the loss there, a
record's gradient is u (x) x for the hidden weights, u_h = s a_h [t_h > 0], s r_h for the outer ones
and s for the offset. So a record is two short vectors and its row; its norm is known from theirs
(||u|| ||x|| is the norm of the outer product), and nothing of the network's size is made per record.
A mean of gradients at several points has the same form, and so has a difference.

What a record adds is k (x) x and a vector v, k and v integers, with ||k||^2 ||x||^2 + ||v||^2 (or
||k||_1 ||x||_1 + ||v||_1) checked against the Plan's bound in exact integers: no float is trusted.

The records of a block take each step together, in loops over them that the compiler turns into vector
code; arrays are [unit, record] for that. A record's floats are computed in an order of their own and
the sums are exact integers: neither blocks nor threads nor vectors change a bit.

`loss` is as in losses.py. Weights come as P points `base` [P, ...], and with `change` a record's
vector is the mean of its gradients at base + move less that at base.
"""

import numpy as np
from numba import njit

from workers.kernels.losses import derivative64
from workers.kernels.simd import BLOCK, accumulate_each, margins
from workers.kernels.vectors import TINY

_MULTIPLIER_MAX = 2.0**15 - 1  # k are int16 for fixed rows
ROW_UNITS = 2**12  # of the integer direction of a float64 row


@njit(cache=True, nogil=True, error_model="numpy")
def _add_gradients(count, hidden, outer, y, loss, weight, slopes, u, v):
    """(u, v)[:, r] += weight times the gradient of record r, whose hidden units are hidden[:, r]."""
    width = outer.size - 1
    slopes[:count] = outer[width]
    for h in range(width):
        for r in range(count):
            unit = hidden[h, r]
            slopes[r] += outer[h] * (unit if unit > 0.0 else 0.0)
    for r in range(count):
        slopes[r] = weight * derivative64(loss, slopes[r], y[r])
        v[width, r] += slopes[r]
    for h in range(width):
        for r in range(count):
            unit = hidden[h, r]
            slope, unit = (slopes[r], unit) if unit > 0.0 else (0.0, 0.0)
            u[h, r] += slope * outer[h]
            v[h, r] += slope * unit


@njit(cache=True, nogil=True, error_model="numpy")
def _add_margins(x, weights, hidden):
    """hidden[h, r] += <weights[h], x[r]>, of floats, one column after the other."""
    for r in range(x.shape[0]):
        for h in range(weights.shape[0]):
            margin = hidden[h, r]
            for j in range(x.shape[1]):
                margin += weights[h, j] * x[r, j]
            hidden[h, r] = margin


@njit(cache=True, nogil=True, error_model="numpy")
def _norms(count, u, v, row_norms, use_l1, norms):
    """norms[r] = that of (u (x) x, v)[:, r] for a row of this norm."""
    rest = np.zeros(count)
    norms[:count] = 0.0
    for h in range(u.shape[0]):
        for r in range(count):
            norms[r] += abs(u[h, r]) if use_l1 else u[h, r] * u[h, r]
    for h in range(v.shape[0]):
        for r in range(count):
            rest[r] += abs(v[h, r]) if use_l1 else v[h, r] * v[h, r]
    for r in range(count):
        row = row_norms[r]
        both = norms[r] * row + rest[r] if use_l1 else norms[r] * row * row + rest[r]
        norms[r] = both if use_l1 else np.sqrt(both)


@njit(cache=True, nogil=True, error_model="numpy")
def _round(count, values, per, half, most, use_l1, units, size, about):
    """units[:, r] = values[:, r] per[r] to the nearest integers where half[r] is 0.5, towards zero
    where it is 0; size[r] = the sum of their squares (or absolute values), which may wrap, and
    about[r] = the same in floats. A NaN counts as zero, and only values within `most` < 2^31 are
    converted."""
    size[:count] = 0
    about[:count] = 0.0
    for h in range(values.shape[0]):
        for r in range(count):
            value = values[h, r] * per[r]
            value = value if value == value else 0.0  # noqa: PLR0124 - vector code for isnan
            value = value if value < most else most
            value = value if value > -most else -most
            unit = np.int32(value + (half[r] if value > 0.0 else -half[r]))
            units[h, r] = unit
            size[r] += np.int64(abs(unit)) if use_l1 else np.int64(unit) * np.int64(unit)
            about[r] += abs(float(unit)) if use_l1 else float(unit) * float(unit)


@njit(cache=True, nogil=True, error_model="numpy")
def _integers(count, u, v, per_u, per_v, most, length, bound, use_l1, k, out):
    """k, out = u per_u, v per_v to the nearest integers; towards zero for a record whose integers are
    too long; zero if these still are.

    `length` is ||x||_1 or ||x||^2 of a record's row of integers. Floats tell first that no product and
    no sum has left int64: they err by far less than the factor 1.01, and 1.01^2 bound^2 < 2^63.
    """
    half, about, about_rest = np.full(count, 0.5), np.empty(count), np.empty(count)
    inner, rest = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
    limit = np.int64(bound) if use_l1 else np.int64(bound) * np.int64(bound)
    failed = True
    while failed:
        _round(count, u, per_u, half, most, use_l1, k, inner, about)
        _round(count, v, per_v, half, float(bound), use_l1, out, rest, about_rest)
        failed = False
        for r in range(count):
            if (
                about[r] * float(length[r]) + about_rest[r] > 1.01 * float(limit)
                or inner[r] * length[r] + rest[r] > limit
            ):
                if half[r] == 0.0:
                    per_u[r], per_v[r] = 0.0, 0.0
                half[r], failed = 0.0, True


@njit(cache=True, nogil=True, error_model="numpy")
def add_network_fixed(  # noqa: PLR0912 - one pass
    total, rest, x, y, base, base_steps, outer, move, move_steps, outer_move, change, loss,
    feature_step, clip, bound, use_l1, fast,
):  # fmt: skip
    """total[h] += sum of k_h x over int16 rows, rest += sum of v; in units of clip/bound.

    Hidden weights are int16 [P, width, size] in units of base_steps, such that no product with a row
    leaves int32; they, `total` and `fast` are of one simd.Layout. `outer` [P, width + 1] ends with
    the offset.
    """
    rows, columns = x.shape
    points, width, _ = base.shape
    m = np.empty((points, width, BLOCK), dtype=np.int32)
    moves = np.empty((width, BLOCK), dtype=np.int32)
    length = np.empty(BLOCK, dtype=np.int64)
    k, out = np.empty((width, BLOCK), np.int16), np.empty((width + 1, BLOCK), np.int32)
    hidden, u, v = np.empty((width, BLOCK)), np.empty((width, BLOCK)), np.empty((width + 1, BLOCK))
    slopes, row_norms, norms = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    per_u, per_v = np.empty(BLOCK), np.empty(BLOCK)  # not rows of one array, of unknown stride
    outer_now = outer + outer_move
    for first in range(0, rows, BLOCK):
        count = min(BLOCK, rows - first)
        block, labels = x[first : first + count], y[first : first + count]
        for r in range(count):
            length[r] = 0
            for j in range(columns):
                entry = np.int64(block[r, j])
                length[r] += abs(entry) if use_l1 else entry * entry
        for h in range(width):
            for p in range(points):
                margins(block, 0, base[p, h], fast, m[p, h, :count])
            if change:
                margins(block, 0, move[h], fast, moves[h, :count])
        u[:] = 0.0
        v[:] = 0.0
        for p in range(points):
            for h in range(width):
                for r in range(count):
                    hidden[h, r] = m[p, h, r] * base_steps[p, h]
            if change:
                _add_gradients(count, hidden, outer[p], labels, loss, -1.0 / points, slopes, u, v)
                for h in range(width):
                    for r in range(count):
                        hidden[h, r] += moves[h, r] * move_steps[h]
            _add_gradients(count, hidden, outer_now[p], labels, loss, 1.0 / points, slopes, u, v)
        for r in range(count):
            row_norms[r] = (length[r] if use_l1 else np.sqrt(length[r])) * feature_step
        _norms(count, u, v, row_norms, use_l1, norms)
        for r in range(count):
            per_v[r] = (1.0 if norms[r] <= clip else clip / norms[r]) * (bound / clip)
            per_u[r] = per_v[r] * feature_step
        _integers(count, u, v, per_u, per_v, _MULTIPLIER_MAX, length, bound, use_l1, k, out)
        accumulate_each(total, block, k, fast)
        for h in range(width + 1):
            for r in range(count):
                rest[h] += out[h, r]


@njit(cache=True, nogil=True, error_model="numpy")
def add_network_float(  # noqa: PLR0912 - one pass
    total, rest, x, y, base, outer, move, outer_move, change, loss, clip, bound, use_l1
):
    """The same over float64 rows: k (x) b, where b is the row's direction in integers.

    A row with a non-finite entry counts as zero, and so does one below 1e-290.
    """
    rows, columns = x.shape
    points, width, _ = base.shape
    b, length = np.empty((BLOCK, columns), dtype=np.int16), np.empty(BLOCK, dtype=np.int64)
    k, out = np.empty((width, BLOCK), np.int32), np.empty((width + 1, BLOCK), np.int32)
    hidden, u, v = np.empty((width, BLOCK)), np.empty((width, BLOCK)), np.empty((width + 1, BLOCK))
    slopes, row_norms, norms = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK)
    sizes, largest, usable = np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK, dtype=np.bool_)
    per_u, per_v = np.empty(BLOCK), np.empty(BLOCK)
    outer_now = outer + outer_move
    for first in range(0, rows, BLOCK):
        count = min(BLOCK, rows - first)
        block, labels = x[first : first + count], y[first : first + count]
        for r in range(count):
            row, doubt, size = block[r], 0.0, 0.0
            largest[r] = 0.0
            for j in range(columns):
                largest[r] = max(largest[r], abs(row[j]))
                doubt += row[j] * 0.0
            usable[r] = doubt == 0.0 and largest[r] > TINY
            shrink = 1.0 / largest[r]
            for j in range(columns):
                entry = row[j] * shrink
                size += abs(entry) if use_l1 else entry * entry
            sizes[r] = size if use_l1 else np.sqrt(size)  # of the row over its largest entry
            row_norms[r] = sizes[r] * largest[r]
            length[r] = 0
            for j in range(columns):
                entry = row[j] * shrink * (ROW_UNITS / sizes[r]) if usable[r] else 0.0
                b[r, j] = np.int32(entry)
                unit = np.int64(b[r, j])
                length[r] += abs(unit) if use_l1 else unit * unit
        u[:] = 0.0
        v[:] = 0.0
        for p in range(points):
            hidden[:] = 0.0
            _add_margins(block, base[p], hidden)
            if change:
                _add_gradients(count, hidden, outer[p], labels, loss, -1.0 / points, slopes, u, v)
                _add_margins(block, move, hidden)
            _add_gradients(count, hidden, outer_now[p], labels, loss, 1.0 / points, slopes, u, v)
        _norms(count, u, v, row_norms, use_l1, norms)
        for r in range(count):
            per_v[r] = (1.0 if norms[r] <= clip else clip / norms[r]) * (bound / clip)
            per_v[r] = per_v[r] if usable[r] and norms[r] * 0.0 == 0.0 else 0.0
            per_u[r] = per_v[r] * sizes[r] * largest[r] / ROW_UNITS
        _integers(count, u, v, per_u, per_v, float(bound), length, bound, use_l1, k, out)
        for r in range(count):
            for h in range(width):
                for j in range(columns):
                    total[h, j] += np.int64(k[h, r]) * np.int64(b[r, j])
        for h in range(width + 1):
            for r in range(count):
                rest[h] += out[h, r]
