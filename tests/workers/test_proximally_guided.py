"""Proximally guided mirror descent: its mirror steps, its rounds, and that it finds what it should."""

from math import inf

import numpy as np
import pytest
from scipy.optimize import minimize

from service.errors import PlanRefused
from service.planning.catalog import plan
from service.planning.problem import problem
from service.planning.sets.l1_ball import L1Ball
from service.planning.sets.l2_ball import L2Ball
from service.planning.sets.simplex import Simplex
from tests.planning.cases import facts, spec
from workers.algorithms import RUNS
from workers.data import Data
from workers.kernels.mirror import mirror_gradient, nearest
from workers.progress import Progress
from workers.randomness import Randomness, Use

NAME = "proximally-guided-mirror-descent"
KEY = bytes(range(32))


def run(made, x, y, key=KEY):
    return RUNS[NAME](made, Data(made, x, y, Randomness(key, made.digest())), Progress())


# --- mirror steps -----------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [1.1, 1.3, 2.0])
def test_the_mirror_map_and_its_dual_undo_each_other(p):
    rng = np.random.default_rng(1)
    for size in (1e-200, 1.0, 1e200):
        u = size * rng.normal(size=7)
        back = mirror_gradient(mirror_gradient(u, p), p / (p - 1))
        assert np.allclose(back, u, rtol=1e-9, atol=0)
    assert not mirror_gradient(np.zeros(3), p).any()


def value(w, dual, centre, p):
    u = np.abs(w - centre)
    return 0.5 * (u**p).sum() ** (2 / p) - dual @ w


@pytest.mark.parametrize("p", [1.2, 1.5])
@pytest.mark.parametrize(
    "feasible", [L1Ball(radius=2.0), Simplex(total=1.5)], ids=["l1", "simplex"]
)
def test_a_mirror_step_is_the_minimiser_over_the_set(p, feasible):
    """Against SLSQP on the positive and the negative part of w."""
    rng = np.random.default_rng(2)
    total = feasible.radius if feasible.kind == "l1_ball" else feasible.total
    for scale in (0.1, 1.0, 10.0):
        centre = rng.dirichlet(np.ones(4)) * total
        if feasible.kind == "l1_ball":
            centre *= rng.choice([-0.7, 0.7], 4)
        dual = scale * rng.normal(size=4)
        w = nearest(dual, centre, feasible, p, None)
        signs = [1.0, -1.0] if feasible.kind == "l1_ball" else [1.0]

        def parts(v, signs=signs):
            return sum(s * part for s, part in zip(signs, v.reshape(len(signs), 4), strict=True))

        kind = "ineq" if feasible.kind == "l1_ball" else "eq"
        found = minimize(
            lambda v, dual=dual, centre=centre: value(parts(v), dual, centre, p),
            np.concatenate([np.maximum(s * centre, 0) for s in signs]) + 1e-3,
            bounds=[(0, None)] * (4 * len(signs)),
            constraints=[{"type": kind, "fun": lambda v: total - v.sum()}],
            options={"ftol": 1e-12, "maxiter": 500},
        )
        assert np.abs(w).sum() <= total * (1 + 1e-9)
        assert value(w, dual, centre, p) <= found.fun + 1e-6


@pytest.mark.parametrize("size", [1e-99, 1e-9, 1e9])
@pytest.mark.parametrize("scale", [1e18, 1e40, 1e100])
def test_a_step_much_longer_than_the_set_ends_at_a_vertex(size, scale):
    dual = scale * size * np.array([1.0, -3.0, 2.0])
    ball = nearest(dual, np.zeros(3), L1Ball(radius=size), 1.2, None)
    assert np.allclose(ball / size, [0, -1, 0], atol=0.01)
    simplex = nearest(dual, np.full(3, size / 3), Simplex(total=size), 1.2, None)
    assert np.allclose(simplex / size, [0, 0, 1], atol=0.01)


def test_a_run_over_a_tiny_set_ends_in_it():
    rng = np.random.default_rng(3)
    x, y = rng.integers(-2300, 2300, (24, 3)).astype(np.int16), rng.choice([-1.0, 1.0], 24)
    tiny = {"kind": "l1_ball", "radius": 1e-98}
    w = run(plan(spec(NAME, set=tiny), facts(rows=24, columns=3)), x, y)
    assert 0 < np.abs(w).sum() <= 1e-98 * (1 + 1e-9)


def test_a_step_in_l2_is_a_projection_within_reach():
    dual, centre = np.array([3.0, 4.0]), np.array([0.5, 0.0])
    assert np.allclose(nearest(dual, centre, L2Ball(radius=9.0), 2.0, 1.0), [1.1, 0.8])
    assert np.linalg.norm(nearest(dual, centre, L2Ball(radius=1.0), 2.0, None)) <= 1 + 1e-12


# --- the plan ---------------------------------------------------------------------------------------

WEAKLY_CONVEX = ["sigmoid", "savage", "welsch", "phase_retrieval", "hinge", "logistic"]


@pytest.mark.parametrize("loss", WEAKLY_CONVEX)
@pytest.mark.parametrize("kind", ["l2_ball", "l1_ball", "simplex"])
def test_the_pull_makes_every_round_strongly_convex(loss, kind):
    """By twice the weak convexity in that norm: slopes plus half the pull never fall."""
    made = plan(spec(NAME, loss=loss, set={"kind": kind}), facts(columns=20))
    p = problem(made.spec, made.facts)
    shape = made.spec.loss.scalar()
    if shape.weak > 0:
        assert made.schedule.pull >= 2 * p.weak_convexity * (1 - 1e-5)
    assert (made.schedule.norm == 2) == (kind == "l2_ball")
    assert 0 < made.prediction.excess_risk < inf


@pytest.mark.parametrize("loss", ["ramp", "trimmed"])
def test_a_loss_with_a_corner_that_points_up_is_refused(loss):
    with pytest.raises(PlanRefused) as caught:
        plan(spec(NAME, loss=loss), facts())
    assert "points up" in caught.value.detail
    for other in ("sigmoid", "welsch"):
        assert other in caught.value.detail
        assert plan(spec(NAME, loss=other), facts())
    assert "online-to-nonconvex" in caught.value.detail
    assert plan(spec("online-to-nonconvex", loss=loss), facts())


def test_more_rows_need_more_rounds_and_predict_less():
    plans = [plan(spec(NAME, loss="sigmoid"), facts(rows=n)) for n in (10**3, 10**5, 10**7)]
    rounds = [made.schedule.rounds for made in plans]
    risks = [made.prediction.excess_risk for made in plans]
    assert rounds == sorted(set(rounds)) and risks == sorted(risks, reverse=True)


@pytest.mark.parametrize("loss", ["sigmoid", "welsch"])
def test_the_prediction_falls_at_the_rates_of_the_theorem(loss):
    """Its statistical term falls like n^(-1/4), its private one like n^(-1/3)."""
    plans = [plan(spec(NAME, loss=loss), facts(rows=n)) for n in (10**5, 10**7)]
    few, many = (made.prediction.excess_risk for made in plans)
    assert 0.24 < np.log(few / many) / np.log(100) < 0.36


# --- the run ----------------------------------------------------------------------------------------


def test_rounds_read_disjoint_rows_and_all_of_them():
    made = plan(spec(NAME, parameters={"rounds": 7, "steps": 2}), facts(rows=100, columns=3))
    read = np.zeros((7, 100), dtype=int)

    class Watched(Data):
        calls = 0

        def noisy_sum(self, w, start, stop):
            read[self.calls // 2, start:stop] += 1
            self.calls += 1
            return super().noisy_sum(w, start, stop)

    x, y = np.zeros((100, 3), dtype=np.int16), np.ones(100)
    RUNS[NAME](made, Watched(made, x, y, Randomness(KEY, made.digest())), Progress())
    assert (read.sum(axis=0) == 2).all() and ((read > 0).sum(axis=0) == 1).all()


def test_start_and_output_are_drawn_without_the_data_and_apart_from_its_noise(monkeypatch):
    made = plan(
        spec(NAME, loss="phase_retrieval", parameters={"rounds": 8, "steps": 1, "clip": 1.0}),
        facts(rows=64, columns=3),
    )
    assert made.schedule.start == "random"
    opened, seen = Randomness.stream, []

    def spy(self, use, index):
        seen.append((use, index))
        return opened(self, use, index)

    monkeypatch.setattr(Randomness, "stream", spy)
    rng = np.random.default_rng(3)
    addresses = []
    for _ in range(2):
        seen.clear()
        x = rng.integers(-2000, 2000, (64, 3)).astype(np.int16)
        run(made, x, rng.uniform(-1, 1, 64))
        addresses.append(list(seen))
    assert addresses[0] == addresses[1]
    assert {(Use.DIRECTIONS, 0), (Use.OUTPUT, 0)} < set(addresses[0])


def test_the_output_is_the_result_of_one_of_the_last_half_of_the_rounds():
    job = {"rounds": 6, "steps": 1, "clip": 0.01}
    random = plan(spec(NAME, parameters=job), facts(rows=60, columns=2))
    x, y = np.zeros((60, 2), dtype=np.int16), np.ones(60)
    seen = set()
    for k in range(40):
        key = bytes([k]) * 32
        ends = []

        class Watched(Data):
            def noisy_sum(self, w, start, stop, ends=ends):
                ends.append(w)
                return super().noisy_sum(w, start, stop)

        out = RUNS[NAME](
            random, Watched(random, x, y, Randomness(key, random.digest())), Progress()
        )
        later = [r for r in range(1, 6) if np.array_equal(out, ends[r])]
        seen.add(later[0] if later else 6)
    assert seen == {4, 5, 6}


def planted(n, d, rng):
    """Rows on the sphere, y = <w, x>^2, a tenth of the labels replaced."""
    x = rng.normal(size=(n, d))
    x = np.trunc(4095 * x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.int16)
    w = rng.normal(size=d)
    w /= np.linalg.norm(w)
    y = (x / 4095 @ w) ** 2
    wrong = rng.uniform(size=n) < 0.1
    y[wrong] = rng.uniform(size=int(wrong.sum()))
    return x, y, w


@pytest.mark.parametrize("set_", [{"radius": 1.5}, {"kind": "l1_ball", "radius": 2.5}])
def test_it_recovers_a_planted_signal_up_to_its_sign(set_):
    rng = np.random.default_rng(4)
    about = facts(rows=5000, columns=4, epsilon=50.0, label="numeric")
    job = {"clip": 1.0, "pull": 1.0, "steps": 10, "rounds": 25, "output": "last"}
    made = plan(spec(NAME, 50.0, loss="phase_retrieval", set=set_, parameters=job), about)
    x, y, w = planted(5000, 4, rng)
    found = run(made, x, y)
    assert min(np.linalg.norm(found - w), np.linalg.norm(found + w)) < 0.2


def test_on_a_convex_loss_it_comes_near_the_minimum():
    rng = np.random.default_rng(6)
    x = rng.integers(-2300, 2300, (20_000, 3)).astype(np.int16)
    y = np.where(x[:, 0] > 0, 1.0, -1.0)
    made = plan(spec(NAME, 50.0, parameters={"output": "last"}), facts(rows=20_000, columns=3))
    w = run(made, x, y)
    assert np.mean(np.logaddexp(0, -y * (x / 4095 @ w))) < 0.5 * np.log(2)
