"""Averaged SGD: how far one record moves it, what that rests on, and what it finds."""

from decimal import localcontext

import numpy as np
import pytest
from scipy.optimize import minimize

import workers.algorithms.adversarial_output_perturbation as adversarial
import workers.algorithms.output_perturbation as runs
from service.errors import PlanRefused
from service.planning.catalog import plan
from service.planning.draft import Moreau
from service.planning.shared import minimiser
from service.planning.shared.averaged import Pace, averaged_sgd
from service.planning.shared.minimiser import Objective
from tests.planning.cases import facts, spec
from tests.workers.minimisers import UNITS, point_of, random_rows
from tests.workers.test_output_perturbation import LOSSES, distance, exact_step, step_bound
from tests.workers.tilted_and_adversarial import ADV, ADVERSARIES, gradient_of, made_by
from workers.arrays import read_only
from workers.kernels.steps import Steps
from workers.losses import VECTOR_KERNELS
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
            "solver": "averaged-passes",
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


def wrong(monkeypatch, *, turned, last):
    """Every other pass in the opposite order, or the last iterate instead of the mean."""

    def average(schedule, rows, dimension, one_pass, blocks, data, progress):
        steps = Steps(1, schedule.step_size, schedule.strong_convexity, schedule.radius)
        order, w = np.arange(rows), np.zeros(dimension)
        for number in range(schedule.steps):
            way, total = order[:: -1 if turned and number % 2 else 1].copy(), np.zeros(dimension)
            for _ in blocks(lambda x, y, a=(total,), o=way: one_pass(w, *a, x, y, o, steps), rows):
                pass
            progress.step()
        return w if last else total / rows

    monkeypatch.setattr(runs, "average", average)


@pytest.mark.parametrize(
    "mutant", [{"turned": True, "last": False}, {"turned": False, "last": True}]
)
def test_another_order_in_each_pass_or_no_mean_would_move_further_than_was_paid_for(
    mutant, monkeypatch
):
    wrong(monkeypatch, **mutant)
    made = made_at(6, 1, 1, 2.0)
    assert farthest_place(made) > 1.2 * made.schedule.sensitivity


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("block", [1, 7])
def test_a_computed_step_never_errs_more_than_its_bound(loss, block):
    rng = np.random.default_rng(4)
    with localcontext(prec=60):
        for d, radius in ((1, 3.0), (9, 40.0), (20, 0.3)):
            parameters = {"solver": "averaged-passes", "steps": 2}
            job = spec(OP, loss=loss, ridge=0.2, set={"radius": radius}, parameters=parameters)
            made = plan(job, facts(rows=block, columns=d))
            schedule, shape = made.schedule, made.spec.loss.scalar()
            if made.smoothing is not None:
                shape = shape.smoothed(made.smoothing.smoothness)
            bound = step_bound(made, shape, block, d, schedule.step_size)
            steps = Steps(block, schedule.step_size, schedule.strong_convexity, schedule.radius)
            for size in (0.0, 0.5, 1.0):
                x, y = random_rows(block, d, rng)
                w = rng.normal(size=d)
                w *= size * schedule.radius / np.linalg.norm(w)
                exact = exact_step(made, shape, w, x, y, schedule.step_size)
                total = np.zeros(d)
                arguments = read_only(x), read_only(y), np.zeros(1, dtype=np.int64), steps
                runs.averaged(made, schedule)(w, total, *arguments)
                assert distance(w, exact) <= bound
                assert np.array_equal(total, w)


@pytest.mark.parametrize("more", ADVERSARIES)
@pytest.mark.parametrize("block", [1, 7])
def test_a_step_under_an_adversary_is_that_of_its_gradient(more, block):
    rng = np.random.default_rng(5)
    for loss in ("logistic", "huber"):
        made = made_by(ADV, block, 5, loss, set={"radius": 1.0}, solver="averaged-passes", **more)
        schedule = made.schedule
        steps = Steps(block, schedule.step_size, schedule.strong_convexity, schedule.radius)
        x, y = random_rows(block, 5, rng)
        w = rng.normal(size=5) * 0.3
        moved = gradient_of(made, x, y)(w) + schedule.strong_convexity * w
        wanted = into_ball(w - schedule.step_size * moved, schedule.radius)
        arguments = read_only(x), read_only(y), np.zeros(1, dtype=np.int64), steps
        adversarial.averaged(made, schedule)(w, np.zeros(5), *arguments)
        assert w == pytest.approx(wanted, abs=1e-15)


def test_every_block_is_visited_once_in_a_pass_and_the_last_may_be_short(monkeypatch):
    visited = []

    def one_pass(w, total, x, y, order, steps):
        visited.append((x.shape[0], order.tolist()))

    monkeypatch.setattr(runs, "averaged", lambda plan, schedule: one_pass)
    x, y = random_rows(ROWS, 1, np.random.default_rng(6))
    point_of(made_at(2, 1, 5, 0.5), x, y)
    (rows, order), again = visited
    assert rows == ROWS and sorted(order) == [0, 1, 2] and again == (rows, order)


def test_rows_in_the_order_of_their_labels_do_no_harm():
    """Passes in the order of the rows end near the last of them."""
    n, rng = 4096, np.random.default_rng(7)
    x, _ = random_rows(n, 3, rng)
    x[:, 0] = UNITS // 2
    x[:, 1:] //= 2
    y = np.sort(rng.uniform(-1, 1, n))
    loss = {"kind": "pinball", "quantile": 0.9}
    off = {}
    for solver in ("averaged-passes", "sgd"):
        job = spec(
            OP, 8.0, loss=loss, ridge=0.0, set={"radius": 2.0}, parameters={"solver": solver}
        )
        made = plan(job, facts(rows=n, columns=3, epsilon=8.0, label="numeric"))
        off[solver] = abs(np.mean(y < x @ point_of(made, x, y) / UNITS) - 0.9)
    assert off["averaged-passes"] < 0.05 < off["sgd"]


# --- losses whose gradients are no multiple of the row -------------------------------------------


def vectors(loss, rows, columns, ridge, radius=1.0, **parameters):
    about = facts(rows=rows, columns=columns, epsilon=8.0)
    about = about.model_copy(update={"label": "categorical", "classes": 3})
    job = spec(OP, 8.0, loss=loss, ridge=ridge, set={"radius": radius}, parameters=parameters)
    return plan(job, about)


def value_at(loss, x, y, w):
    if loss == "geometric_median":
        return np.linalg.norm(w - x, axis=1).mean()
    margins = x @ w.reshape(3, -1).T
    return (np.logaddexp.reduce(margins, axis=1) - margins[np.arange(len(y)), y.astype(int)]).mean()


def class_rows(n, d, rng):
    x, _ = random_rows(n, d, rng)
    return x, rng.integers(0, 3, n).astype(np.float64)


@pytest.mark.parametrize("loss", ["softmax", "geometric_median"])
def test_passes_find_the_minimiser_of_softmax_and_the_geometric_median(loss):
    rng = np.random.default_rng(8)
    x, y = class_rows(4000, 4, rng)
    y = np.where(x[:, 0] > 0, 2.0, y)
    x[:, 1] = np.abs(x[:, 1])
    made = vectors(loss, 4000, 4, ridge=0.1, radius=4.0)
    assert made.schedule.steps <= 20 and made.schedule.solver == "averaged-passes"

    def objective(w):
        return value_at(loss, x / UNITS, y, w) + 0.05 * w @ w

    best = minimize(objective, np.full(made.dimension, 0.01), options={"gtol": 1e-8})
    point = point_of(made, x, y)
    assert objective(point) - best.fun <= made.prediction.excess_risk
    assert np.linalg.norm(point - best.x) < 0.05 * np.linalg.norm(best.x)


@pytest.mark.parametrize("block", [1, 5])
@pytest.mark.parametrize("loss", ["softmax", "geometric_median"])
def test_their_steps_are_those_of_their_gradients(loss, block):
    rng = np.random.default_rng(9)
    x, y = class_rows(block, 3, rng)
    made = vectors(loss, block, 3, 0.2, steps=2)
    schedule = made.schedule
    steps = Steps(block, schedule.step_size, schedule.strong_convexity, schedule.radius)
    w = rng.normal(size=made.dimension) * 0.2
    if loss == "softmax":
        moved = VECTOR_KERNELS[loss].mean_gradient(x / UNITS, y, w)
    else:
        away = w - x / UNITS
        norms = np.linalg.norm(away, axis=1)
        moved = (away * np.minimum(made.smoothing.smoothness, 1 / norms)[:, None]).mean(axis=0)
    wanted = w - schedule.step_size * (moved + schedule.strong_convexity * w)
    arguments = read_only(x), read_only(y), np.zeros(1, dtype=np.int64), steps
    runs.averaged(made, schedule)(w, np.zeros(w.size), *arguments)
    assert w == pytest.approx(into_ball(wanted, schedule.radius), abs=1e-14)


@pytest.mark.parametrize(
    ("loss", "ridge", "near"),
    [("softmax", 0.2, 3.0), ("softmax", 20.0, 2.0), ("geometric_median", 0.5, 1.5)],
)
def test_no_exchange_moves_their_point_further_than_planned_and_the_worst_nearly_so_far(
    loss, ridge, near
):
    """Rows of zeros have no gradient in softmax; rows on both sides of 0 none in the median. Under a
    large ridge the chances of three classes are even, so that gradients are 0.58 of their bound."""
    rng, n, d = np.random.default_rng(10), 6, 2
    made = vectors(loss, n, d, ridge, radius=4.0, steps=30)
    pool = [
        (row, float(k)) for row in (np.array([UNITS, 0]), np.array([-UNITS, 0])) for k in range(3)
    ]
    pool += [(row, float(k)) for (row,), (k,) in (class_rows(1, d, rng) for _ in range(4))]
    worst = 0.0
    for others in ("zeros", "balanced", "random"):
        x, y = class_rows(n, d, rng)
        if others != "random":
            x[:] = 0 if others == "zeros" else np.resize([[0, UNITS], [0, -UNITS]], (n, d))
        for place in range(n):
            points = []
            for row, label in pool:
                there_x, there_y = x.copy(), y.copy()
                there_x[place], there_y[place] = row, label
                points.append(point_of(made, there_x, there_y))
            apart = np.array(points)[:, None] - np.array(points)
            worst = max(worst, float(np.linalg.norm(apart, axis=-1).max()))
    print(f"{loss} ridge {ridge}: {worst / made.schedule.exact_part:.3f} of the exact part")
    assert made.schedule.exact_part / near <= worst <= made.schedule.sensitivity


def test_other_solvers_are_refused_for_them_with_the_one_that_takes_them():
    with pytest.raises(PlanRefused, match="use averaged-passes"):
        vectors("softmax", 100, 3, 0.1, solver="accelerated")
