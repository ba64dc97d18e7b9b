"""Runs what service/planning/algorithms/accelerated_sgd.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.accelerated_sgd import AcceleratedSgdSchedule
from service.planning.plan import Plan
from workers.data import Data
from workers.optimizers.acceleration import (
    ac_sa,
    at_clip,
    mean_gradient,
    squared_metric,
    stage_clip,
)
from workers.optimizers.regularised import Regularised
from workers.progress import Progress

Floats = NDArray[np.float64]


def run(plan: Plan, data: Data, progress: Progress) -> Floats:
    schedule, feasible = plan.schedule, plan.spec.set
    assert isinstance(schedule, AcceleratedSgdSchedule)
    w = feasible.project(np.zeros(plan.dimension))
    clip, ridge = stage_clip(plan, data), plan.spec.ridge
    longer, h = squared_metric(plan, schedule.intercept), Regularised.of(plan)
    gradient = h.gradient(mean_gradient(data, progress, schedule.batch, 0, plan.facts.rows))
    for stage in schedule.stages:
        of_clip = at_clip(stage, clip, ridge)
        w = ac_sa(
            gradient,
            w,
            of_clip,
            schedule.smoothness,
            feasible,
            ridge=ridge,
            longer=longer,
            prox=h.prox,
        )
    return w
