"""Runs what service/planning/algorithms/polyhedral_stochastic_frank_wolfe.py planned."""

from functools import partial

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.polyhedral_stochastic_frank_wolfe import (
    SLACK,
    VERTEX_BITS,
    PolyhedralStochasticFrankWolfeSchedule,
    fixed_point,
    shape,
)
from service.planning.plan import Plan
from service.planning.releases import Disjoint, Recursive
from service.planning.shared.rounds import slope_bounds, step_size
from service.planning.vertices import Corners, public_part
from workers.data import Data
from workers.progress import Progress
from workers.running import PLACES, Exact, nearest

Floats = NDArray[np.float64]
Sum = NDArray[np.int64]


def run(plan: Plan, data: Data, progress: Progress) -> Floats:
    schedule, release = plan.schedule, plan.release
    assert isinstance(schedule, PolyhedralStochasticFrankWolfeSchedule)
    assert isinstance(release, Disjoint)
    scored = Scores(plan, schedule)
    w = output = scored.corners.centre
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
                partial(scored, plan.spec.ridge * w / one.unit),
                (w, before, 1 - a, bounds[t]),
                kept=choices.kept[t],
                gain=one.gains[t],
                pairs=scored.pairs,
                far_row=scored.corners.far_row,
                slack=SLACK,
                scale=choices.scales[t],
                fresh=rows,
            )
            before, w = w, w + a * (scored.corners.vertex(chosen) - w)
            output = w if t == drawn else output  # that of the last round stays
            progress.step()
    return output


class Scores:
    """The vertices' scores, from a running sum and the ridge's public part in the same units."""

    def __init__(self, plan: Plan, schedule: PolyhedralStochasticFrankWolfeSchedule) -> None:
        self.corners: Corners = plan.spec.set.corners(plan.dimension, schedule.unit)
        self.pairs = shape(plan.spec, plan.facts, schedule.unit)[0].pairs
        self._vertices: Exact | None = None
        vertices = plan.spec.set.listed
        if vertices is not None:
            self._vertices = np.array(fixed_point(vertices, schedule.unit), dtype=object)
            self._relative = (np.array(vertices) - np.array(vertices[0])) / schedule.unit

    def __call__(self, pull: Floats, total: Exact) -> Sum:
        if self._vertices is None:
            return self.corners.scores(pull, nearest(total))
        scores = nearest(self._vertices @ total, PLACES + VERTEX_BITS)
        return scores + public_part((self._relative * pull).sum(axis=1))
