"""Estimates from values of the loss alone, and sums of per-record vectors that floats made.

As everywhere a record adds an integer vector whose norm is at most the Plan's bound by integer
arithmetic, whatever the floats before it did.

Products of matrices are made here and not by BLAS, whose rounding depends on how many threads it has
and how many rows it is given: a job that is run again elsewhere has the same sums to the last bit.
"""

import numpy as np
from numba import njit

from workers.kernels.losses import value_at
from workers.kernels.vectors import TINY, integers, norm

_WIDE, _DEEP = 256, 64  # of a tile


@njit(cache=True, nogil=True, error_model="numpy")
def product(out, a, b):
    """out = a @ b, each entry added up in the order of a's columns, in tiles that caches hold."""
    (rows, inner), columns = a.shape, b.shape[1]
    out[:] = 0.0
    for left in range(0, columns, _WIDE):
        right = min(columns, left + _WIDE)
        for low in range(0, inner, _DEEP):
            high = min(inner, low + _DEEP)
            fours = high - (high - low) % 4
            for i in range(0, rows - 1, 2):
                for k in range(low, fours, 4):
                    _add_two_by_four(
                        *(out[i, left:right], out[i + 1, left:right]),
                        *(a[i, k], a[i, k + 1], a[i, k + 2], a[i, k + 3]),
                        *(a[i + 1, k], a[i + 1, k + 1], a[i + 1, k + 2], a[i + 1, k + 3]),
                        *(b[k, left:right], b[k + 1, left:right]),
                        *(b[k + 2, left:right], b[k + 3, left:right]),
                    )
                for k in range(fours, high):
                    _add_one(out[i, left:right], a[i, k], b[k, left:right])
                    _add_one(out[i + 1, left:right], a[i + 1, k], b[k, left:right])
            for k in range(low if rows % 2 else high, high):
                _add_one(out[rows - 1, left:right], a[rows - 1, k], b[k, left:right])


@njit(cache=True, nogil=True, error_model="numpy")
def _add_two_by_four(first, second, a0, a1, a2, a3, c0, c1, c2, c3, p, q, r, s):
    for j in range(p.size):
        first[j] = (((first[j] + a0 * p[j]) + a1 * q[j]) + a2 * r[j]) + a3 * s[j]
        second[j] = (((second[j] + c0 * p[j]) + c1 * q[j]) + c2 * r[j]) + c3 * s[j]


@njit(cache=True, nogil=True, error_model="numpy")
def _add_one(out, a, b):
    for j in range(b.size):
        out[j] += a * b[j]


@njit(cache=True, nogil=True, error_model="numpy")
def orthonormal(rows, columns):
    """The rows [m, d] become orthonormal by Gram and Schmidt, each twice, which is enough; `columns`
    [d, m] is for a copy that is read along the rows' numbers."""
    m, d = rows.shape
    along = np.empty(m)
    for i in range(m):
        v = rows[i]
        for _ in range(2):
            along[:] = 0.0
            for k in range(d):
                for j in range(i):
                    along[j] += v[k] * columns[k, j]
            for j in range(i):
                for k in range(d):
                    v[k] -= along[j] * rows[j, k]
        length = norm(v, False)
        for k in range(d):
            v[k] /= length
            columns[k, i] = v[k]


@njit(cache=True, nogil=True, error_model="numpy")
def network_values(out, hidden, outer, y, loss):
    """out = the losses of a network whose hidden units have these inputs [width, rows]; `outer` ends
    with the offset."""
    out[:] = outer[-1]
    for h in range(hidden.shape[0]):
        for i in range(out.size):
            out[i] += outer[h] * (hidden[h, i] if hidden[h, i] > 0.0 else 0.0)
    for i in range(out.size):
        out[i] = value_at(loss, out[i], y[i])


@njit(cache=True, nogil=True, error_model="numpy")
def central_differences(moves, margins, y, loss, factor):
    """moves[i, j] becomes factor (l(m + move) - l(m - move)): each record has its margin m, and one
    move of it per direction."""
    for i in range(moves.shape[0]):
        m, label = margins[i], y[i]
        for j in range(moves.shape[1]):
            move = moves[i, j]
            change = value_at(loss, m + move, label) - value_at(loss, m - move, label)
            moves[i, j] = factor * change


@njit(cache=True, nogil=True, error_model="numpy")
def changes_of_differences(moves, margins, before, y, loss, factor):
    """The same, less that at the margins `before`."""
    for i in range(moves.shape[0]):
        m, there, label = margins[i], before[i], y[i]
        for j in range(moves.shape[1]):
            move = moves[i, j]
            change = value_at(loss, m + move, label) - value_at(loss, m - move, label)
            change -= value_at(loss, there + move, label) - value_at(loss, there - move, label)
            moves[i, j] = factor * change


@njit(cache=True, nogil=True, error_model="numpy")
def add_vectors(total, vectors, clip, bound, use_l1):
    """total += sum of the vectors, each clipped to `clip` and written in units of clip/bound.

    A vector with a non-finite entry counts as zero, and so does one below 1e-290; scaling by the
    largest entry first keeps every intermediate value finite.
    """
    rows, columns = vectors.shape
    scaled, v = np.empty(columns), np.empty(columns, dtype=np.int32)
    for i in range(rows):
        largest, doubt = 0.0, 0.0  # doubt becomes NaN at the first infinity or NaN
        for j in range(columns):
            entry = vectors[i, j]
            largest = max(largest, abs(entry))
            doubt += entry * 0.0
        usable = doubt == 0.0 and largest > TINY
        shrink = 1.0 / largest
        for j in range(columns):
            scaled[j] = vectors[i, j] * shrink
        size = norm(scaled, use_l1)
        share = size * largest / clip
        factor = (share if share < 1.0 else 1.0) * bound / size if usable else 0.0
        for j in range(columns):
            scaled[j] *= factor
        integers(scaled, bound, use_l1, v)
        for j in range(columns):
            total[j] += v[j]
