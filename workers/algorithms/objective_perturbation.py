"""Runs what service/planning/algorithms/objective_perturbation.py planned."""

from math import inf

import numpy as np
from numpy.typing import NDArray

from service.planning.plan import Plan
from service.planning.shared.dual import PerturbedMinimumSchedule, Tilted
from service.planning.shared.minimiser import block_rows
from service.planning.vectors import length
from workers.arrays import Array, read_only
from workers.data import Blocks, Data
from workers.kernels.dual import ascend
from workers.kernels.losses import slope_of
from workers.kernels.minimise import gradient_sum
from workers.optimizers.descent import Floats, into_ball
from workers.progress import Progress
from workers.randomness import Use

_MORE = 30  # times as many passes are made before a run gives up


class NotConverged(RuntimeError):  # noqa: N818 - says what happened
    """No data set is known on which this occurs; floats or a loss must be broken."""


def run(plan: Plan, data: Data, progress: Progress) -> Floats:
    schedule = plan.schedule
    assert isinstance(schedule, PerturbedMinimumSchedule)

    def make(blocks: Blocks, term: Floats) -> Floats:
        return minimum(plan, schedule, blocks, term, data, progress)

    return into_ball(data.noisy_minimum(make), schedule.radius or inf)


def minimum(
    plan: Plan,
    schedule: PerturbedMinimumSchedule,
    blocks: Blocks,
    term: Floats,
    data: Data,
    progress: Progress,
) -> Floats:
    """A point at which no more of the gradient is left than the Plan allows for, whatever the rows."""
    rows, radius = plan.facts.rows, schedule.radius or inf
    a, v = np.zeros(rows), -term / schedule.strong_convexity
    for number in range(schedule.steps):
        _ascend(plan, schedule, blocks, a, v, _shuffled(data, number, rows, schedule.block))
        progress.step()
    number = schedule.steps
    while not left(plan, schedule, blocks, term, v) <= schedule.residual:
        if number > _MORE * schedule.steps:
            raise NotConverged
        _ascend(plan, schedule, blocks, a, v, _drawn(data, number, rows), block=1)
        progress.stop_if_asked()
        number += 1
    return into_ball(v, radius)


def left(
    plan: Plan, schedule: PerturbedMinimumSchedule, blocks: Blocks, term: Floats, v: Floats
) -> float:
    """A bound on the norm of the gradient at v's projection, with all that floats add to it."""
    facts, unit = plan.facts, plan.facts.feature_step or 0.0
    w = into_ball(v, schedule.radius or inf)
    loss, weights, total = slope_of(plan), read_only(w * unit), np.zeros(w.size)
    size = block_rows(facts.columns)
    for part in blocks(lambda x, y: gradient_sum(x, y, weights, loss, schedule.slope_bound), size):
        total += part
    found = length(schedule.strong_convexity * v + total * unit + term)
    o = Tilted(
        rows=facts.rows,
        columns=facts.columns,
        row_norm=facts.l2 or 0.0,
        slope=schedule.slope_bound,
        curvature=schedule.curvature,
        strong=schedule.strong_convexity,
        term_step=schedule.term_step,
    )
    return found + o.error(length(w), length(v), length(term))


def _ascend(
    plan: Plan,
    schedule: PerturbedMinimumSchedule,
    blocks: Blocks,
    a: Floats,
    v: Floats,
    order: NDArray[np.int64],
    block: int | None = None,
) -> None:
    unit, strong = plan.facts.feature_step or 0.0, schedule.strong_convexity
    loss, bound, radius = slope_of(plan), schedule.slope_bound, schedule.radius or inf
    step = 1 / (1 + schedule.curvature * (plan.facts.l2 or 0.0) ** 2 / strong)
    size = block or schedule.block

    def work(x: Array, y: Array) -> None:
        ascend(x, y, a, v, order, size, unit, loss, bound, step, strong, radius)

    for _ in blocks(work, plan.facts.rows, in_turn=True):
        pass


def _shuffled(data: Data, number: int, rows: int, block: int) -> NDArray[np.int64]:
    """The blocks of rows, in an order that depends on none of them."""
    count = -(-rows // block)
    return np.argsort(data.stream(Use.PATH, number).words(count)[:count], kind="stable")


def _drawn(data: Data, number: int, rows: int) -> NDArray[np.int64]:
    words = data.stream(Use.PATH, number).words(rows)[:rows]
    return (words % np.uint64(rows)).astype(np.int64)
