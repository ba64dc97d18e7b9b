"""Descent to a minimiser, and its one release: service/planning/shared/minimiser.py."""

from collections.abc import Callable
from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray

from service.planning.shared import minimiser
from service.planning.shared.point import MinimiserSchedule
from workers.data import Blocks, Data
from workers.progress import Progress

Floats = NDArray[np.float64]
Gradient = Callable[[Floats], Floats]  # of the data part
Make = Callable[[Blocks], Floats]


def release(schedule: MinimiserSchedule, data: Data, make: Make) -> Floats:
    """The one noisy point, and back into the ball of the minimisers."""
    return into_ball(data.noisy_point(make), schedule.radius)


def into_ball(w: Floats, radius: float) -> Floats:
    norm = float(np.sqrt(np.sum(w * w)))  # numpy's own sum: the same bits on any number of threads
    return w * (radius / norm) if norm > radius else w


def solve(
    gradient: Gradient, dimension: int, schedule: MinimiserSchedule, progress: Progress
) -> Floats:
    """By whole gradients, as the schedule says."""
    match schedule.solver:
        case minimiser.DESCENT:
            return _descend(gradient, dimension, schedule, progress)
        case "projected-accelerated":
            return _accelerate(gradient, dimension, schedule, progress, schedule.radius)
        case "accelerated":
            point = _accelerate(gradient, dimension, schedule, progress, inf)
            return into_ball(point, schedule.radius)
        case _:
            raise TypeError(f"{schedule.solver} is no solver by whole gradients")


def _descend(
    gradient: Gradient, dimension: int, schedule: MinimiserSchedule, progress: Progress
) -> Floats:
    w = np.zeros(dimension)
    for _ in range(schedule.steps):
        step = schedule.step_size * (gradient(w) + schedule.strong_convexity * w)
        w = into_ball(w - step, schedule.radius)
        progress.step()
    return w


def _accelerate(
    gradient: Gradient,
    dimension: int,
    schedule: MinimiserSchedule,
    progress: Progress,
    radius: float,
) -> Floats:
    theta = sqrt(schedule.strong_convexity * schedule.step_size)
    momentum = (1 - theta) / (1 + theta)
    w = y = np.zeros(dimension)
    for _ in range(schedule.steps):
        step = schedule.step_size * (gradient(y) + schedule.strong_convexity * y)
        after = into_ball(y - step, radius)
        w, y = after, after + momentum * (after - w)
        progress.step()
    return w
