"""Runs what service/planning/algorithms/localized_accelerated_sgd.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.localized_accelerated_sgd import LocalizedAcceleratedSgdSchedule
from service.planning.plan import Plan
from workers.data import Data
from workers.optimizers.acceleration import ac_sa, at_clip, mean_gradient, stage_clip
from workers.optimizers.regularised import Regularised
from workers.progress import Progress


def run(plan: Plan, data: Data, progress: Progress) -> NDArray[np.float64]:
    schedule, feasible = plan.schedule, plan.spec.set
    assert isinstance(schedule, LocalizedAcceleratedSgdSchedule)
    w = feasible.project(np.zeros(plan.dimension))
    clip, ridge, h = stage_clip(plan, data), plan.spec.ridge, Regularised.of(plan)
    for phase in schedule.phases:
        gradient = h.gradient(mean_gradient(data, progress, phase.batch, phase.start, phase.stop))
        centre, pull = w, phase.pull * (clip or 1.0)
        for stage in phase.stages:
            w = ac_sa(
                gradient,
                w,
                at_clip(stage, clip, ridge + pull),
                schedule.smoothness,
                feasible,
                ridge=ridge,
                pull=pull,
                centre=centre,
                prox=h.prox,
            )
    return w
