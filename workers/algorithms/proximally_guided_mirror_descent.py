"""Runs what service/planning/algorithms/proximally_guided_mirror_descent.py planned."""

from math import isfinite

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.proximally_guided_mirror_descent import (
    ProximallyGuidedMirrorDescentSchedule,
)
from service.planning.plan import Plan
from service.planning.vectors import length
from workers.data import Data
from workers.directions import gaussians
from workers.kernels.mirror import mirror_gradient, nearest
from workers.progress import Progress
from workers.randomness import Use

Floats = NDArray[np.float64]


def run(plan: Plan, data: Data, progress: Progress) -> Floats:
    schedule = plan.schedule
    assert isinstance(schedule, ProximallyGuidedMirrorDescentSchedule)
    n, R = plan.facts.rows, schedule.rounds
    w = _start(plan, schedule, data)
    chosen = R - 1
    if schedule.output == "random":
        chosen -= data.drawn((R + 1) // 2)
    output = w
    for r in range(R):
        w = _round(plan, data, progress, w, r * n // R, (r + 1) * n // R)
        if r == chosen:
            output = w
    return output


def _start(plan: Plan, schedule: ProximallyGuidedMirrorDescentSchedule, data: Data) -> Floats:
    w: Floats = np.zeros(plan.dimension)
    if schedule.start == "random":
        normals = gaussians(data.stream(Use.DIRECTIONS, 0), w.size)
        radius = plan.spec.set.l2_radius(w.size)
        w = normals * ((radius / 2 if isfinite(radius) else 1.0) / length(normals))
    return plan.spec.set.project(w)


def _round(
    plan: Plan, data: Data, progress: Progress, centre: Floats, start: int, stop: int
) -> Floats:
    schedule = plan.schedule
    assert isinstance(schedule, ProximallyGuidedMirrorDescentSchedule)
    w, mean = centre, np.zeros_like(centre)
    for t in range(1, schedule.steps_each + 1):
        eta = 4 / (schedule.pull * (t + schedule.offset))
        g = data.noisy_sum(w, start, stop) / (stop - start) + plan.spec.ridge * w
        dual = (mirror_gradient(w - centre, schedule.norm) - eta * g) / (1 + eta * schedule.pull)
        w = nearest(dual, centre, plan.spec.set, schedule.norm, schedule.reach)
        mean += (w - mean) * (2 / (t + 1))
        progress.step()
    return mean
