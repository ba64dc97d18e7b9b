"""Runs what service/planning/algorithms/localized_accelerated_sgd.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.localized_accelerated_sgd import LocalizedAcceleratedSgdSchedule
from service.planning.plan import Plan
from workers.data import Data
from workers.optimizers.acceleration import ac_sa, mean_gradient
from workers.progress import Progress


def run(plan: Plan, data: Data, progress: Progress) -> NDArray[np.float64]:
    schedule, feasible = plan.schedule, plan.spec.set
    assert isinstance(schedule, LocalizedAcceleratedSgdSchedule)
    w = feasible.project(np.zeros(plan.dimension))
    for phase in schedule.phases:
        gradient = mean_gradient(data, progress, phase.batch, phase.start, phase.stop)
        centre = w
        for stage in phase.stages:
            w = ac_sa(
                gradient,
                w,
                stage,
                schedule.smoothness,
                feasible,
                ridge=plan.spec.ridge,
                pull=phase.pull,
                centre=centre,
            )
    return w
