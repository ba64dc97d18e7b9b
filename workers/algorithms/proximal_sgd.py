"""Runs what service/planning/algorithms/proximal_sgd.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.proximal_sgd import ProximalSgdSchedule
from service.planning.plan import Plan
from workers.data import Data
from workers.kernels.projections import project
from workers.kernels.proximal import prox, smooth_part
from workers.progress import Progress


def run(plan: Plan, data: Data, progress: Progress) -> NDArray[np.float64]:
    schedule, spec = plan.schedule, plan.spec
    assert isinstance(schedule, ProximalSgdSchedule)
    data.settle_clip()
    batch, eta = schedule.batch, schedule.step_size
    h, columns = spec.regulariser, plan.facts.columns
    w = project(np.zeros(plan.dimension), spec.set)
    for t in range(schedule.steps):
        gradient = data.noisy_sum(w, t * batch, (t + 1) * batch) / batch + spec.ridge * w
        gradient += smooth_part(w, h, columns)
        w = project(prox(w - eta * gradient, eta, h, columns), spec.set)
        progress.step()
    return w
