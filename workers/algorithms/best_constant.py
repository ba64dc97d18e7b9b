"""Runs what service/planning/algorithms/best_constant.py planned."""

from math import exp

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.best_constant import BestConstantSchedule
from service.planning.lattice import MomentLattice
from service.planning.loss import Scalar
from service.planning.plan import Plan
from workers.data import Data
from workers.optimizers.labels import expected, mean_label
from workers.progress import Progress

_SURE = 15.0  # log-odds, at most


def run(plan: Plan, data: Data, progress: Progress) -> NDArray[np.float64]:
    schedule, lattice, n = plan.schedule, plan.lattice, plan.facts.rows
    assert isinstance(schedule, BestConstantSchedule) and isinstance(lattice, MomentLattice)
    middle, half = (0.0, 1.0) if schedule.labels is None else data.choose_label_range()
    mean = expected(*mean_label(data, lattice, n))
    progress.step()
    # of half its square, in units of the margin: column 0 is linf
    linf = plan.facts.linf or 1.0
    loss, ridge = plan.spec.loss.scalar(), plan.spec.ridge / linf**2
    if loss.argument == "residual":
        constant = (middle + half * mean) / (1 + ridge)
    else:
        constant = best_margin(loss, mean, ridge)
    weights = np.zeros(plan.dimension)
    weights[0] = constant / linf
    return plan.spec.set.project(weights)


def best_margin(loss: Scalar, mean: float, ridge: float = 0.0) -> float:
    """Of all rows, where labels are -1 and 1 and have this mean: where the slope passes through 0."""
    p = (1 + mean) / 2

    def slope(m: float) -> float:
        if not loss.straight:
            return 1 / (1 + exp(-m)) - p + ridge * m
        one, other = (min(max(loss.curvature * (1 - side * m), 0.0), 1.0) for side in (1, -1))
        return (1 - p) * other - p * one + ridge * m

    high = 1.0 if loss.straight else _SURE
    low = -high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) < 0 else (low, middle)
    return (low + high) / 2
