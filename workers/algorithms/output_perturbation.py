"""Runs what service/planning/algorithms/output_perturbation.py planned."""

import numpy as np

from service.planning.plan import Plan
from service.planning.shared.minimiser import block_rows
from service.planning.shared.point import MinimiserSchedule
from workers.arrays import read_only
from workers.data import Blocks, Data
from workers.kernels.averaged import averaged_pass
from workers.kernels.losses import slope_of, vector_pass_of
from workers.kernels.minimise import gradient_sum, sgd_block
from workers.kernels.steps import Pass
from workers.optimizers.averaged import average
from workers.optimizers.descent import Floats, Gradient, into_ball, release, solve
from workers.progress import Progress


def run(plan: Plan, data: Data, progress: Progress) -> Floats:
    schedule = plan.schedule
    assert isinstance(schedule, MinimiserSchedule)

    def make(blocks: Blocks) -> Floats:
        if schedule.solver == "averaged-passes":
            n, one_pass = plan.facts.rows, averaged(plan, schedule)
            return average(schedule, n, plan.dimension, one_pass, blocks, data, progress)
        gradient = mean_gradient(plan, schedule, blocks)
        match schedule.solver:
            case "subgradient":
                return _average(gradient, plan.dimension, schedule, progress)
            case "sgd":
                return _pass_by_row(plan, schedule, blocks, progress)
            case _:
                return solve(gradient, plan.dimension, schedule, progress)

    return release(schedule, data, make)


def mean_gradient(plan: Plan, schedule: MinimiserSchedule, blocks: Blocks) -> Gradient:
    n, unit = plan.facts.rows, plan.facts.feature_step or 0.0
    loss, size = slope_of(plan), block_rows(plan.facts.columns)

    def gradient(w: Floats) -> Floats:
        weights = read_only(w * unit)
        total = np.zeros(w.size)
        for part in blocks(
            lambda x, y: gradient_sum(x, y, weights, loss, schedule.slope_bound), size
        ):
            total += part
        return total * (unit / n)

    return gradient


def averaged(plan: Plan, schedule: MinimiserSchedule) -> Pass:
    if not plan.spec.loss.margin:
        return vector_pass_of(plan)
    loss, unit, bound = slope_of(plan), plan.facts.feature_step or 0.0, schedule.slope_bound
    return lambda w, total, x, y, order, steps: averaged_pass(
        w, total, x, y, order, unit, loss, bound, steps
    )


def _average(
    gradient: Gradient, dimension: int, schedule: MinimiserSchedule, progress: Progress
) -> Floats:
    w = mean = np.zeros(dimension)
    for t in range(1, schedule.steps + 1):
        step = schedule.step_size / (t + 1) * (gradient(w) + schedule.strong_convexity * w)
        w = into_ball(w - step, schedule.radius)
        mean = mean + (w - mean) * (2 / (t + 2))
        progress.step()
    return mean


def _pass_by_row(
    plan: Plan, schedule: MinimiserSchedule, blocks: Blocks, progress: Progress
) -> Floats:
    w = np.zeros(plan.dimension)
    loss, unit, size = slope_of(plan), plan.facts.feature_step or 0.0, block_rows(w.size)
    arguments = schedule.slope_bound, schedule.step_size, schedule.strong_convexity, schedule.radius
    for _ in range(schedule.steps):
        for _ in blocks(
            lambda x, y: sgd_block(w, x, y, unit, loss, *arguments), size, in_turn=True
        ):
            pass
        progress.step()
    return w
