"""The best constant: what follows from a noisy mean of labels, and that it does no harm."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.stats import norm

from benchmarks.lab import losses
from service.errors import PlanRefused
from service.planning.catalog import plan
from service.planning.choose import choose, compare
from service.planning.losses import LOSSES
from tests.planning.cases import facts, spec
from workers.algorithms import RUNS
from workers.algorithms.best_constant import best_margin
from workers.data import Data
from workers.optimizers.labels import expected
from workers.progress import Progress
from workers.randomness import Randomness

NAME = "best-constant"
OF_MARGINS = {each.name(): each(kind=each.name()) for each in LOSSES if each.margin}


@pytest.mark.parametrize("noise", [0.01, 0.1, 1.0, 30.0])
@pytest.mark.parametrize("seen", [-3.0, -1.0, -0.2, 0.0, 0.9, 1.01])
def test_a_mean_is_what_is_to_be_expected_of_it(seen, noise):
    if abs(seen) > 1 + 4 * noise:  # that far outside is as if it were nearer
        seen = np.sign(seen) * (1 + 4 * noise)
    near = min(max(seen, -1.0), 1.0)

    def over(f):
        return quad(lambda m: f(m) * norm.pdf(m, seen, noise), -1, 1, points=[near], limit=200)[0]

    assert expected(seen, noise) == pytest.approx(over(lambda m: m) / over(lambda m: 1), abs=1e-6)


@pytest.mark.parametrize("seen", [-1e9, 1e9, 0.0])
@pytest.mark.parametrize("noise", [1e-9, 1.0, 1e12])
def test_whatever_was_released_the_mean_is_within_bounds(seen, noise):
    assert -1 <= expected(seen, noise) <= 1


@pytest.mark.parametrize("mean", [-0.99, -0.4, 0.1, 0.7])
@pytest.mark.parametrize("kind", ["logistic", "hinge", "smoothed_hinge"])
def test_its_margin_is_the_best_of_a_constant(kind, mean):
    loss = OF_MARGINS[kind]
    value = losses.of_margins(loss) if kind != "smoothed_hinge" else smoothed(loss.width)
    p = (1 + mean) / 2

    def risk(m):
        one, other = (float(value(np.array([m]), np.array([y]))[0][0]) for y in (1.0, -1.0))
        return p * one + (1 - p) * other

    least = minimize_scalar(risk, bounds=(-8, 8), method="bounded").fun
    assert risk(best_margin(loss.scalar(), mean)) == pytest.approx(least, abs=1e-4)


def smoothed(width):
    def value(m, y):
        r = np.maximum(1 - y * m, 0.0)
        return np.where(r < width, r**2 / (2 * width), r - width / 2), None

    return value


def fitted(made, labels, seed=0):
    n = len(labels)
    x = np.random.default_rng(seed).integers(-999, 999, (n, made.facts.columns)).astype(np.int16)
    data = Data(made, x, labels, Randomness(bytes([seed] * 32), made.digest()))
    return RUNS[NAME](made, data, Progress())


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize(("label", "loss"), [("binary", "logistic"), ("numeric", "squared")])
def test_of_many_rows_it_is_the_best_constant_and_other_weights_are_0(label, loss, delta):
    n, rng = 20_000, np.random.default_rng(1)
    about = facts(rows=n, label=label, delta=delta)
    y = np.where(rng.uniform(size=n) < 0.1, 1.0, -1.0)
    if label == "numeric":
        y = np.clip(rng.normal(-0.6, 0.01, n), -1, 1)
    w = fitted(plan(spec(NAME, loss=loss, set="all"), about), y)
    best = float(losses.constant(OF_MARGINS[loss], y)[0])
    assert w[0] * about.linf == pytest.approx(best, abs=0.05 if label == "binary" else 0.002)
    assert not w[1:].any()


def test_with_hardly_any_privacy_it_stays_near_the_middle_of_the_bounds():
    made = plan(spec(NAME, 0.05, loss="squared", set="all"), facts(rows=100, label="numeric"))
    assert made.schedule.labels is None
    found = [fitted(made, np.full(100, 0.9), seed)[0] * made.facts.linf for seed in range(50)]
    assert np.abs(found).max() < 1 and np.abs(np.mean(found)) < 0.5


@pytest.mark.parametrize("loss", ["absolute", "huber", "pinball"])
def test_a_constant_that_no_mean_tells_is_refused(loss):
    with pytest.raises(PlanRefused, match="follows from a mean"):
        plan(spec(NAME, loss=loss, set="all"), facts(label="numeric"))


def test_where_rows_are_few_auto_takes_it_and_where_they_are_many_it_does_not():
    for rows, taken in ((300, True), (100_000, False)):
        for label, loss in (("binary", "logistic"), ("numeric", "squared")):
            asked = spec("auto", 0.1, loss=loss).model_dump(exclude={"set"})
            job = type(spec("auto")).model_validate(asked)
            made, _ = choose(compare(job, facts(rows=rows, label=label), 2**50))
            assert (made.algorithm == NAME) == taken


def test_where_nothing_is_expected_it_comes_last():
    about = facts(rows=300, delta=0.0)
    able = [c for c in compare(spec("auto", loss="logistic", ridge=0.1), about, 2**50) if c.plan]
    assert able[0].algorithm.name != NAME


def test_a_model_is_preferred_where_noise_leaves_one_although_the_constant_is_often_as_good():
    about = facts(rows=20_000)
    job = type(spec("auto")).model_validate(
        spec("auto", 0.05, loss="hinge").model_dump(exclude={"set"})
    )
    made, choice = choose(compare(job, about, 2**50))
    assert made.algorithm == "preconditioned-descent"
    assert "of a model. best-constant often loses no more" in choice.reason
