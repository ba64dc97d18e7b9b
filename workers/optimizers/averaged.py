"""Averaged SGD to a minimiser: service/planning/shared/averaged.py."""

import numpy as np

from service.planning.shared.point import MinimiserSchedule
from workers.arrays import Floats
from workers.data import Blocks, Data
from workers.kernels.steps import Pass, Steps
from workers.progress import Progress
from workers.randomness import Use


def average(
    schedule: MinimiserSchedule,
    rows: int,
    dimension: int,
    one_pass: Pass,
    blocks: Blocks,
    data: Data,
    progress: Progress,
) -> Floats:
    """The order is drawn once: that a record comes at the same place in every pass is what makes the
    mean move no further than the minimiser does."""
    averaging = schedule.averaging
    if averaging is None:
        raise TypeError("a plan without passes to average")
    block, visits = averaging.block, -(-rows // averaging.block)
    order = np.argsort(data.stream(Use.PATH, 0).words(visits)[:visits], kind="stable")
    steps = Steps(block, schedule.step_size, schedule.strong_convexity, schedule.radius)
    w, total = np.zeros(dimension), np.zeros(dimension)
    for number in range(schedule.steps):
        if number == schedule.steps - averaging.passes:
            total[:] = 0.0
        for _ in blocks(lambda x, y: one_pass(w, total, x, y, order, steps), rows, in_turn=True):
            pass
        progress.step()
    return np.asarray(total / (averaging.passes * visits))
