"""The attack on computed minimisers: no exchange of one record moves the point before noise further
than was priced, some exchange moves it nearly that far, and no step errs more than its bound."""

from decimal import Decimal, localcontext
from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize

import workers.algorithms.output_perturbation as runs
import workers.rows
from service.planning.catalog import plan
from service.planning.shared import minimiser
from service.planning.shared.minimiser import Objective
from tests.planning.cases import facts, spec
from tests.workers.minimisers import UNITS, exact_slope, farthest, point_of, random_rows
from workers.arrays import read_only
from workers.data import Blocks, Data
from workers.kernels.losses import slope_of
from workers.kernels.minimise import sgd_block
from workers.randomness import Randomness
from workers.rows import Rows

OP = "output-perturbation"
LOSSES = ("logistic", "hinge", "smoothed_hinge", "squared", "absolute", "huber", "pinball")
ATTACKS = [  # solver, loss, ridge, set, steps
    *[("gradient-descent", loss, 0.4, {"radius": 2.0}, 40) for loss in LOSSES],
    ("gradient-descent", "absolute", 2.0, "all", 400),
    ("gradient-descent", "hinge", 0.0, {"radius": 3.0}, 60),
    ("gradient-descent", "logistic", 0.0, {"radius": 3.0}, 3),
    *[("averaged-passes", loss, 0.4, {"radius": 2.0}, 6) for loss in LOSSES],
    ("averaged-passes", "absolute", 2.0, "all", 40),
    ("averaged-passes", "hinge", 0.0, {"radius": 3.0}, None),
    ("accelerated", "absolute", 2.0, "all", None),
    ("accelerated", "logistic", 0.0, {"radius": 1.0}, None),
    ("accelerated", "hinge", 0.1, {"radius": 1.0}, 40),
    ("accelerated", "logistic", 0.3, "all", None),
    ("accelerated", "hinge", 2.0, "all", 30),
    ("sgd", "absolute", 2.0, "all", None),
    ("sgd", "logistic", 0.5, {"radius": 1.0}, 4),
    ("sgd", "squared", 0.5, {"radius": 1.0}, 2),
    ("subgradient", "absolute", 2.0, {"radius": 1.0}, 300),
    ("subgradient", "hinge", 0.5, {"radius": 1.0}, 300),
]


@pytest.mark.parametrize(("solver", "loss", "ridge", "feasible", "steps"), ATTACKS)
def test_no_exchange_moves_the_point_beyond_its_sensitivity_and_saturated_records_come_near(
    solver, loss, ridge, feasible, steps
):
    parameters = {"solver": solver} | ({} if steps is None else {"steps": steps})
    ratios = []
    for n, d in ((2, 1), (5, 3)):
        job = spec(OP, loss=loss, ridge=ridge, set=feasible, parameters=parameters)
        made = plan(job, facts(rows=n, columns=d))
        moved = farthest(made, d, seed=n)
        assert moved <= made.schedule.sensitivity
        ratios.append(moved / made.schedule.exact_part)
    print(f"{solver} {loss} ridge {ridge}: largest movement over the exact part {max(ratios):.4f}")
    if loss == "absolute" and ridge == 2.0:
        assert max(ratios) >= 1 / 1.5


def test_by_default_the_same_holds():
    """The order may be drawn: whichever record comes first moves the point the furthest."""
    made = plan(spec(OP, loss="absolute", ridge=2.0), facts(rows=4, columns=1))
    found = []
    for place in range(4):
        x, y = np.zeros((4, 1), dtype=np.int16), np.ones(4)
        x[place] = UNITS
        there = y.copy()
        there[place] = -1.0
        found.append(np.linalg.norm(point_of(made, x, y) - point_of(made, x, there)))
    assert made.schedule.exact_part / 1.5 <= max(found) <= made.schedule.sensitivity


# --- rounding: against 60 digits ----------------------------------------------------------------


def exact_step(made, shape, w, x, y, eta):
    """One projected step in 60 digits, of the whole gradient of the rows given."""
    unit, schedule = Decimal(made.facts.feature_step), made.schedule
    w = [Decimal(float(v)) for v in w]
    g = [Decimal(0)] * len(w)
    for row, label in zip(x.tolist(), y.tolist(), strict=True):
        m = sum((unit * a * b for a, b in zip(row, w, strict=True)), Decimal(0))
        slope = exact_slope(shape, schedule.slope_bound, m, Decimal(label))
        g = [a + slope * unit * b for a, b in zip(g, row, strict=True)]
    strong, eta = Decimal(schedule.strong_convexity), Decimal(eta)
    w = [a - eta * (b / len(y) + strong * a) for a, b in zip(w, g, strict=True)]
    norm, radius = sum(a * a for a in w).sqrt(), Decimal(schedule.radius)
    return [a * radius / norm for a in w] if norm > radius else w


def distance(a, b):
    return float(sum((Decimal(float(p)) - q) ** 2 for p, q in zip(a, b, strict=True)).sqrt())


def step_bound(made, shape, rows, d, eta):
    schedule, X2 = made.schedule, made.facts.l2
    error = minimiser.mean_error(
        rows, d, schedule.radius, X2, shape.curvature, schedule.slope_bound
    )
    L = schedule.slope_bound * X2
    o = Objective(
        rows, d, L, shape.curvature, schedule.strong_convexity, schedule.radius, 2 * L / rows, error
    )
    return o.step_error(eta)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_computed_step_never_errs_more_than_its_bound(loss, monkeypatch):
    rng = np.random.default_rng(3)
    monkeypatch.setattr(runs, "block_rows", lambda columns: minimiser.GROUP)
    worst = 0.0
    with localcontext(prec=60):
        for n, d, radius in ((1, 1, 3.0), (3, 9, 40.0), (7, 20, 0.3), (300, 5, 2.0)):
            job = spec(OP, loss=loss, ridge=0.2, set={"radius": radius}, parameters={"steps": 50})
            made = plan(job, facts(rows=n, columns=d))
            schedule = made.schedule
            shape = made.spec.loss.scalar()
            if made.smoothing is not None:
                shape = shape.smoothed(made.smoothing.smoothness)
            x, y = random_rows(n, d, rng)
            gradient = runs.mean_gradient(made, schedule, Blocks(Rows(made.facts, x, y), range(n)))
            bound = step_bound(made, shape, n, d, schedule.step_size)
            for size in (0.0, 0.5, 1.0):
                w = rng.normal(size=d)
                w *= size * schedule.radius / np.linalg.norm(w)
                step = schedule.step_size * (gradient(w) + schedule.strong_convexity * w)
                computed = runs.into_ball(w - step, schedule.radius)
                exact = exact_step(made, shape, w, x, y, schedule.step_size)
                err = distance(computed, exact)
                assert err <= bound
                worst = max(worst, err / bound)
    print(f"{loss}: largest error over its bound {worst:.3f}")
    assert worst > 1e-4  # a bound of the right order, not one that nothing could break


@pytest.mark.parametrize("loss", LOSSES)
def test_a_computed_sgd_step_never_errs_more_than_its_bound(loss):
    rng = np.random.default_rng(4)
    with localcontext(prec=60):
        for d, radius in ((1, 3.0), (9, 40.0), (20, 0.3)):
            parameters = {"solver": "sgd", "steps": 2}
            job = spec(OP, loss=loss, ridge=0.2, set={"radius": radius}, parameters=parameters)
            made = plan(job, facts(rows=4, columns=d))
            schedule = made.schedule
            shape = made.spec.loss.scalar()
            if made.smoothing is not None:
                shape = shape.smoothed(made.smoothing.smoothness)
            bound = step_bound(made, shape, 1, d, schedule.step_size)
            for size in (0.0, 0.5, 1.0):
                x, y = random_rows(1, d, rng)
                w = rng.normal(size=d)
                w *= size * schedule.radius / np.linalg.norm(w)
                exact = exact_step(made, shape, w, x, y, schedule.step_size)
                sgd_block(
                    w,
                    read_only(x),
                    read_only(y),
                    made.facts.feature_step,
                    slope_of(made),
                    schedule.slope_bound,
                    schedule.step_size,
                    schedule.strong_convexity,
                    schedule.radius,
                )
                assert distance(w, exact) <= bound


# --- what the solvers find ----------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["logistic", "squared", "huber"])
def test_descent_and_acceleration_find_the_same_minimiser(loss):
    rng = np.random.default_rng(6)
    x, y = random_rows(200, 4, rng)
    points = []
    for solver, steps in (("gradient-descent", 900), ("accelerated", 400)):
        job = spec(
            OP,
            loss=loss,
            ridge=1.5,
            set={"radius": 3.0},
            parameters={"solver": solver, "steps": steps},
        )
        points.append(point_of(plan(job, facts(rows=200, columns=4)), x, y))
    assert np.abs(points[0] - points[1]).max() < 1e-12


def test_the_subgradient_method_approaches_the_minimiser_of_the_loss_as_it_is():
    rng = np.random.default_rng(7)
    x, y = random_rows(6, 2, rng)
    about = facts(rows=6, columns=2)
    errors = []
    best = minimize(
        lambda w: np.abs(x @ w / UNITS - y).mean() + w @ w / 2,
        np.zeros(2),
        method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-14},
    ).x
    for steps in (100, 1000, 10000):
        job = spec(
            OP, loss="absolute", ridge=1.0, parameters={"solver": "subgradient", "steps": steps}
        )
        made = plan(job, about)
        errors.append(float(np.linalg.norm(point_of(made, x, y) - best)))
        assert errors[-1] <= made.schedule.accuracy_part / 2
    assert all(b < a for a, b in pairwise(errors))


def test_passes_by_row_approach_the_minimiser():
    rng = np.random.default_rng(8)
    x, y = random_rows(2000, 3, rng)
    y = np.sign(x[:, 0] + 1e-9)
    about = facts(rows=2000, columns=3)
    exact = point_of(plan(spec(OP, ridge=0.1), about), x, y)
    passed = point_of(plan(spec(OP, ridge=0.1, parameters={"solver": "sgd"}), about), x, y)
    assert np.linalg.norm(passed - exact) < 0.05 * np.linalg.norm(exact)


@pytest.mark.parametrize("solver", ["gradient-descent", "accelerated", "subgradient"])
def test_any_number_of_threads_gives_the_same_bits(solver, monkeypatch):
    rng = np.random.default_rng(9)
    x, y = random_rows(5000, 7, rng)
    job = spec(OP, ridge=0.5, set="all", parameters={"solver": solver, "steps": 5})
    made = plan(job, facts(rows=5000, columns=7))
    monkeypatch.setattr(runs, "block_rows", lambda columns: 2 * minimiser.GROUP)
    points = []
    for threads in (1, 2, 3):
        monkeypatch.setattr(workers.rows, "thread_count", lambda threads=threads: threads)
        points.append(point_of(made, x, y))
    assert np.array_equal(points[0], points[1]) and np.array_equal(points[0], points[2])
    assert np.abs(points[0]).max() > 0


def test_a_file_larger_than_memory_gives_the_same_point(tmp_path, monkeypatch):
    rng = np.random.default_rng(10)
    x, y = random_rows(3000, 5, rng)
    mapped = np.memmap(tmp_path / "x", dtype=np.int16, mode="w+", shape=x.shape)
    mapped[:] = x
    mapped.flush()
    mapped = np.memmap(tmp_path / "x", dtype=np.int16, mode="r", shape=x.shape)
    monkeypatch.setattr(runs, "block_rows", lambda columns: minimiser.GROUP)
    monkeypatch.setattr(workers.rows, "RESIDENT_BYTES", 0)
    for solver in ("gradient-descent", "sgd"):
        made = plan(
            spec(OP, parameters={"solver": solver, "steps": 3}), facts(rows=3000, columns=5)
        )
        assert np.array_equal(point_of(made, x, y), point_of(made, mapped, y))


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_released_point_is_the_point_plus_the_noise_that_its_price_needs(noise):
    """The spread of released points over keys against sigma = S/sqrt(2 rho), or sqrt(d) S/epsilon."""
    job = spec(OP, 1.0, None if noise == "gaussian" else 0.0, ridge=0.1, parameters={"steps": 5})
    made = plan(job, facts(rows=10**4, columns=2))
    rng = np.random.default_rng(11)
    x, y = random_rows(10**4, 2, rng)
    point = point_of(made, x, y)
    S = made.schedule.sensitivity
    draws = []
    for i in range(2000):
        data = Data(made, x, y, Randomness(i.to_bytes(32, "big"), made.digest()))
        draws.append(data.noisy_point(lambda blocks: point) - point)
    spread = float(np.std(draws))
    units = made.price.units / 1e12
    epsilon = made.guarantee.epsilon
    wanted = (
        S / np.sqrt(2 * units) if noise == "gaussian" else np.sqrt(2) * np.sqrt(2) * S / epsilon
    )
    assert spread == pytest.approx(wanted, rel=0.04)
