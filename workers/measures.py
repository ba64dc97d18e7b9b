"""What a gradient says of a point: how near it is to a stationary point of a set."""

from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.planning.sets import FeasibleSet
from service.planning.vectors import length

Floats = NDArray[np.float64]


def measures(gradient: Floats, w: Floats, feasible: FeasibleSet, step: float) -> dict[str, Any]:
    """Frank-Wolfe's gap max <g, w - v> over the set, and the lengths of g and of the projected one."""
    lowest, here = feasible.least(gradient), float(np.einsum("i,i->", gradient, w))
    projected = None
    if feasible.has_projection:
        moved = (w - feasible.project(w - step * gradient)) / step
        projected = length(moved)
    return {
        "gradient": gradient.tolist(),
        "gradient_norm": length(gradient),
        "projected_gradient_norm": projected,
        "stationarity_gap": here - lowest if isfinite(lowest) else None,
    }
