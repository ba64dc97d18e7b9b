"""Steps in the metric of released second moments: all of it is post-processing."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from workers.kernels.cholesky import cholesky, solve

Floats = NDArray[np.float64]


def inverse(
    moments: Floats, curvature: float, damping: float, ridge: float
) -> Callable[[Floats], Floats]:
    """(curvature (moments + damping I) + ridge I)^-1, with the damping doubled until there is one."""
    while True:
        matrix = curvature * moments
        matrix[np.diag_indices(len(matrix))] += curvature * damping + ridge
        left, positive = cholesky(matrix)
        if positive:
            return lambda vector: np.asarray(solve(left, vector))
        damping *= 2


def quadratic(moments: Floats, products: Floats, squares: float, w: Floats) -> float:
    """The mean of (y - <w, x>)^2 as the moments have it."""
    fitted = np.einsum("i,ij,j->", w, moments, w, optimize=False)
    return float(squares - 2 * np.einsum("i,i->", w, products) + fitted)
