"""Runs what service/planning/algorithms/proximal_sgd.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.proximal_sgd import ProximalSgdSchedule
from service.planning.plan import Plan
from workers.data import Data
from workers.progress import Progress


def run(plan: Plan, data: Data, progress: Progress) -> NDArray[np.float64]:
    schedule, spec = plan.schedule, plan.spec
    assert isinstance(schedule, ProximalSgdSchedule)
    data.settle_clip()
    batch, eta = schedule.batch, schedule.step_size
    h, columns = spec.regulariser, plan.facts.columns
    w = spec.set.project(np.zeros(plan.dimension))
    for t in range(schedule.steps):
        gradient = data.noisy_sum(w, t * batch, (t + 1) * batch) / batch + spec.ridge * w
        gradient += h.smooth_gradient(w, columns)
        w = spec.set.project(h.prox(w - eta * gradient, eta, columns))
        progress.step()
    return w
