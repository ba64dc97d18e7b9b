"""Runs what service/planning/algorithms/gradient_descent.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.plan import GradientDescentSchedule, Plan
from workers.data import NoisySums
from workers.kernels.projections import project_l2
from workers.progress import Progress


def run(plan: Plan, noisy_sum: NoisySums, progress: Progress) -> NDArray[np.float64]:
    schedule = plan.schedule
    assert isinstance(schedule, GradientDescentSchedule)
    n, radius = plan.facts.rows, plan.spec.set.radius
    w = np.zeros(plan.facts.columns)
    mean = np.zeros_like(w)
    for t in range(schedule.steps):
        gradient = noisy_sum(w, 0, n) / n + plan.spec.ridge * w
        w = project_l2(w - schedule.step_size * gradient, radius)
        if t >= schedule.steps - schedule.averaged:
            mean += w / schedule.averaged
        progress.step()
    return mean
