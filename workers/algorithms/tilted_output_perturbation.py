"""Runs what service/planning/algorithms/tilted_output_perturbation.py planned."""

import numpy as np

from service.planning.plan import Plan
from service.planning.shared.minimiser import block_rows
from service.planning.shared.point import MinimiserSchedule
from workers.arrays import read_only
from workers.data import Blocks, Data
from workers.kernels.averaged import Levels, tilted_averaged_pass
from workers.kernels.losses import slope_of
from workers.kernels.minimise import merge_tilted, tilted_sum
from workers.kernels.steps import Pass
from workers.optimizers.averaged import average
from workers.optimizers.descent import Floats, Gradient, release, solve
from workers.progress import Progress


def run(plan: Plan, data: Data, progress: Progress) -> Floats:
    schedule = plan.schedule
    assert isinstance(schedule, MinimiserSchedule)

    def make(blocks: Blocks) -> Floats:
        if schedule.solver == "averaged-passes":
            n, one_pass = plan.facts.rows, averaged(plan, schedule)
            return average(schedule, n, plan.dimension, one_pass, blocks, data, progress)
        return solve(tilted_gradient(plan, schedule, blocks), plan.dimension, schedule, progress)

    return release(schedule, data, make)


def tilted_gradient(plan: Plan, schedule: MinimiserSchedule, blocks: Blocks) -> Gradient:
    tilt, unit = schedule.tilt, plan.facts.feature_step or 0.0
    loss, size = slope_of(plan), block_rows(plan.facts.columns)

    def gradient(w: Floats) -> Floats:
        weights = read_only(w * unit)
        total = np.zeros(w.size + 2)
        total[0] = -np.inf
        for part in blocks(
            lambda x, y: tilted_sum(x, y, weights, loss, schedule.slope_bound, tilt), size
        ):
            merge_tilted(total, part, tilt)
        return np.asarray(total[2:] * (unit / total[1]))

    return gradient


def averaged(plan: Plan, schedule: MinimiserSchedule) -> Pass:
    """Passes of one run: they go on with its level."""
    level, tilt = schedule.level, schedule.tilt
    if level is None or tilt is None:
        raise TypeError("a plan without a level")
    loss, unit, bound = slope_of(plan), plan.facts.feature_step or 0.0, schedule.slope_bound
    levels, v = Levels(tilt, level.low, level.scale, level.width), np.zeros(1)
    return lambda w, total, x, y, order, steps: tilted_averaged_pass(
        w, v, total, x, y, order, unit, loss, bound, steps, levels
    )
