"""Runs what service/planning/algorithms/frank_wolfe.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.frank_wolfe import FrankWolfeSchedule
from service.planning.plan import Plan
from workers.data import Data
from workers.progress import Progress


def run(plan: Plan, data: Data, progress: Progress) -> NDArray[np.float64]:
    schedule, lattice = plan.schedule, plan.lattice
    assert isinstance(schedule, FrankWolfeSchedule) and lattice.kind == "score"
    w = data.corners.centre
    for t in range(1, schedule.steps + 1):
        chosen = data.choose(w, plan.facts.rows * plan.spec.ridge * w / lattice.step)
        m = min(1.0, 3 / (t + 2))
        w = (1 - m) * w + m * data.corners.vertex(chosen)
        progress.step()
    return w
