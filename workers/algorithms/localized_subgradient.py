"""Runs what service/planning/algorithms/localized_subgradient.py planned."""

from math import inf

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.localized_subgradient import LocalizedSubgradientSchedule
from service.planning.plan import Plan
from service.planning.vectors import length
from workers.data import Data
from workers.optimizers.acceleration import mean_gradient
from workers.optimizers.regularised import Regularised
from workers.progress import Progress

Floats = NDArray[np.float64]


def run(plan: Plan, data: Data, progress: Progress) -> Floats:
    schedule, spec = plan.schedule, plan.spec
    assert isinstance(schedule, LocalizedSubgradientSchedule)
    clip, h = data.settle_clip(), Regularised.of(plan)
    w = spec.set.project(np.zeros(plan.dimension))
    for phase in schedule.phases:
        data.use(phase.lattice)
        gradient = h.gradient(mean_gradient(data, progress, phase.batch, phase.start, phase.stop))
        eta = min(phase.step_size / clip, schedule.step_max or inf)
        pull, centre, mean = phase.pull * clip, w, np.zeros_like(w)
        kept = phase.steps // 2
        for t in range(phase.steps):
            w = w - eta * (gradient(w) - pull * centre)
            shorter = 1 + eta * (pull + spec.ridge)
            w = _near(centre, h.prox(w / shorter, eta / shorter), phase.reach)
            w = spec.set.project(w)  # no further from the centre, which is in the set
            if t >= kept:
                mean += (w - mean) / (t - kept + 1)
        w = mean
    return w


def _near(centre: Floats, w: Floats, reach: float | None) -> Floats:
    distance = length(w - centre)
    if reach is None or distance <= reach:
        return w
    return centre + (w - centre) * (reach / distance)
