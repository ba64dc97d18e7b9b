"""Runs what service/planning/algorithms/gradient_descent.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.gradient_descent import GradientDescentSchedule
from service.planning.plan import Plan
from workers.data import Data
from workers.directions import start_of
from workers.optimizers.acceleration import mean_gradient, squared_metric
from workers.optimizers.regularised import Regularised
from workers.progress import Progress
from workers.randomness import Use


def run(plan: Plan, data: Data, progress: Progress) -> NDArray[np.float64]:
    schedule = plan.schedule
    assert isinstance(schedule, GradientDescentSchedule)
    clip, longer = data.settle_clip(), squared_metric(plan, schedule.intercept)
    eta = schedule.step_size / (clip if schedule.step_per_clip else 1.0)
    h, rows = Regularised.of(plan), plan.facts.rows
    gradient = h.gradient(mean_gradient(data, progress, schedule.batch or rows, 0, rows))
    w = plan.spec.set.project(start_of(plan, data.stream(Use.PATH, 1)))
    mean = np.zeros_like(w)
    for t in range(schedule.steps):
        w = w - eta * longer * (gradient(w) + plan.spec.ridge * w)
        w = plan.spec.set.project(h.prox(w, eta))
        if t >= schedule.steps - schedule.averaged:
            mean += w / schedule.averaged
    return mean
