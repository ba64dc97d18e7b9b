"""Runs what service/planning/algorithms/polyhedral_stochastic_frank_wolfe.py planned."""

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.polyhedral_stochastic_frank_wolfe import (
    PolyhedralStochasticFrankWolfeSchedule,
)
from service.planning.plan import Plan
from service.planning.releases import Disjoint, Recursive
from service.planning.shared.rounds import slope_bounds, step_size
from workers.data import Data
from workers.progress import Progress


def run(plan: Plan, data: Data, progress: Progress) -> NDArray[np.float64]:
    schedule, release = plan.schedule, plan.release
    assert isinstance(schedule, PolyhedralStochasticFrankWolfeSchedule)
    assert isinstance(release, Disjoint)
    w = output = data.corners.centre
    drawn = data.drawn(schedule.rounds[-1].steps)
    for one, choices in zip(schedule.rounds, release.parts, strict=True):
        assert isinstance(choices, Recursive)
        before = w
        data.begin_running_sum()
        curved = schedule.smoothness * schedule.width
        bounds = slope_bounds(schedule.lipschitz, curved, one.steps)
        for t, rows in enumerate(one.batches()):
            a = step_size(t)
            chosen = data.choose_by_running_sum(
                plan.spec.ridge * w / one.unit,
                (w, before, 1 - a, bounds[t]),
                kept=choices.kept[t],
                gain=one.gains[t],
                scale=choices.scales[t],
                start=rows.start,
                stop=rows.stop,
            )
            before, w = w, w + a * (data.corners.vertex(chosen) - w)
            output = w if t == drawn else output  # that of the last round stays
            progress.step()
    return output
