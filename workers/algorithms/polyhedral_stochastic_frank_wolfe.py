"""Runs what service/planning/algorithms/polyhedral_stochastic_frank_wolfe.py planned."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.polyhedral_stochastic_frank_wolfe import (
    ONE,
    VERTEX_BITS,
    fixed_point,
)
from service.planning.plan import Plan, PolyhedralStochasticFrankWolfeSchedule
from service.planning.releases import Disjoint, Recursive
from service.planning.rounds import slope_bounds, step_size
from service.planning.vertices import public_part
from workers.data import Data
from workers.progress import Progress

Floats = NDArray[np.float64]
Sum = NDArray[np.int64]
Exact = NDArray[Any]  # of Python's integers
PLACES = 128  # binary places of the running sum


def run(plan: Plan, data: Data, progress: Progress) -> Floats:
    schedule, release = plan.schedule, plan.release
    assert isinstance(schedule, PolyhedralStochasticFrankWolfeSchedule)
    assert isinstance(release, Disjoint)
    scored = Scores(plan, schedule)
    w = output = scored.corners.centre
    drawn = data.drawn(schedule.rounds[-1].steps)
    for one, choices in zip(schedule.rounds, release.parts, strict=True):
        assert isinstance(choices, Recursive)
        before, total = w, np.zeros(plan.dimension, dtype=object)
        curved = schedule.smoothness * schedule.width
        bounds = slope_bounds(schedule.lipschitz, curved, one.steps)
        for t, rows in enumerate(one.batches()):
            a = step_size(t)
            exact = data.exact_change(w, before, 1 - a, bounds[t], rows.start, rows.stop)
            total = carry(total, exact, choices.kept[t], one.gains[t])
            scores = scored(total, plan.spec.ridge * w / one.unit)
            chosen = data.chosen(scores, choices.scales[t], range(one.start, rows.stop))
            before, w = w, w + a * (scored.corners.vertex(chosen) - w)
            output = w if t == drawn else output  # that of the last round stays
            progress.step()
    return output


def carry(total: Exact, exact: Sum, kept: int, gain: int) -> Exact:
    """d_t, in 2^-PLACES, from d_(t-1) and the sum over batch t."""
    carried: Exact = (kept * total + gain * (exact.astype(object) << PLACES)) // ONE
    return carried


class Scores:
    """The vertices' scores, from a running sum and the ridge's public part in the same units."""

    def __init__(self, plan: Plan, schedule: PolyhedralStochasticFrankWolfeSchedule) -> None:
        self.corners = plan.spec.set.corners(plan.dimension, schedule.unit)
        self._vertices: Exact | None = None
        vertices = plan.spec.set.listed
        if vertices is not None:
            self._vertices = np.array(fixed_point(vertices, schedule.unit), dtype=object)
            self._relative = (np.array(vertices) - np.array(vertices[0])) / schedule.unit

    def __call__(self, total: Exact, pull: Floats) -> Sum:
        if self._vertices is None:
            return self.corners.scores(pull, _nearest(total, PLACES))
        scores = _nearest(self._vertices @ total, PLACES + VERTEX_BITS)
        return scores + public_part((self._relative * pull).sum(axis=1))


def _nearest(exact: Exact, places: int) -> Sum:
    """To the nearest integers; a score that obeys its plan is within int64."""
    return ((exact + (1 << places - 1)) >> places).astype(np.int64)
