"""How long each record's gradient is at w = 0, for the choice of a clip.

A record's length is a function of that record alone; nothing else matters for privacy, as lengths are
only counted. The rules are those of the sums: a record with a non-finite entry or slope counts as
zero, and a row at 1e300 is measured like any other, scaled by its largest entry.
"""

import numpy as np
from numba import njit

from workers.kernels.losses import derivative64


@njit(cache=True, nogil=True, error_model="numpy")
def slopes_at_zero(out, y, loss):
    """|dl/dm| at margin 0; 0 where it is not a finite number."""
    for i in range(y.size):
        slope = abs(derivative64(loss, 0.0, y[i]))
        out[i] = slope if slope < np.inf else 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def row_norms(out, x, use_l1):
    """l2 or l1 norms of float64 rows; 0 for a row with a non-finite entry, inf beyond float64."""
    rows, columns = x.shape
    for i in range(rows):
        largest, odd = 0.0, 0.0
        for j in range(columns):
            largest = max(largest, abs(x[i, j]))
            odd += x[i, j] * 0.0
        size = 0.0
        if odd == 0.0 and largest > 0.0:
            for j in range(columns):
                part = abs(x[i, j]) / largest
                size += part if use_l1 else part * part
        out[i] = largest * (size if use_l1 else np.sqrt(size))
        if odd != 0.0:
            out[i] = 0.0
