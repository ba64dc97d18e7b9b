"""Runs what service/planning/algorithms/clipped_sgd.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.clipped_sgd import ClippedSgdSchedule, sgd_weights
from service.planning.plan import Plan
from workers.data import Data
from workers.progress import Progress


def run(plan: Plan, data: Data, progress: Progress) -> NDArray[np.float64]:
    schedule = plan.schedule
    assert isinstance(schedule, ClippedSgdSchedule)
    data.settle_clip()
    batch = schedule.batch
    w = np.zeros(plan.dimension)
    mean, total = np.zeros_like(w), 0.0
    for t, (eta, zeta) in enumerate(sgd_weights(schedule)):
        gradient = data.noisy_sum(w, t * batch, (t + 1) * batch) / batch + plan.spec.ridge * w
        w = plan.spec.set.project(w - eta * gradient)
        total += zeta
        if zeta > 0:  # a running weighted mean: no weight overflows, however long the run
            mean += (w - mean) * (zeta / total)
        progress.step()
    return mean
