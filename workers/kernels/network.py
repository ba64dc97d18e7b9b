"""Sums of per-record gradients of a network of one hidden layer of rectified units, as exact integers.

With t_h = <w_h, x>, r_h = max(0, t_h), output a_1 r_1 + ... + b and slope s of the loss there, a
record's gradient is u (x) x for the hidden weights, u_h = s a_h [t_h > 0], s r_h for the outer ones
and s for the offset. So a record is two short vectors and its row; its norm is known from theirs
(||u|| ||x|| is the norm of the outer product), and nothing of the network's size is made per record.
A mean of gradients at several points has the same form, and so has a difference.

What a record adds is k (x) x and a vector v, k and v integers, with ||k||^2 ||x||^2 + ||v||^2 (or
||k||_1 ||x||_1 + ||v||_1) checked against the Plan's bound in exact integers: no float is trusted.

`loss` is as in losses.py. Weights come as P points `base` [P, ...], and with `change` a record's
vector is the mean of its gradients at base + move less that at base.
"""

import numpy as np
from numba import njit

from workers.kernels.losses import derivative64
from workers.kernels.madd import ROWS
from workers.kernels.vectors import _TINY, BLOCK, _accumulate, _margins

_MULTIPLIER_MAX = 2.0**15 - 1  # k are int16 for fixed rows
ROW_UNITS = 2**12  # of the integer direction of a float64 row


@njit(cache=True, inline="always", error_model="numpy")
def _add_gradient(hidden, outer, offset, y, loss, weight, u, v):
    """(u, v) += weight times the gradient of one record whose hidden units are `hidden`."""
    width = outer.size
    output = offset
    for h in range(width):
        output += outer[h] * (hidden[h] if hidden[h] > 0.0 else 0.0)
    slope = weight * derivative64(loss, output, y)
    for h in range(width):
        if hidden[h] > 0.0:
            u[h] += slope * outer[h]
            v[h] += slope * hidden[h]
    v[width] += slope


@njit(cache=True, inline="always", error_model="numpy")
def _size(u, v, row, use_l1):
    """The norm of (u (x) x, v) for a row of this norm."""
    inner, rest = 0.0, 0.0
    for h in range(u.size):
        inner += abs(u[h]) if use_l1 else u[h] * u[h]
    for h in range(v.size):
        rest += abs(v[h]) if use_l1 else v[h] * v[h]
    return inner * row + rest if use_l1 else np.sqrt(inner * row * row + rest)


@njit(cache=True, inline="always", error_model="numpy")
def _fits(k, v, row, bound, use_l1):
    """Whether the integers are within the bound; `row` is ||x||_1 or ||x||^2, an integer.

    Floats first, to know that no product leaves int64: they err by far less than the factor 1.01, and
    1.01 bound^2 < 2^63.
    """
    inner, rest = np.int64(0), np.int64(0)
    about, about_rest = 0.0, 0.0
    for h in range(k.size):
        size = abs(np.int64(k[h])) if use_l1 else np.int64(k[h]) * np.int64(k[h])
        inner += size
        about += size
    for h in range(v.size):
        size = abs(v[h]) if use_l1 else v[h] * v[h]
        rest += size
        about_rest += size
    limit = np.int64(bound) if use_l1 else np.int64(bound) * np.int64(bound)
    if about * float(row) + about_rest > 1.01 * float(limit):
        return False
    return inner * np.int64(row) + rest <= limit


@njit(cache=True, inline="always", error_model="numpy")
def _integers(u, v, per_u, per_v, most, row, bound, use_l1, k, out):
    """k, out = u per_u, v per_v to the nearest integers; towards zero if those are too long; zero if
    these still are. A NaN counts as zero, and only values within `most` or the bound are converted."""
    for attempt in range(3):
        half = 0.5 if attempt == 0 else 0.0
        for h in range(u.size):
            value = u[h] * per_u
            value = value if value == value and attempt < 2 else 0.0  # noqa: PLR0124 - isnan
            value = min(max(value, -most), most)
            k[h] = np.int64(value + half) if value > 0.0 else -np.int64(half - value)
        for h in range(v.size):
            value = v[h] * per_v
            value = value if value == value and attempt < 2 else 0.0  # noqa: PLR0124 - isnan
            value = min(max(value, -float(bound)), float(bound))
            out[h] = np.int64(value + half) if value > 0.0 else -np.int64(half - value)
        if _fits(k, out, row, bound, use_l1):
            return


@njit(cache=True, nogil=True, error_model="numpy")
def add_network_fixed(  # noqa: PLR0912 - one pass
    total, rest, x, y, base, base_steps, outer, move, move_steps, outer_move, change, loss,
    feature_step, clip, bound, use_l1, fast,
):  # fmt: skip
    """total[h] += sum of k_h x over int16 rows, rest += sum of v; in units of clip/bound.

    Hidden weights are int16 [P, width, size] in units of base_steps, such that no product with a row
    leaves int32, and laid out as in gradients.add_fixed; `outer` [P, width + 1] ends with the offset.
    """
    rows, columns = x.shape
    points, width, size = base.shape
    margins = np.empty((points, width, BLOCK), dtype=np.int32)
    moves = np.zeros((width, BLOCK), dtype=np.int32)
    q, k = np.empty((width, BLOCK), dtype=np.int16), np.empty(width, dtype=np.int64)
    hidden, u = np.empty(width), np.empty(width)
    v, out = np.empty(width + 1), np.empty(width + 1, dtype=np.int64)
    chunks = np.arange(columns)
    for j in range(columns - columns % ROWS if fast else columns, columns):
        chunks[j] = size - (columns - j)
    outer_now = outer + outer_move
    for first in range(0, rows, BLOCK):
        count = min(BLOCK, rows - first)
        quick = count - count % ROWS if fast else 0
        block = x[first : first + count]
        for h in range(width):
            for p in range(points):
                _margins(block, quick, base[p, h], chunks, margins[p, h])
            if change:
                _margins(block, quick, move[h], chunks, moves[h])
        for r in range(count):
            length = np.int64(0)
            for j in range(columns):
                entry = np.int64(block[r, j])
                length += abs(entry) if use_l1 else entry * entry
            u[:] = 0.0
            v[:] = 0.0
            label = y[first + r]
            for p in range(points):
                for h in range(width):
                    hidden[h] = margins[p, h, r] * base_steps[p, h]
                if change:
                    _add_gradient(
                        hidden, outer[p, :width], outer[p, width], label, loss, -1.0 / points, u, v
                    )
                    for h in range(width):
                        hidden[h] += moves[h, r] * move_steps[h]
                _add_gradient(
                    hidden,
                    outer_now[p, :width],
                    outer_now[p, width],
                    label,
                    loss,
                    1.0 / points,
                    u,
                    v,
                )
            norm = (float(length) if use_l1 else np.sqrt(float(length))) * feature_step
            norm = _size(u, v, norm, use_l1)
            per_v = (1.0 if norm <= clip else clip / norm) * (bound / clip)
            _integers(
                u, v, per_v * feature_step, per_v, _MULTIPLIER_MAX, length, bound, use_l1, k, out
            )
            for h in range(width):
                q[h, r] = k[h]
            for h in range(width + 1):
                rest[h] += out[h]
        for h in range(width):
            _accumulate(block, quick, q[h], chunks, total[h])


@njit(cache=True, nogil=True, error_model="numpy")
def add_network_float(  # noqa: PLR0912 - one pass
    total, rest, x, y, base, outer, move, outer_move, change, loss, clip, bound, use_l1
):
    """The same over float64 rows: k (x) b, where b is the row's direction in integers.

    A row with a non-finite entry counts as zero, and so does one below 1e-290.
    """
    rows, columns = x.shape
    points, width, _ = base.shape
    k, b = np.empty(width, dtype=np.int64), np.empty(columns, dtype=np.int64)
    hidden, u = np.empty(width), np.empty(width)
    v, out = np.empty(width + 1), np.empty(width + 1, dtype=np.int64)
    outer_now = outer + outer_move
    for i in range(rows):
        row, largest, doubt = x[i], 0.0, 0.0
        for j in range(columns):
            largest = max(largest, abs(row[j]))
            doubt += row[j] * 0.0
        usable = doubt == 0.0 and largest > _TINY
        shrink, size = 1.0 / largest, 0.0
        for j in range(columns):
            entry = row[j] * shrink
            size += abs(entry) if use_l1 else entry * entry
        size = size if use_l1 else np.sqrt(size)  # of the row over its largest entry
        length = np.int64(0)
        for j in range(columns):
            entry = row[j] * shrink * (ROW_UNITS / size) if usable else 0.0
            b[j] = np.int64(entry)
            length += abs(b[j]) if use_l1 else b[j] * b[j]
        u[:] = 0.0
        v[:] = 0.0
        for p in range(points):
            for h in range(width):
                hidden[h] = 0.0
                for j in range(columns):
                    hidden[h] += base[p, h, j] * row[j]
            if change:
                _add_gradient(
                    hidden, outer[p, :width], outer[p, width], y[i], loss, -1.0 / points, u, v
                )
                for h in range(width):
                    for j in range(columns):
                        hidden[h] += move[h, j] * row[j]
            _add_gradient(
                hidden, outer_now[p, :width], outer_now[p, width], y[i], loss, 1.0 / points, u, v
            )
        norm = _size(u, v, size * largest, use_l1)
        usable = usable and norm * 0.0 == 0.0
        per_v = (1.0 if norm <= clip else clip / norm) * (bound / clip) if usable else 0.0
        per_u = per_v * size * largest / ROW_UNITS
        _integers(u, v, per_u, per_v, float(bound), length, bound, use_l1, k, out)
        for h in range(width):
            for j in range(columns):
                total[h, j] += k[h] * b[j]
        for h in range(width + 1):
            rest[h] += out[h]
