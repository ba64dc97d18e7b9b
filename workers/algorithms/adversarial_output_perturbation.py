"""Runs what service/planning/algorithms/adversarial_output_perturbation.py planned."""

import numpy as np

from service.planning.algorithms.adversarial_output_perturbation import ITERATIONS
from service.planning.plan import Plan
from service.planning.shared.minimiser import block_rows
from service.planning.shared.point import BoundedAdversary, MinimiserSchedule, PenalisedAdversary
from workers.arrays import read_only
from workers.data import Blocks, Data
from workers.kernels.averaged import Hostile, robust_averaged_pass
from workers.kernels.losses import slope_of
from workers.kernels.minimise import penalised_sum, robust_sum
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
        return solve(robust_gradient(plan, schedule, blocks), plan.dimension, schedule, progress)

    return release(schedule, data, make)


def robust_gradient(plan: Plan, schedule: MinimiserSchedule, blocks: Blocks) -> Gradient:
    n, unit = plan.facts.rows, plan.facts.feature_step or 0.0
    loss, bound, adversary = slope_of(plan), schedule.slope_bound, schedule.adversary
    size = block_rows(plan.facts.columns)

    def bounded(w: Floats, hostile: BoundedAdversary) -> Floats:
        """The data's part, and the norm's: its size times the mean slope along its gradient."""
        weights, corner = read_only(w * unit), hostile.corner
        if hostile.norm == "l2":
            roots = np.sqrt(np.sum(w * w) + corner**2)
        else:
            roots = np.sqrt(w * w + corner**2)
        shift = float(hostile.reach * np.sum(roots))
        total = np.zeros(w.size + 1)
        for part in blocks(
            lambda x, y: robust_sum(x, y, weights, loss, bound, shift, corner), size
        ):
            total += part
        mean = total / n
        return np.asarray(mean[1:] * unit + (mean[0] * hostile.reach) * (w / roots))

    def penalised(w: Floats, hostile: PenalisedAdversary) -> Floats:
        """The data's part, and s^2 w/penalty: what the adversary's move adds to a row."""
        weights, give = read_only(w * unit), float(np.sum(w * w)) / hostile.penalty
        total = np.zeros(w.size + 1)
        for part in blocks(
            lambda x, y: penalised_sum(x, y, weights, loss, bound, give, ITERATIONS), size
        ):
            total += part
        mean = total / n
        return np.asarray(mean[1:] * unit + (mean[0] / hostile.penalty) * w)

    def gradient(w: Floats) -> Floats:
        match adversary:
            case BoundedAdversary():
                return bounded(w, adversary)
            case PenalisedAdversary():
                return penalised(w, adversary)
            case None:
                raise TypeError("a plan without an adversary")

    return gradient


def averaged(plan: Plan, schedule: MinimiserSchedule) -> Pass:
    loss, unit, bound = slope_of(plan), plan.facts.feature_step or 0.0, schedule.slope_bound
    match schedule.adversary:
        case BoundedAdversary() as by:
            hostile = Hostile(False, by.norm == "linf", by.reach, by.corner, 1.0, 0)
        case PenalisedAdversary() as by:
            hostile = Hostile(True, False, 0.0, 0.0, by.penalty, ITERATIONS)
        case None:
            raise TypeError("a plan without an adversary")
    return lambda w, total, x, y, order, steps: robust_averaged_pass(
        w, total, x, y, order, unit, loss, bound, steps, hostile
    )
