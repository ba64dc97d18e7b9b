"""A running sum d_t = (kept_t d_(t-1) + gain_t h_t)/2^32 of exact sums h_t, in Python's integers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.planning.releases import Recursive
from workers.arrays import Sum

Exact = NDArray[Any]  # of Python's integers
PLACES = 128  # binary places


def carry(total: Exact, exact: Sum, kept: int, gain: int) -> Exact:
    """d_t, in 2^-PLACES, from d_(t-1) and h_t."""
    carried: Exact = kept * total + gain * (exact.astype(object) << PLACES)
    return carried // Recursive.KEPT_ONE


def nothing(size: int) -> Exact:
    return np.zeros(size, dtype=object)


def nearest(exact: Exact, places: int = PLACES) -> Sum:
    """To the nearest integers; a score that obeys its plan is within int64."""
    return ((exact + (1 << places - 1)) >> places).astype(np.int64)
