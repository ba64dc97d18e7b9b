"""Noisy means of batches, and accelerated descent on them: service/planning/shared/acceleration.py."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from service.planning.plan import Plan
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


def squared_metric(plan: Plan, factor: float | None) -> Floats | float:
    """By how much further a step moves each weight: an intercept by the factor's square."""
    if factor is None:
        return 1.0
    longer = np.ones(plan.dimension)
    longer[:: plan.facts.columns] = factor**2
    return longer


def stage_clip(plan: Plan, data: Data) -> float | None:
    """What a chosen clip multiplies dampings and pulls by: nothing, where weights are in proportion to
    labels and so to the clip; None where no clip is chosen."""
    clip = data.settle_clip()
    if plan.private_clip is None:
        return None
    return 1.0 if plan.facts.label == "unbounded" else clip


def at_clip(stage: Stage, clip: float | None, mu: float) -> Stage:
    if clip is None:
        return stage
    return Stage(steps=stage.steps, damping=max(2 * mu, stage.damping * clip))


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
    longer: Floats | float = 1.0,
    prox: Callable[[Floats, float], Floats] | None = None,
) -> Floats:
    """One stage on f(w) + h(w) + (ridge/2)||w||^2 + (pull/2)||w - centre||^2; `gradient` is that of f,
    `prox` the operator of h. Where no set projects, distances are of w over the root of `longer`,
    weight by weight, which is 1 where h is not 0."""
    w, mean, mu = start, start, ridge + pull
    for t in range(1, stage.steps + 1):
        a = 2 / (t + 1)
        c = 2 * (2 * smoothness + stage.damping) / (t * (t + 1)) + mu * (t - 1) / (t + 1)
        g = gradient((1 - a) * mean + a * w)
        step = a * longer
        w = (c * w + step * (pull * centre - g)) / (c + step * mu)
        w = feasible.project(w if prox is None else prox(w, a / (c + a * mu)))
        mean = (1 - a) * mean + a * w
    return mean
