"""What a gradient says of a point: how near it is to a stationary point of a set."""

from math import isfinite, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.stationarity_certificate import (
    CONFIDENCE,
    CertificateSchedule,
    noise_norm,
)
from service.planning.lattice import SumLattice
from service.planning.plan import Plan
from service.planning.sets import FeasibleSet
from service.planning.vectors import length

Floats = NDArray[np.float64]


def certificate_of(plan: Plan, w: Floats, gradient: Floats) -> dict[str, Any]:
    """The card's certificate, from the noisy mean gradient of the data at w."""
    schedule, lattice, of = plan.schedule, plan.lattice, plan.spec.of
    assert isinstance(schedule, CertificateSchedule) and isinstance(lattice, SumLattice)
    assert of is not None
    sums = plan.facts.rows * schedule.points
    noise = noise_norm(lattice, w.size) / sums
    farthest = length(w) + plan.spec.set.l2_radius(w.size)
    return {
        "of": of.job,
        "model_digest": of.digest,
        "radius": schedule.radius,
        **measures(gradient + plan.spec.ridge * w, w, plan.spec.set, schedule.step),
        "noise": sqrt(lattice.variance) / sums,
        "noise_norm": noise,
        "gap_noise": noise * farthest if isfinite(farthest) else None,
        "confidence": CONFIDENCE,
    }


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
