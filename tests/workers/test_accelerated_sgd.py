"""AC-SA: its convergence, without noise and with it, over every set with a projection."""

import numpy as np
import pytest
from scipy.optimize import minimize

from service.planning.catalog import plan
from service.planning.problem import problem
from service.planning.sets.all import AllSpace
from service.planning.sets.l2_ball import L2Ball
from service.planning.shared.acceleration import Smoother, Stage, staged
from tests.planning.cases import facts, spec
from tests.workers.records import D, data, sums
from workers.algorithms import RUNS
from workers.data import Data
from workers.optimizers.acceleration import ac_sa
from workers.progress import Progress
from workers.randomness import Randomness

KEY = bytes(range(32))
AC, LOCAL, GD = "accelerated-sgd", "localized-accelerated-sgd", "gradient-descent"


def quadratic(rng, d, mu):
    """f(w) = w'Aw/2 - b'w, smooth by 1, and the minimiser of f + (mu/2)||w||^2."""
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    A = basis * np.geomspace(1e-4, 1.0, d) @ basis.T
    best = rng.normal(size=d)
    b = (A + mu * np.eye(d)) @ best
    return A, b, best


@pytest.mark.parametrize("mu", [0.0, 0.01, 1.0])
@pytest.mark.parametrize("steps", [1, 2, 5, 20, 100])
def test_without_noise_the_error_is_within_the_accelerated_rate(mu, steps):
    rng = np.random.default_rng(steps)
    A, b, best = quadratic(rng, 30, mu)
    stage = Stage(steps=steps, damping=2 * mu)
    found = ac_sa(lambda w: A @ w - b, np.zeros(30), stage, 1.0, AllSpace(), ridge=mu)
    gap = found - best
    error = gap @ (A @ gap + mu * gap) / 2
    assert error <= (2 + 2 * mu) * (best @ best) / (steps * (steps + 1))


def test_without_noise_acceleration_beats_descent():
    A, b, best = quadratic(np.random.default_rng(1), 30, 0.0)
    stage = Stage(steps=300, damping=0.0)
    found = ac_sa(lambda w: A @ w - b, np.zeros(30), stage, 1.0, AllSpace(), ridge=0.0)
    descent = np.zeros(30)
    for _ in range(300):
        descent -= A @ descent - b

    def error(w):
        return (w - best) @ A @ (w - best) / 2

    assert error(found) < error(descent) / 5


@pytest.mark.parametrize("mu", [0.0, 0.05, 0.5])
@pytest.mark.parametrize(("steps", "variance"), [(8, 1.0), (64, 0.1), (64, 30.0), (256, 1.0)])
def test_with_noise_the_mean_error_is_within_the_bound(mu, steps, variance):
    """The planned stages and dampings, on noise of the variance that they were planned for."""
    rng = np.random.default_rng(steps)
    A, b, best = quadratic(rng, 10, mu)
    bound, stages = staged(steps, 1.0, mu, float(np.linalg.norm(best)), variance)
    assert sum(stage.steps for stage in stages) == steps
    errors = []
    for _ in range(40):
        w = np.zeros(10)
        for stage in stages:
            w = ac_sa(
                lambda v: A @ v - b + rng.normal(size=10) * (variance / 10) ** 0.5,
                w,
                stage,
                1.0,
                AllSpace(),
                ridge=mu,
            )
        errors.append((w - best) @ (A @ (w - best) + mu * (w - best)) / 2)
    assert bound / 1000 < np.mean(errors) <= bound


def test_the_pull_is_solved_exactly():
    """A pull towards a centre has the same minimiser as the shifted problem."""
    A, b, _ = quadratic(np.random.default_rng(2), 5, 0.0)
    centre = np.arange(5.0)
    best = np.linalg.solve(A + 0.7 * np.eye(5), b + 0.5 * centre)
    stage = Stage(steps=400, damping=1.4)
    found = ac_sa(
        lambda w: A @ w - b,
        centre,
        stage,
        1.0,
        L2Ball(radius=100),
        ridge=0.2,
        pull=0.5,
        centre=centre,
    )
    assert np.allclose(found, best, atol=1e-3)


def test_the_printed_weights_never_forget_the_start():
    """The start's weight in the mean is the product of 1 - alpha_t: zero for 2/(t+1) alone."""
    printed, ours = (np.prod([1 - 2 / (t + k) for t in range(1, 51)], dtype=float) for k in (2, 1))
    assert ours == 0.0 and printed == pytest.approx(2 / (51 * 52))
    start, steps = np.full(3, 1e6), 5
    found = ac_sa(
        lambda w: np.zeros(3),
        start,
        Stage(steps=steps, damping=0.0),
        1e-12,
        L2Ball(radius=1.0),
        ridge=0.0,
    )
    assert np.linalg.norm(found) <= 1 + 1e-9  # only points of the set are averaged


class Noiseless(Data):
    def _vector(self, exact, step, rows, **how):
        self._gate.number += 1
        return exact.astype(np.float64) * step


LOSSES = {
    "hinge": lambda m, y: np.maximum(0, 1 - y * m),
    "absolute": lambda m, y: np.abs(m - y),
    "logistic": lambda m, y: np.logaddexp(0, -y * m),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("ridge", [0.0, 0.05])
@pytest.mark.parametrize("batch", [300, 60])
def test_a_noiseless_run_comes_within_its_bound_of_the_optimum(loss, ridge, batch):
    """On rows of integers, with the kernels' smoothing and quantisation, over a ball."""
    steps = 400 if batch == 300 else 2000
    job = spec(
        AC,
        50.0,
        loss=loss,
        ridge=ridge,
        set={"radius": 2.0},
        parameters={"steps": steps, "batch": batch},
    )
    about = facts(rows=300, columns=D, epsilon=50.0)
    made = plan(job, about)
    x, y = data(made, 300)
    y = np.where(x @ [1.0, -2.0, 0.5] + 1000 * np.random.default_rng(1).normal(size=300) > 0, 1, -1)
    y = y.astype(np.float64)
    X = x * about.feature_step

    def objective(w):
        return float(LOSSES[loss](X @ w, y).mean() + ridge / 2 * w @ w)

    found = RUNS[AC](made, Noiseless(made, x, y, Randomness(KEY, made.digest())), Progress())
    ball = {"type": "ineq", "fun": lambda w: 4.0 - w @ w}
    starts = [found, np.zeros(D), *np.random.default_rng(5).normal(size=(6, D))]
    least = min(
        minimize(objective, w, constraints=ball, method="SLSQP", options={"ftol": 1e-12}).fun
        for w in starts
    )
    assert objective(found) - least <= made.prediction.excess_risk
    if batch == 300:
        smooth = Smoother.of(problem(job, about), job, about)
        stages, beta = made.schedule.stages, made.schedule.smoothness
        rate = (2 * beta + stages[-1].damping) * 4 / (stages[-1].steps * (stages[-1].steps + 1))
        assert objective(found) - least <= rate + smooth.bias(beta) + 1e-4


@pytest.mark.parametrize("kind", ["l1_ball", "simplex", "box", "all"])
@pytest.mark.parametrize("algorithm", [AC, LOCAL])
def test_every_set_with_a_projection_is_kept(kind, algorithm):
    made = plan(spec(algorithm, set=kind, parameters={"steps": 30}), facts(rows=97, columns=D))
    w = RUNS[algorithm](made, sums(made, *data(made, 97)), Progress())
    within = {
        "l1_ball": np.abs(w).sum() <= 10 + 1e-9,
        "simplex": (w >= 0).all() and w.sum() == pytest.approx(1),
        "box": (np.abs(w) <= 1).all(),
        "all": np.isfinite(w).all(),
    }
    assert within[kind]


@pytest.mark.parametrize("algorithm", [AC, LOCAL])
@pytest.mark.parametrize("loss", ["softmax", "geometric_median"])
def test_losses_of_several_margins_run_over_batches_too(algorithm, loss):
    label = {"label": "categorical", "classes": 3} if loss == "softmax" else {}
    about = facts(rows=97, columns=D).model_copy(update=label)
    parameters = {AC: {"steps": 20, "batch": 12}, LOCAL: {"steps": 20, "halvings": 3}}[algorithm]
    made = plan(spec(algorithm, loss=loss, parameters=parameters), about)
    x, y = data(made, 97)
    if loss == "softmax":
        y = np.arange(97.0) % 3
    w = RUNS[algorithm](made, sums(made, x, y), Progress())
    assert w.shape == (made.dimension,) and np.isfinite(w).all()
