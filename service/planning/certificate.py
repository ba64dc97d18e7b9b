"""What a gradient says of a point: how near it is to a stationary point of a set."""

from math import isfinite, log, sqrt
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat, PositiveInt

from service.planning.draft import Schedule
from service.planning.lattice import SumLattice
from service.planning.sets import FeasibleSet
from service.planning.vectors import length

if TYPE_CHECKING:
    from service.planning.plan import Plan

Floats = NDArray[np.float64]
CONFIDENCE = 0.95


class CertificateSchedule(Schedule):
    """One noisy mean of all rows' gradients at a released model, or averaged over `points` drawn from
    the ball of `radius` about it. `step` is that of the projected gradient."""

    kind: Literal["certificate"] = "certificate"
    points: PositiveInt
    radius: float = Field(ge=0)
    step: PositiveFloat

    @property
    def steps(self) -> int:
        return 1


def noise_norm(lattice: SumLattice, d: int) -> float:
    """What the noise of one sum is no longer than, in l2, with probability CONFIDENCE."""
    if lattice.noise == "gaussian":
        return lattice.noise_scale * (sqrt(d) + sqrt(-2 * log(1 - CONFIDENCE)))
    return lattice.noise_scale * sqrt(2 * d + sqrt(20 * d / (1 - CONFIDENCE)))


def certificate_of(plan: "Plan", w: Floats, gradient: Floats) -> dict[str, Any]:
    """The card's certificate, from the noisy mean gradient of the data at w."""
    schedule, lattice, (of,) = plan.schedule, plan.lattice, plan.spec.named
    assert isinstance(schedule, CertificateSchedule) and isinstance(lattice, SumLattice)
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
