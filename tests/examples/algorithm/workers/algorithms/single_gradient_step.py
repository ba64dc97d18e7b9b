"""Runs what service/planning/algorithms/single_gradient_step.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.single_gradient_step import SingleGradientStepSchedule
from service.planning.plan import Plan
from workers.data import Data
from workers.progress import Progress


def run(plan: Plan, data: Data, progress: Progress) -> NDArray[np.float64]:
    schedule, n = plan.schedule, plan.facts.rows
    assert isinstance(schedule, SingleGradientStepSchedule)
    w = plan.spec.set.project(np.zeros(plan.dimension))
    gradient = data.noisy_sum(w, 0, n) / n + plan.spec.ridge * w
    progress.step()
    return plan.spec.set.project(w - schedule.step_size * gradient)
