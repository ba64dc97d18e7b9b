"""The arithmetic of computed minimisers: each closed form against the recursion that it sums, and the
printed formulas that fail."""

from fractions import Fraction
from itertools import pairwise
from math import exp, log, sqrt

import pytest

from service.errors import PlanRefused
from service.planning.catalog import plan
from service.planning.conversion import epsilon_of_gaussian
from service.planning.lattice import target
from service.planning.shared import averaged, minimiser
from service.planning.shared.averaged import Pace
from service.planning.shared.minimiser import Objective
from service.planning.shared.point import paper_sigma
from tests.planning.cases import facts, spec

OP = "output-perturbation"
ADV, TERM = "adversarial-output-perturbation", "tilted-output-perturbation"


def objective(**changes):
    known = {
        "rows": 50,
        "columns": 3,
        "lipschitz": 1.0,
        "smoothness": 0.25,
        "strong": 0.1,
        "radius": 10.0,
        "change": 2 / 50,
        "error": 1e-6,
    }
    return Objective(**{**known, **changes})


@pytest.mark.parametrize("steps", [1, 7, 500])
@pytest.mark.parametrize("smoothness", [1e-6, 0.25, 1e4])
def test_the_sensitivity_of_descent_is_its_recursion(steps, smoothness):
    o = objective(smoothness=smoothness)
    made = minimiser.descent(o, steps, noise=1.0)
    eta = made.step_size
    assert eta <= 2 / (smoothness + 2 * o.strong)
    apart = 0.0
    for _ in range(steps):
        apart = (1 - eta * o.strong) * apart + eta * o.change + 2 * o.step_error(eta)
    assert made.exact + made.rounding == pytest.approx(apart, rel=1e-9)
    assert made.left == pytest.approx((1 - eta * o.strong) ** steps, abs=1e-12)


@pytest.mark.parametrize("passes", [1, 2, 9])
def test_the_sensitivity_of_sgd_is_its_recursion_with_the_record_in_the_worst_place(passes):
    o = objective(rows=12, change=2 / 12)
    made = minimiser.sgd(o, passes, noise=1.0)
    eta, ends = made.step_size, []
    for place in range(12):
        apart = 0.0
        for _ in range(passes):
            for row in range(12):
                apart = (1 - eta * o.strong) * apart + 2 * o.step_error(eta)
                apart += 2 * eta * o.lipschitz if row == place else 0.0
        ends.append(apart)
    assert max(ends) == ends[-1] == pytest.approx(made.exact + made.rounding, rel=1e-9)


@pytest.mark.parametrize(
    ("passes", "mean_of", "block"), [(1, 1, 1), (5, 2, 1), (4, 4, 5), (3, 1, 5)]
)
def test_the_sensitivity_of_averaged_sgd_is_its_recursion_with_the_record_in_the_worst_place(
    passes, mean_of, block
):
    o = objective(rows=12, change=2 / 12)
    pace = Pace(12, o.strong, passes, mean_of, block, 0.7)
    made, visits, ends = averaged.averaged_sgd(o, pace), -(-12 // block), []
    eta = made.step_size
    assert eta == 0.7 <= 2 / (o.smoothness + 2 * o.strong)
    for place in range(visits):
        apart, far = 0.0, []
        for _ in range(passes):
            for visit in range(visits):
                apart *= 1 - eta * o.strong
                apart += 2 * eta * o.lipschitz / block if visit == place else 0.0
                far.append(apart)
        ends.append(sum(far[-mean_of * visits :]) / (mean_of * visits))
    assert max(ends) == ends[0] == pytest.approx(made.exact, rel=1e-9)
    rounding = 2 * o.step_error(eta) / (eta * o.strong)
    assert 0.1 * rounding < made.rounding
    assert made.rounding <= rounding + 4 * 2.0**-53 * 300 * o.radius
    assert made.exact <= o.change / o.strong


def test_a_step_of_averaged_sgd_never_exceeds_what_contracts():
    for smoothness in (1e-6, 0.25, 1e4):
        o = objective(smoothness=smoothness)
        made = averaged.averaged_sgd(o, Pace(50, o.strong, 3, 1, 1, 1e6))
        assert made.step_size <= 2 / (smoothness + 2 * o.strong)


LOSSES = {
    "logistic": "binary",
    "hinge": "binary",
    "smoothed_hinge": "binary",
    "squared": "numeric",
    "absolute": "numeric",
    "huber": "numeric",
    "pinball": "numeric",
}
DEFAULTS = [
    *((OP, loss, {}) for loss in LOSSES),
    *((ADV, loss, {}) for loss in LOSSES if loss != "pinball"),
    (ADV, "logistic", {"adversary": "penalised"}),
    *((TERM, loss, {"tilt": 0.1}) for loss in LOSSES if loss != "squared"),
]


@pytest.mark.parametrize("ridge", [0.0, 0.01])
@pytest.mark.parametrize(("algorithm", "loss", "parameters"), DEFAULTS)
def test_by_default_predictions_fall_with_n_and_a_million_rows_take_20_passes(
    algorithm, loss, parameters, ridge
):
    kind = {"kind": "pinball", "quantile": 0.9} if loss == "pinball" else loss
    job = spec(algorithm, 8.0, loss=kind, ridge=ridge, set={"radius": 1.0}, parameters=parameters)
    made = [
        plan(job, facts(rows=10**k, columns=10, epsilon=8.0, label=LOSSES[loss]))
        for k in range(3, 9)
    ]
    risks = [one.prediction.excess_risk for one in made]
    print(algorithm, loss, ridge, risks, [one.schedule.steps for one in made])
    assert all(one.schedule.steps <= 20 for one in made[3:])
    assert all(one.schedule.steps <= minimiser.passes_by_default(one.facts.rows) for one in made)
    assert all(after < before for before, after in pairwise(risks))


def test_by_default_descent_stops_when_its_start_is_a_tenth_of_the_noise():
    o = objective()
    for noise in (1e-2, 1e-5):
        made = minimiser.descent(o, None, noise)
        assert 0.05 * noise < made.left * o.radius <= 0.1 * noise
    assert minimiser.descent(objective(strong=1e-6), None, 1e-9).steps == 2000


def test_acceleration_adds_a_hundredth_and_needs_about_the_root_of_the_steps():
    for smoothness in (0.25, 1e4):
        o = objective(smoothness=smoothness, error=1e-12)
        made = minimiser.accelerated(o, None)
        assert 0.005 * made.exact < made.slack <= 0.01 * made.exact * (1 + 1e-9)
        kappa = (smoothness + o.strong) / o.strong
        assert made.steps <= 2 * sqrt(kappa) * log(100 * sqrt(2) * o.rows) + 1
    with pytest.raises(PlanRefused, match="raise the ridge"):
        minimiser.accelerated(objective(smoothness=1e12), None)


def test_the_subgradient_method_adds_a_tenth_and_is_for_a_few_rows_only():
    o = objective(rows=5, change=2 / 5, error=1e-15)
    made = minimiser.subgradient(o, None, margin_error=1e-15)
    assert made.slack == pytest.approx(0.1 * made.exact, rel=1e-3)
    assert made.rounding < 0.01 * made.slack
    with pytest.raises(PlanRefused, match="gradient-descent, which smooths the loss"):
        minimiser.subgradient(objective(), None, margin_error=1e-15)


@pytest.mark.parametrize(("beta", "n"), [(1e30, 100), (0.25, 100), (0.25, 10**6), (1e-6, 10**4)])
def test_the_theorems_ridge_balances_bias_and_noise(beta, n):
    L, W, k = 1.0, 3.0, 20.0

    def risk(ridge):
        noise = k * 2 * L / (ridge * n)
        return ridge * W**2 / 2 + min(L * noise, beta / 2 * noise**2)

    chosen = minimiser.ridge_for(L, beta, W, 1 / n, k)
    assert risk(chosen) <= 1.001 * min(risk(chosen * exp(t / 10)) for t in range(-100, 101))


def test_rounding_is_a_small_part_of_the_sensitivity_of_a_million_rows():
    for solver in ("gradient-descent", "sgd", "accelerated"):
        job = spec(OP, parameters={"solver": solver}, set="all", ridge=0.1)
        made = plan(job, facts(rows=10**6, columns=100)).schedule
        assert 0 < made.rounding_part < 0.02 * made.exact_part
        parts = made.exact_part + made.accuracy_part + made.rounding_part
        assert parts <= made.sensitivity <= parts * (1 + 1e-4)


def test_no_sensitivity_exceeds_the_balls_diameter():
    job = spec(OP, ridge=0.01, set={"radius": 0.5}, parameters={"solver": "gradient-descent"})
    made = plan(job, facts(rows=2)).schedule
    assert made.exact_part > 1 and made.sensitivity == pytest.approx(1.0, rel=1e-4)


# --- what the paper prints ---------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (1.0, 1e-5), (8.0, 1e-6)])
def test_algorithm_1s_noise_suffices_and_algorithm_2s_factor_2_in_the_exponent_does_not(
    epsilon, delta
):
    goal = target(spec(OP, epsilon, delta), facts())
    sigma = paper_sigma(goal, 3, 1.0)
    assert epsilon_of_gaussian(Fraction(1 / sigma**2), delta) <= epsilon
    printed = sigma / sqrt(2)
    assert epsilon_of_gaussian(Fraction(1 / printed**2), delta) > 1.1 * epsilon
    ours = plan(spec(OP, epsilon, delta), facts(rows=10**4))
    assert ours.prediction.our_noise < ours.prediction.paper_noise * 1.1


@pytest.mark.parametrize("alpha", [1e-6, 1e-3])
def test_the_printed_accuracy_terms_are_exceeded(alpha):
    """Two objectives (mu/2)(w - c)^2 whose minimisers are `apart`, each solved to alpha: algorithm 2
    prints 2 sqrt(2 epsilon/lambda) and algorithm 3 prints 2 alpha/mu for what the solver adds."""
    mu, apart, epsilon = 0.1, 0.2, 1e-7
    off = sqrt(2 * alpha / mu)
    here, there = 0.0 - off, apart + off
    assert mu / 2 * (here - 0.0) ** 2 == pytest.approx(alpha)
    assert mu / 2 * (there - apart) ** 2 == pytest.approx(alpha)
    moved = there - here
    assert moved > apart + 2 * sqrt(2 * epsilon / mu)
    assert moved > apart + 2 * alpha / mu
    assert moved <= (apart + 2 * sqrt(2 * alpha / mu)) * (1 + 1e-12)
