"""Runs what service/planning/algorithms/frank_wolfe.py planned."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.frank_wolfe import FrankWolfeSchedule
from service.planning.plan import Plan
from service.planning.shared.vertices import scores
from workers.data import Data
from workers.progress import Progress

Floats = NDArray[np.float64]
Sum = NDArray[np.int64]


def run(plan: Plan, data: Data, progress: Progress) -> Floats:
    schedule, lattice = plan.schedule, plan.lattice
    assert isinstance(schedule, FrankWolfeSchedule) and lattice.kind == "score"
    corners = plan.spec.set.corners(plan.dimension, schedule.unit)
    sensitivity = scores(plan.spec, plan.facts, schedule.unit).sensitivity
    w = corners.centre
    for t in range(1, schedule.steps + 1):
        pull = plan.facts.rows * plan.spec.ridge * w / lattice.step
        chosen = data.choose(w, partial(corners.scores, pull), sensitivity, corners.far_row)
        m = min(1.0, 3 / (t + 2))
        w = (1 - m) * w + m * corners.vertex(chosen)
        progress.step()
    return w
