"""Euclidean projections on the feasible sets, of released weights: post-processing."""

import numpy as np
from numpy.typing import NDArray

from service.planning.spec import FeasibleSet
from workers.arrays import length

Floats = NDArray[np.float64]


def project(w: Floats, feasible: FeasibleSet) -> Floats:
    match feasible.kind:
        case "all":
            return w
        case "l2_ball":
            norm = length(w)
            return w if norm <= feasible.radius else w * (feasible.radius / norm)
        case "l1_ball":
            if float(np.abs(w).sum()) <= feasible.radius:
                return w
            return np.sign(w) * _on_simplex(np.abs(w), feasible.radius)
        case "simplex":
            return _on_simplex(w, feasible.total)
        case "box":
            return np.clip(w, feasible.lower, feasible.upper)
        case "polytope":
            raise TypeError("no projection on a polytope; algorithms over one use its vertices")
        case "lp_ball":
            raise TypeError("no projection in closed form; algorithms over it minimise linearly")


def _on_simplex(w: Floats, total: float) -> Floats:
    """max(w - t, 0) with the t at which the entries add up to `total` (Held, Wolfe, Crowder 1974). A
    shift of all entries changes nothing; with the largest at 0, `total` is never lost beside it."""
    w = w - w.max()
    falling = np.sort(w)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, w.size + 1)
    t = excess[np.nonzero(falling > excess)[0][-1]]
    return np.maximum(w - t, 0.0)
