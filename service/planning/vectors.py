"""Released vectors: their lengths, the same to the last bit on every run; what sets ask of them."""

from math import sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def length(vector: Floats) -> float:
    """Its l2 norm. By einsum, which no number of threads changes: BLAS may then add up in another
    order, and a job that is run again elsewhere should go the same way to the last bit."""
    return sqrt(float(np.einsum("i,i->", vector, vector)))


def norm(v: Floats, p: float) -> float:
    """||v||_p, without overflow; p may be infinite."""
    largest = float(np.abs(v).max())
    if largest == 0:
        return 0.0
    scaled = v / largest
    return largest * (length(scaled) if p == 2 else float(np.linalg.norm(scaled, p)))


def steepest(d: Floats, p: float) -> Floats:
    """The v of least <v, d> with ||v||_p <= 1, 1 < p <= 2; 0 if all are alike."""
    largest = float(np.abs(d).max())
    if not 0 < largest < np.inf:
        return np.zeros(d.size)
    q = p / (p - 1)
    u = np.abs(d / largest)
    v: Floats = -np.sign(d) * (u / norm(u, q)) ** (q - 1)
    return v


def on_simplex(w: Floats, total: float) -> Floats:
    """max(w - t, 0) with the t at which the entries add up to `total` (Held, Wolfe, Crowder 1974). A
    shift of all entries changes nothing; with the largest at 0, `total` is never lost beside it."""
    w = w - w.max()
    falling = np.sort(w)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, w.size + 1)
    t = excess[np.nonzero(falling > excess)[0][-1]]
    projected: Floats = np.maximum(w - t, 0.0)
    return projected
