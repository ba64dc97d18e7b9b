"""Runs what service/planning/algorithms/accelerated_clipped_sgd.py planned."""

from itertools import count

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.accelerated_clipped_sgd import AcceleratedClippedSgdSchedule
from service.planning.plan import Plan
from service.planning.shared.acceleration import Stage
from workers.data import Data
from workers.optimizers.acceleration import ac_sa
from workers.progress import Progress

Floats = NDArray[np.float64]


def run(plan: Plan, data: Data, progress: Progress) -> Floats:
    schedule, ridge = plan.schedule, plan.spec.ridge
    assert isinstance(schedule, AcceleratedClippedSgdSchedule)
    damping = max(2 * ridge, schedule.damping * data.settle_clip())
    stage = Stage(steps=schedule.steps, damping=damping)
    batch, numbers = schedule.batch, count()

    def gradient(w: Floats) -> Floats:
        start = next(numbers) * batch
        total = data.noisy_sum(w, start, start + batch)
        progress.step()
        return total / batch

    w = plan.spec.set.project(np.zeros(plan.dimension))
    return ac_sa(gradient, w, stage, schedule.smoothness, plan.spec.set, ridge=ridge)
