"""Runs what service/planning/algorithms/phased_sgd.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.phased_sgd import PhasedSgdSchedule, SgdPhase
from service.planning.plan import Plan
from service.planning.vectors import length
from workers.data import Data
from workers.kernels.losses import slope_of
from workers.kernels.trajectory import descend
from workers.progress import Progress

Floats = NDArray[np.float64]


def run(plan: Plan, data: Data, progress: Progress) -> Floats:
    schedule = plan.schedule
    assert isinstance(schedule, PhasedSgdSchedule)
    w, start = np.zeros(plan.dimension), 0
    for phase in schedule.phases:
        rows = range(start, start + phase.rows)
        mean = _phase_mean(plan, schedule, phase, data, rows, w, progress)
        noisy = data.noisy_point(mean)
        w = noisy * min(1.0, schedule.radius / max(length(noisy), 1e-300))
        start = rows.stop
    return w


def _phase_mean(
    plan: Plan,
    schedule: PhasedSgdSchedule,
    phase: SgdPhase,
    data: Data,
    rows: range,
    start: Floats,
    progress: Progress,
) -> Floats:
    """The mean of the iterates after each of the phase's steps: not to be seen by anyone yet."""
    v, total = start.copy(), np.zeros_like(start)
    f, weight = 1.0, 0.0  # the start does not count
    feature_step = plan.facts.feature_step or 0.0
    settings = feature_step, slope_of(plan), schedule.slope_bound, plan.spec.ridge

    def work(x: NDArray[np.int16], y: Floats) -> None:
        nonlocal f, weight
        f = descend(v, total, f, weight, x, y, *settings, phase.step_size, schedule.radius)
        weight = f

    for _ in data.blocks(work, schedule.block, in_turn=True, rows=rows):
        progress.step()
    mean: Floats = (total + f * v) / phase.rows
    return mean
