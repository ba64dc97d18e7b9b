"""Runs what service/planning/algorithms/accelerated_sgd.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.accelerated_sgd import AcceleratedSgdSchedule
from service.planning.plan import Plan
from workers.data import Data
from workers.optimizers.acceleration import ac_sa, mean_gradient
from workers.progress import Progress

Floats = NDArray[np.float64]


def run(plan: Plan, data: Data, progress: Progress) -> Floats:
    schedule, feasible = plan.schedule, plan.spec.set
    assert isinstance(schedule, AcceleratedSgdSchedule)
    w = feasible.project(np.zeros(plan.dimension))
    gradient = mean_gradient(data, progress, schedule.batch, 0, plan.facts.rows)
    for stage in schedule.stages:
        w = ac_sa(gradient, w, stage, schedule.smoothness, feasible, ridge=plan.spec.ridge)
    return w
