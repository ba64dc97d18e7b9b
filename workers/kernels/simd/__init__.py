"""Vector code behind one interface: whatever kernels do with vector instructions, they do from here.

    avx2.py      sums over int16 rows, for x86 CPUs with AVX2
    floats.py    sums over float64 in vectors of LLVM's, for CPUs that have fma
    portable.py  the same for any CPU, in plain loops

Either way gives the same bits, which tests compare; deleting one is a matter of this folder. The
choice for int16 rows is made for each sum (`Layout.fast`), that for float64 once, below.

Layout. AVX2 takes columns in chunks of 16. The last chunk of a row whose width is no multiple of 16
overlaps the one before; vectors of weights and of sums are padded, so that each column has one lane in
which it counts: the last columns that in the last chunk. Other lanes hold zeros, or are ignored.

Caller's duty: |q| < 2^15 and |x| < 2^12, so that sixteen products stay within int32; arrays are
contiguous.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from workers.kernels.simd import avx2, floats, portable
from workers.kernels.simd.avx2 import LANES, ROWS, accumulate16, accumulate_all, margins16
from workers.kernels.simd.floats import LANES as FLOAT_LANES
from workers.kernels.simd.floats import TOGETHER

__all__ = [
    "BLOCK",
    "FLOAT_LANES",
    "TOGETHER",
    "Layout",
    "accumulate",
    "accumulate_each",
    "convert",
    "float_margins4",
    "margins",
    "measure",
]

BLOCK = 128  # rows that stay in the nearest cache from margin to sum
AVAILABLE = avx2.AVAILABLE

_floats = floats if floats.AVAILABLE else portable
measure, convert, float_margins4 = _floats.measure, _floats.convert, _floats.float_margins4


class Layout:
    """Where the columns of int16 rows stand in padded vectors; `fast` where AVX2 takes them."""

    def __init__(self, columns: int, fast: bool = True) -> None:
        self.fast = fast and AVAILABLE and columns >= LANES
        self.size = columns + (-columns % LANES if self.fast else 0)
        column = np.arange(columns)
        whole = columns - columns % LANES
        self.positions = np.where(column < whole, column, column + self.size - columns)

    def pad(self, weights: NDArray[np.int16]) -> NDArray[np.int16]:
        """[..., columns] as [..., size], read-only as all that kernels are given to read."""
        padded = np.zeros((*weights.shape[:-1], self.size), dtype=np.int16)
        padded[..., self.positions] = weights
        padded.flags.writeable = False
        return padded

    def unpad(self, total: NDArray[np.int64]) -> NDArray[np.int64]:
        """[..., size] as [..., columns]."""
        return total[..., self.positions]


@njit(cache=True, inline="always", error_model="numpy")
def margins(x, first, weights, fast, out):
    """out[r] = <x[first + r], weights>, in int32, for int16 rows and padded weights."""
    quick = out.size - out.size % ROWS if fast else 0
    for r in range(0, quick, ROWS):
        margins16(x, first + r, weights, out[r : r + ROWS])
    if quick < out.size:
        portable.margins(x, first + quick, weights, out[quick:])


@njit(cache=True, inline="always", error_model="numpy")
def accumulate(total, x, first, q, fast):
    """total += sum of q[r] x[first + r], for int16 rows and a padded total."""
    quick = q.size - q.size % ROWS if fast else 0
    for r in range(0, quick, ROWS):
        accumulate16(x, first + r, q[r : r + ROWS], total)
    if quick < q.size:
        portable.accumulate(total, x, first + quick, q[quick:])


@njit(cache=True, nogil=True, error_model="numpy")
def accumulate_each(totals, x, q, fast):
    """totals[h] += sum over r of q[h, r] x[r]; q may have more columns than x has rows."""
    count = x.shape[0]
    quick = count - count % ROWS if fast else 0
    if quick > 0:
        accumulate_all(x, quick, q, totals, np.empty((quick, LANES), dtype=np.int16))
    if quick < count:
        for h in range(totals.shape[0]):
            portable.accumulate(totals[h], x, quick, q[h, quick:count])
