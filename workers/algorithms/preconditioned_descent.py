"""Runs what service/planning/algorithms/preconditioned_descent.py planned."""

from math import erf, sqrt

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.preconditioned_descent import PreconditionedDescentSchedule
from service.planning.plan import Plan
from service.planning.shared.moments import residual_noise
from workers.data import Data
from workers.kernels.losses import slope_of
from workers.kernels.sizes import slopes_at_zero
from workers.optimizers.newton import inverse, quadratic
from workers.progress import Progress

Floats = NDArray[np.float64]


def run(plan: Plan, data: Data, progress: Progress) -> Floats:
    schedule, n, ridge = plan.schedule, plan.facts.rows, plan.spec.ridge
    assert isinstance(schedule, PreconditionedDescentSchedule)
    moments = data.noisy_moments() / n
    S, b, v = moments[:-1, :-1].copy(), moments[:-1, -1].copy(), float(moments[-1, -1])
    curvature = schedule.curvature
    if schedule.residual:
        w = inverse(S, 1.0, schedule.damping, ridge)(b)
        noise = residual_noise(schedule.moments, plan.facts, w)
        spread = sqrt(max(min(quadratic(S, b, v, w), v), 0.0) + noise)
        if schedule.window is not None:
            curvature *= erf(schedule.window / spread / sqrt(8))
        if schedule.clip is not None:
            wanted = schedule.clip.spread * spread / schedule.clip.unit
            data.set_clip(min(max(wanted, schedule.clip.low), schedule.clip.high))
    step = inverse(S, curvature, schedule.damping, ridge)
    if not schedule.residual:
        slope = np.empty(1)
        slopes_at_zero(slope, np.ones(1), slope_of(plan))
        w = step(slope[0] * b)
    w = plan.spec.set.project(w)
    mean = np.zeros_like(w)
    for t in range(schedule.steps):
        gradient = data.noisy_sum(w, 0, n) / n + ridge * w
        w = plan.spec.set.project(w - schedule.step_size * step(gradient))
        progress.step()
        if t >= schedule.steps - schedule.averaged:
            mean += w / schedule.averaged
    return mean
