"""Runs what service/planning/algorithms/stochastic_frank_wolfe.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.stochastic_frank_wolfe import StochasticFrankWolfeSchedule
from service.planning.plan import Plan
from service.planning.shared.rounds import slope_bound, step_size
from service.planning.vectors import length, norm
from workers.data import Data
from workers.progress import Progress

Floats = NDArray[np.float64]


def run(plan: Plan, data: Data, progress: Progress) -> Floats:
    schedule, feasible = plan.schedule, plan.spec.set
    assert isinstance(schedule, StochasticFrankWolfeSchedule)
    w = output = feasible.start(plan.dimension)
    drawn = data.drawn(schedule.rounds[-1].steps)
    for one in schedule.rounds:
        before, mean = w, np.zeros(plan.dimension)
        for t, rows in enumerate(one.batches()):
            a = step_size(t)
            bound = slope_bound(schedule.lipschitz, _change(plan, schedule, w - before), a)
            noisy = data.noisy_change(w, before, 1 - a, bound, rows.start, rows.stop)
            mean = (1 - a) * mean + noisy / len(rows)
            v = feasible.lowest(mean + plan.spec.ridge * w)
            before, w = w, w + a * (v - w)
            output = w if t == drawn else output  # that of the last round stays
            progress.step()
    return output


def _change(plan: Plan, schedule: StochasticFrankWolfeSchedule, move: Floats) -> float:
    """How far any record's slope may change when the weights make this move."""
    margin = length(move) * (plan.facts.l2 or 0.0)
    return schedule.smoothness * min(margin, norm(move, plan.spec.set.exponent) * schedule.row_norm)


def lowest(d: Floats, p: float, radius: float) -> Floats:
    """The v of least <v, d> with ||v||_p <= radius; 0 if all are alike."""
    largest = float(np.abs(d).max())
    if not 0 < largest < np.inf:
        return np.zeros(d.size)
    q = p / (p - 1)
    u = np.abs(d / largest)
    v: Floats = -np.sign(d) * (u / norm(u, q)) ** (q - 1)
    return radius * v
