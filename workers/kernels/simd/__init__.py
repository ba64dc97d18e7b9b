"""Vector code behind one interface: whatever kernels do with vector instructions, they do from here.

    madd.py     sums over int16 rows, for x86 CPUs with AVX2
    floats.py    sums over float64 in vectors of LLVM's, for CPUs that have fma
    portable.py  the same for any CPU, in plain loops

Any of them gives the same bits, which tests compare; deleting one is a matter of this folder. The
choice for int16 rows is made for each sum (`Layout.fast`), that for float64 once, below.

Layout. Vectors take columns in chunks, and the last chunk of a row goes on into the next row: vectors
of weights are padded with zeros, and what stands in the padding of sums is nobody's. The last rows,
behind which there are not enough numbers, are taken by plain loops.

Caller's duty: |q| < 2^15 and |x| < 2^12, so that sixteen products stay within int32; arrays are
contiguous.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from workers.kernels.simd import floats, madd, portable
from workers.kernels.simd.floats import LANES as FLOAT_LANES
from workers.kernels.simd.floats import TOGETHER
from workers.kernels.simd.madd import LANES, ROWS, SIDE, accumulate_all
from workers.kernels.simd.madd import TOGETHER as _FOUR
from workers.kernels.simd.madd import accumulate as _accumulate
from workers.kernels.simd.madd import margins as _margins
from workers.kernels.simd.madd import margins_each as _margins_each

__all__ = [
    "BLOCK",
    "FLOAT_LANES",
    "SIDE",
    "TOGETHER",
    "Layout",
    "accumulate",
    "accumulate_each",
    "convert",
    "float_margins4",
    "margins",
    "margins_each",
    "measure",
]

BLOCK = 128  # rows that stay in the nearest cache from margin to sum
AVAILABLE = madd.AVAILABLE

_floats = floats if floats.AVAILABLE else portable
measure, convert, float_margins4 = _floats.measure, _floats.convert, _floats.float_margins4


class Layout:
    """How many numbers vectors of weights and sums have for rows of so many columns; `fast` where
    vector code takes them."""

    def __init__(self, columns: int, fast: bool = True) -> None:
        self.fast = fast and AVAILABLE
        self._columns = columns
        self.size = columns + (-columns % LANES if self.fast else 0)

    def pad(self, weights: NDArray[np.int16]) -> NDArray[np.int16]:
        """[..., columns] as [..., size], read-only as all that kernels are given to read."""
        padded = np.zeros((*weights.shape[:-1], self.size), dtype=np.int16)
        padded[..., : self._columns] = weights
        padded.flags.writeable = False
        return padded

    def unpad(self, total: NDArray[np.int64]) -> NDArray[np.int64]:
        """[..., size] as [..., columns]."""
        return total[..., : self._columns]


@njit(cache=True, inline="always", error_model="numpy")
def _whole(x, first, count, size, together):
    """How many of the rows from `first` on have `size` numbers from their first on, at most `count`,
    in groups."""
    rows, columns = x.shape
    enough = (rows * columns - size) // columns + 1 if rows * columns >= size else 0
    quick = max(0, min(count, enough - first))
    return quick - quick % together


@njit(cache=True, nogil=True, error_model="numpy")
def margins(x, first, weights, fast, out):
    """out[r] = <x[first + r], weights>, in int32, for int16 rows and padded weights."""
    quick = _whole(x, first, out.size, weights.size, _FOUR) if fast else 0
    if quick > 0:
        _margins(x, first, quick, weights, out)
    if quick < out.size:
        portable.margins(x, first + quick, weights, out[quick:])


@njit(cache=True, nogil=True, error_model="numpy")
def margins_each(x, first, count, weights, low, fast, out):
    """out[h, r] = <x[first + r], weights[low + h]> for r < count and every h that `out` has, SIDE."""
    quick = _whole(x, first, count, weights.shape[1], _FOUR) if fast else 0
    if quick > 0:
        _margins_each(x, first, quick, weights, low, out)
    if quick < count:
        for h in range(SIDE):
            portable.margins(x, first + quick, weights[low + h], out[h, quick:count])


@njit(cache=True, nogil=True, error_model="numpy")
def accumulate(total, x, first, q, fast):
    """total += sum of q[r] x[first + r], for int16 rows, at most 2^15 of them, and a padded total."""
    quick = _whole(x, first, q.size, total.size, ROWS) if fast else 0
    if quick > 0:
        _accumulate(x, first, quick, q, total)
    if quick < q.size:
        portable.accumulate(total, x, first + quick, q[quick:])


@njit(cache=True, nogil=True, error_model="numpy")
def accumulate_each(totals, x, q, fast):
    """totals[h] += sum over r of q[h, r] x[r]; q may have more columns than x has rows."""
    count = x.shape[0]
    quick = _whole(x, 0, count, totals.shape[1], ROWS) if fast else 0
    if quick > 0:
        accumulate_all(x, quick, q, totals, np.empty(quick * LANES, dtype=np.int16))
    if quick < count:
        for h in range(totals.shape[0]):
            portable.accumulate(totals[h], x, quick, q[h, quick:count])
