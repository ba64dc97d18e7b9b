"""Runs what service/planning/algorithms/proximal_sgd.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.proximal_sgd import ProximalSgdSchedule
from service.planning.plan import Plan
from workers.data import Data
from workers.directions import start_of
from workers.optimizers.regularised import Regularised
from workers.progress import Progress
from workers.randomness import Use


def run(plan: Plan, data: Data, progress: Progress) -> NDArray[np.float64]:
    schedule, spec, h = plan.schedule, plan.spec, Regularised.of(plan)
    assert isinstance(schedule, ProximalSgdSchedule)
    clip, batch, last = data.settle_clip(), schedule.batch, schedule.output == "last"
    eta = schedule.step_size / (clip if schedule.step_per_clip else 1.0)
    w = output = spec.set.project(start_of(plan, data.stream(Use.PATH, 1)))
    drawn = schedule.steps if last else data.drawn(schedule.steps)
    for t in range(schedule.steps):
        output = w if t == drawn else output
        gradient = data.noisy_sum(w, t * batch, (t + 1) * batch) / batch + spec.ridge * w
        w = spec.set.project(h.prox(w - eta * h.with_smooth(gradient, w), eta))
        progress.step()
    return w if last else output
