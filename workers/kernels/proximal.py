"""Proximal operators of the regularisers, of released weights: post-processing.

prox_(eta h)(z) = argmin over w of eta h(w) + ||w - z||^2/2. Intercepts, the first of every `columns`
weights, are left alone. An elastic net's square is smooth and goes with the gradient; h is the rest of
it. A projection that follows makes it the operator of h on a set, for the sets that the plan admits.
"""

import numpy as np
from numpy.typing import NDArray

from service.planning.spec import Regulariser

Floats = NDArray[np.float64]


def prox(z: Floats, eta: float, h: Regulariser, columns: int) -> Floats:
    if h.kind == "none":
        return z
    w = z.reshape(-1, columns).copy()
    slopes = w[:, 1:]
    match h.kind:
        case "l1":
            w[:, 1:] = _shrunk(slopes, eta * h.strength)
        case "elastic_net":
            w[:, 1:] = _shrunk(slopes, eta * h.l1)
        case "group_lasso":
            starts = np.concatenate([[0], np.cumsum(h.groups[:-1])]).astype(np.int64)
            norms = np.sqrt(np.add.reduceat(slopes**2, starts, axis=1))
            limits = eta * h.strength * np.sqrt(np.asarray(h.groups, dtype=np.float64))
            kept = np.maximum(0.0, 1 - limits / np.maximum(norms, 1e-300))
            w[:, 1:] = slopes * np.repeat(kept, h.groups, axis=1)
    return w.ravel()


def smooth_part(w: Floats, h: Regulariser, columns: int) -> Floats:
    """The gradient of what has one."""
    slopes = w.reshape(-1, columns).copy()
    slopes[:, 0] = 0.0
    return slopes.ravel() * (h.l2 if h.kind == "elastic_net" else 0.0)


def _shrunk(z: Floats, by: float) -> Floats:
    return np.sign(z) * np.maximum(np.abs(z) - by, 0.0)
