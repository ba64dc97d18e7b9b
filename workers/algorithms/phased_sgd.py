"""Runs what service/planning/algorithms/phased_sgd.py planned."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.phased_sgd import PhasedSgdSchedule, SgdPhase
from service.planning.plan import Plan
from service.planning.vectors import length
from workers.data import Blocks, Data
from workers.kernels.losses import slope_of
from workers.kernels.trajectory import descend
from workers.progress import Progress

Floats = NDArray[np.float64]


def run(plan: Plan, data: Data, progress: Progress) -> Floats:
    schedule = plan.schedule
    assert isinstance(schedule, PhasedSgdSchedule)
    w = np.zeros(plan.dimension)
    for phase in schedule.phases:
        noisy = data.noisy_point(partial(_phase_mean, plan, schedule, phase, w, progress))
        w = noisy * min(1.0, schedule.radius / max(length(noisy), 1e-300))
    return w


def _phase_mean(
    plan: Plan,
    schedule: PhasedSgdSchedule,
    phase: SgdPhase,
    start: Floats,
    progress: Progress,
    blocks: Blocks,
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

    for _ in blocks(work, schedule.block, in_turn=True):
        progress.step()
    mean: Floats = (total + f * v) / phase.rows
    return mean
