"""Rows in other coordinates, as integers whose norm is bounded whatever the coordinates are.

Each derived row is a function of one stored row and of public numbers. What it is good for rests
on floats; its bounds do not: every entry is clamped as an integer, and `_within` shrinks the row
until the sum of its squares, in int64, is within the limit.
"""

import numpy as np
from numba import njit

from workers.kernels.simd import BLOCK, SIDE, margins_each

LIMIT = 4095  # of an entry of a derived row, and of its norm without the constant
_SHRINK = 1.0 - 2.0**-40


@njit(cache=True, inline="always", error_model="numpy")
def _entry(value):
    """To the nearest integer within the limit; a NaN counts as zero."""
    value = value if value == value else 0.0  # noqa: PLR0124 - vector code for isnan
    value = value if value < 4095.0 else 4095.0
    value = value if value > -4095.0 else -4095.0
    units = np.int32(np.floor(value + 0.5))
    units = units if units < np.int32(LIMIT) else np.int32(LIMIT)
    return np.int16(units if units > np.int32(-LIMIT) else np.int32(-LIMIT))


@njit(cache=True, inline="always", error_model="numpy")
def _within(row):
    """Shrink a row until its norm is at most LIMIT. Truncation lowers every entry but a zero, and a
    row of zeros is short enough, so that ends."""
    while True:
        squares = np.int64(0)
        for j in range(row.size):
            squares += np.int64(row[j]) * np.int64(row[j])
        if squares <= LIMIT * LIMIT:
            return
        factor = LIMIT / np.sqrt(np.float64(squares)) * _SHRINK
        for j in range(row.size):
            row[j] = np.int16(row[j] * factor)


@njit(cache=True, nogil=True, error_model="numpy")
def centred(x, centre, scale, out):
    """out[r] = (x[r] - centre) scale without column 0, then `out`'s last column as it is."""
    features = x.shape[1] - 1
    for r in range(x.shape[0]):
        for j in range(features):
            out[r, j] = _entry((np.float64(x[r, j + 1]) - centre[j]) * scale)
        _within(out[r, :features])


@njit(cache=True, nogil=True, error_model="numpy")
def whitened(x, weights, offsets, scales, constant, fast, out):
    """out[r] = (constant, (<weights[i], x[r]> - offsets[i]) scales[i], ...), for padded int16 weights
    such that no margin leaves int32 (else margins wrap, which no bound rests on). There are weights
    for all entries, up to a multiple of SIDE."""
    rows, features = x.shape[0], x.shape[1] - 1
    m, entries = np.empty((SIDE, BLOCK), dtype=np.int32), np.empty(BLOCK, dtype=np.int16)
    for first in range(0, rows, BLOCK):
        count = min(BLOCK, rows - first)
        for low in range(0, features, SIDE):
            margins_each(x, first, count, weights, low, fast, m)
            for i in range(low, min(low + SIDE, features)):
                margins, offset, scale = m[i - low], offsets[i], scales[i]
                for r in range(count):
                    entries[r] = _entry((margins[r] - offset) * scale)
                for r in range(count):
                    out[first + r, i + 1] = entries[r]
        for r in range(first, first + count):
            out[r, 0] = constant
            _within(out[r, 1:])


@njit(cache=True, nogil=True, error_model="numpy")
def add_means(total, x, labels, l2_units, label_units, binary):
    """total += the sum of (x without column 0, t, |x|^2/l2_units, t^2 l2_units/label_units^2), rounded
    down; the last not for binary labels."""
    columns = x.shape[1]
    for r in range(x.shape[0]):
        squares = np.int64(0)
        for j in range(1, columns):
            entry = np.int64(x[r, j])
            total[j - 1] += entry
            squares += entry * entry
        label = np.int64(labels[r])
        total[columns - 1] += label
        total[columns] += min(squares // l2_units, l2_units)
        if not binary:
            total[columns + 1] += label * label * l2_units // (label_units * label_units)
