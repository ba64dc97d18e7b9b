"""What a gradient says of a point: how near it is to a stationary point of a set."""

from math import inf, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.planning.spec import FeasibleSet
from workers.arrays import length, norm
from workers.kernels.projections import project

Floats = NDArray[np.float64]


def measures(gradient: Floats, w: Floats, feasible: FeasibleSet, step: float) -> dict[str, Any]:
    """Frank-Wolfe's gap max <g, w - v> over the set, and the lengths of g and of the projected one."""
    lowest, here = least(gradient, feasible), float(np.einsum("i,i->", gradient, w))
    projected = None
    if feasible.kind not in ("polytope", "lp_ball"):  # which have no projection in closed form
        moved = (w - project(w - step * gradient, feasible)) / step
        projected = length(moved)
    return {
        "gradient": gradient.tolist(),
        "gradient_norm": length(gradient),
        "projected_gradient_norm": projected,
        "stationarity_gap": here - lowest if isfinite(lowest) else None,
    }


def least(gradient: Floats, feasible: FeasibleSet) -> float:  # noqa: PLR0911 - one per set
    """min <gradient, v> over the set."""
    match feasible.kind:
        case "l2_ball":
            return -feasible.radius * length(gradient)
        case "l1_ball":
            return -feasible.radius * float(np.abs(gradient).max())
        case "lp_ball":
            return -feasible.radius * norm(gradient, feasible.p / (feasible.p - 1))
        case "simplex":
            return feasible.total * float(gradient.min())
        case "box":
            return float(np.minimum(feasible.lower * gradient, feasible.upper * gradient).sum())
        case "polytope":
            return float(np.einsum("vi,i->v", np.array(feasible.vertices), gradient).min())
        case _:
            return -inf
