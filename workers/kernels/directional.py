"""Estimates from values of the loss alone, and sums of per-record vectors that floats made.

As everywhere a record adds an integer vector whose norm is at most the Plan's bound by integer
arithmetic, whatever the floats before it did.
"""

import numpy as np
from numba import njit

from workers.kernels.losses import derivative64, value64
from workers.kernels.vectors import _TINY, _norm, integers


@njit(cache=True, inline="always", error_model="numpy")
def _value(loss, m, y):
    return value64(loss, m, y, derivative64(loss, m, y))


@njit(cache=True, nogil=True, error_model="numpy")
def values(out, margins, y, loss):
    """out = the losses at these margins."""
    for i in range(out.size):
        out[i] = _value(loss, margins[i], y[i])


@njit(cache=True, nogil=True, error_model="numpy")
def central_differences(moves, margins, y, loss, factor):
    """moves[i, j] becomes factor (l(m + move) - l(m - move)): each record has its margin m, and one
    move of it per direction."""
    for i in range(moves.shape[0]):
        m, label = margins[i], y[i]
        for j in range(moves.shape[1]):
            move = moves[i, j]
            change = _value(loss, m + move, label) - _value(loss, m - move, label)
            moves[i, j] = factor * change


@njit(cache=True, nogil=True, error_model="numpy")
def changes_of_differences(moves, margins, before, y, loss, factor):
    """The same, less that at the margins `before`."""
    for i in range(moves.shape[0]):
        m, there, label = margins[i], before[i], y[i]
        for j in range(moves.shape[1]):
            move = moves[i, j]
            change = _value(loss, m + move, label) - _value(loss, m - move, label)
            change -= _value(loss, there + move, label) - _value(loss, there - move, label)
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
        usable = doubt == 0.0 and largest > _TINY
        shrink = 1.0 / largest
        for j in range(columns):
            scaled[j] = vectors[i, j] * shrink
        size = _norm(scaled, use_l1)
        share = size * largest / clip
        factor = (share if share < 1.0 else 1.0) * bound / size if usable else 0.0
        for j in range(columns):
            scaled[j] *= factor
        integers(scaled, bound, use_l1, v)
        for j in range(columns):
            total[j] += v[j]
