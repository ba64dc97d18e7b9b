"""Runs what service/planning/algorithms/sufficient_statistics.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.sufficient_statistics import SufficientStatisticsSchedule
from service.planning.lattice import MomentLattice
from service.planning.plan import Plan
from workers.data import Data
from workers.optimizers.coordinates import locate, stored_weights, whiten
from workers.progress import Progress


def run(plan: Plan, data: Data, progress: Progress) -> NDArray[np.float64]:
    schedule, lattice = plan.schedule, plan.lattice
    assert isinstance(schedule, SufficientStatisticsSchedule) and isinstance(lattice, MomentLattice)
    rules = schedule.coordinates
    located = locate(plan, data, schedule.means, rules)
    white = whiten(plan, data, lattice, rules, located, plan.spec.ridge)
    progress.step()
    slopes = white.b * white.kept(white.b, white.b_noise, rules.doubt)
    w = np.concatenate([[located.frame.label_centre], slopes])
    return plan.spec.set.project(stored_weights(plan, located, white, w))
