"""Averaged SGD: how far one record moves it, what that rests on, and what it finds."""

from decimal import localcontext

import numpy as np
import pytest

import workers.optimizers.averaged as runs
from service.planning.catalog import plan
from service.planning.draft import Moreau
from service.planning.shared import minimiser
from service.planning.shared.averaged import Pace, averaged_sgd
from service.planning.shared.minimiser import Objective
from tests.planning.cases import facts, spec
from tests.workers.minimisers import UNITS, point_of, random_rows
from tests.workers.test_output_perturbation import LOSSES, distance, exact_step, step_bound
from tests.workers.tilted_and_adversarial import ADV, ADVERSARIES, gradient_of, made_by
from workers.algorithms.adversarial_output_perturbation import averaged as robust_pass
from workers.algorithms.output_perturbation import averaged as plain_pass
from workers.arrays import read_only
from workers.kernels.averaged import Steps
from workers.optimizers.descent import into_ball

OP, ROWS, RIDGE = "output-perturbation", 12, 2.0
PACES = [  # passes, averaged, block, what a pass forgets
    (1, 1, 1, 0.5),
    (6, 1, 1, 2.0),
    (4, 2, 1, 0.3),
    (3, 3, 5, 1.0),
    (5, 1, 4, 0.7),
]


def made_at(passes, averaged, block, share):
    """The absolute loss under a ridge so large that no residual leaves the ends of its slope."""
    job = spec(OP, 8.0, loss="absolute", ridge=RIDGE, set="all")
    made = plan(job, facts(rows=ROWS, columns=1, epsilon=8.0))
    pace = Pace(ROWS, RIDGE, passes, averaged, block, share * block / (RIDGE * ROWS))
    beta = 0.9 * pace.smoothness
    error = minimiser.mean_error(block, 1, 0.5, 1.0, beta, 1.0)
    o = Objective(ROWS, 1, 1.0, beta, RIDGE, 0.5, 2 / ROWS, error)
    solution = averaged_sgd(o, pace)
    schedule = made.schedule.model_copy(
        update={
            "solver": "averaged-sgd",
            "steps": passes,
            "step_size": solution.step_size,
            "averaging": solution.averaging,
            "exact_part": solution.exact,
            "sensitivity": solution.exact + solution.rounding,
        }
    )
    return made.model_copy(update={"schedule": schedule, "smoothing": Moreau(smoothness=beta)})


def farthest_place(made):
    """Among rows of zeros, over places: the order is drawn, so one of them comes first."""
    found = []
    for place in range(ROWS):
        points = []
        for label in (-1.0, 1.0):
            x, y = np.zeros((ROWS, 1), dtype=np.int16), np.ones(ROWS)
            x[place], y[place] = UNITS, label
            points.append(point_of(made, x, y)[0])
        found.append(abs(points[0] - points[1]))
    return max(found)


@pytest.mark.parametrize("pace", PACES)
def test_the_first_records_exchange_moves_the_mean_by_its_sensitivity_and_none_moves_it_further(
    pace,
):
    made = made_at(*pace)
    moved = farthest_place(made)
    assert 0.999 * made.schedule.exact_part <= moved <= made.schedule.sensitivity


def last_iterate(monkeypatch):
    """The point where the passes end."""
    plain = runs.Steps

    def average(schedule, rows, dimension, one_pass, blocks, data, progress):
        order, w = np.arange(rows), np.zeros(dimension)
        steps = plain(1, schedule.step_size, schedule.strong_convexity, schedule.radius)
        for _ in range(schedule.steps):
            for _ in blocks(lambda x, y: one_pass(w, w * 0, x, y, order, steps), rows):
                pass
            progress.step()
        return w

    monkeypatch.setattr("workers.algorithms.output_perturbation.average", average)


def order_of_its_own(monkeypatch):
    """Each pass in another order: a record may come last in one and first in the next."""
    draws = runs.np.argsort

    class Turning:
        def __init__(self, order):
            self.order, self.number = order, 0

        def __call__(self):
            self.number += 1
            return self.order[:: 1 if self.number % 2 else -1].copy()

    real = runs.Steps

    def average(schedule, rows, dimension, one_pass, blocks, data, progress):
        turning = Turning(draws(np.arange(rows)))
        steps = real(1, schedule.step_size, schedule.strong_convexity, schedule.radius)
        w, total = np.zeros(dimension), np.zeros(dimension)
        for _ in range(schedule.steps):
            total[:] = 0.0
            order = turning()
            for _ in blocks(
                lambda x, y, order=order: one_pass(w, total, x, y, order, steps), rows
            ):
                pass
            progress.step()
        return total / rows

    monkeypatch.setattr("workers.algorithms.output_perturbation.average", average)


@pytest.mark.parametrize("mutant", [last_iterate, order_of_its_own])
def test_mutants_move_further_than_was_paid_for(mutant, monkeypatch):
    mutant(monkeypatch)
    made = made_at(6, 1, 1, 2.0)
    assert farthest_place(made) > 1.2 * made.schedule.sensitivity
