"""Noisy means of batches, and accelerated descent on them: service/planning/shared/acceleration.py."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from service.planning.sets import FeasibleSet
from service.planning.shared.acceleration import Stage
from workers.data import Data
from workers.progress import Progress

Floats = NDArray[np.float64]


def mean_gradient(
    data: Data, progress: Progress, batch: int, start: int, stop: int
) -> Callable[[Floats], Floats]:
    """The noisy mean over a fresh batch of the rows [start, stop), or over all of them."""

    def gradient(w: Floats) -> Floats:
        if batch == stop - start:
            total = data.noisy_sum(w, start, stop)
        else:
            total = data.noisy_batch(w, batch, start, stop)
        progress.step()
        return total / batch

    return gradient


def ac_sa(
    gradient: Callable[[Floats], Floats],
    start: Floats,
    stage: Stage,
    smoothness: float,
    feasible: FeasibleSet,
    *,
    ridge: float,
    pull: float = 0.0,
    centre: Floats | float = 0.0,
) -> Floats:
    """One stage on f(w) + (ridge/2)||w||^2 + (pull/2)||w - centre||^2; `gradient` is that of f."""
    w, mean, mu = start, start, ridge + pull
    for t in range(1, stage.steps + 1):
        a = 2 / (t + 1)
        c = 2 * (2 * smoothness + stage.damping) / (t * (t + 1)) + mu * (t - 1) / (t + 1)
        g = gradient((1 - a) * mean + a * w)
        w = feasible.project((c * w + a * (pull * centre - g)) / (c + a * mu))
        mean = (1 - a) * mean + a * w
    return mean
