"""Runs what service/planning/algorithms/stationarity_certificate.py planned."""

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
from service.planning.vectors import length
from workers.data import Data
from workers.directions import ball
from workers.measures import measures
from workers.progress import Progress
from workers.randomness import Use
from workers.results import Certificate

Floats = NDArray[np.float64]


def run(plan: Plan, data: Data, progress: Progress) -> Certificate:
    schedule = plan.schedule
    assert isinstance(schedule, CertificateSchedule)
    w, n = data.released, plan.facts.rows
    points = [w]
    if schedule.radius > 0:
        stream = data.stream(Use.DIRECTIONS, 0)
        points = list(w + ball(stream, schedule.points, w.size, schedule.radius))
    gradient = data.noisy_sum_at(points, 0, n) / (n * schedule.points)
    progress.step()
    return Certificate(gradient, certificate_of(plan, w, gradient))


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
