"""Released vectors: their lengths, the same to the last bit on every run; what sets ask of them."""

from math import sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_OUTER, _INNER = 80, 6  # of Newton's steps, at most


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


def on_lp_ball(z: Floats, p: float, radius: float) -> Floats:
    """The point of ||w||_p = radius, 1 < p <= 2, that is nearest to a z outside.

    It has the signs of z and, in units of the radius, |z| = |w| + t |w|^(p-1), 0 < t < ||z||_q. In s =
    |w|^(p-1) that is s^(q-1) + t s, convex: Newton's steps fall to the root from min(|z|^(p-1),
    |z|/t), where neither term exceeds |z|, and square the error. t is that at which 1/||s||_q = 1,
    which grows with t, in the end in proportion: Newton's steps, or halves of the interval where they
    would leave it. Whatever all this leaves of an error, the result has that norm; it is a function of
    what was released, and no privacy rests on it."""
    a, q = np.abs(z) / radius, p / (p - 1)
    s, low, t = a, 0.0, norm(a, q)
    high = t
    for _ in range(_OUTER):
        s = np.minimum(a ** (p - 1), a / t)
        for _ in range(_INNER):
            power = s ** (q - 2)
            s = s - (power * s + t * s - a) / ((q - 1) * power + t)
        size = norm(s, q)
        low, high = (t, high) if size > 1 else (low, t)
        steep = float(((s / size) ** q / ((q - 1) * s ** (q - 2) + t)).sum()) / size
        wanted = t + (1 - 1 / size) / steep
        if abs(wanted - t) <= 1e-12 * t:
            break
        t = wanted if low < wanted < high else (low + high) / 2
    w = s ** (q - 1)
    found: Floats = np.copysign(w * (radius / norm(w, p)), z)
    return found
