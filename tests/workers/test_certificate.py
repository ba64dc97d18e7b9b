"""Certificates: the measures, their noise, and the release that they are made of."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog

from service.errors import PlanRefused
from service.planning.catalog import plan
from service.planning.certificate import CONFIDENCE, certificate_of, measures, noise_norm
from service.planning.lattice import calibrate, target
from service.planning.plan import canonical_json
from service.planning.problem import problem
from service.planning.sets.all import AllSpace
from service.planning.sets.box import Box
from service.planning.sets.l1_ball import L1Ball
from service.planning.sets.l2_ball import L2Ball
from service.planning.sets.lp_ball import LpBall
from service.planning.sets.polytope import Polytope
from service.planning.sets.simplex import Simplex
from tests.planning.cases import OF, facts, spec
from tests.workers.exact import exact_sum
from workers.algorithms import RUNS
from workers.certify import mean_gradient
from workers.data import Data
from workers.progress import Progress
from workers.randomness import Randomness
from workers.rows import WrongDataError
from workers.samplers import rounded_laplace, rounded_normal

NAME = "stationarity-certificate"
KEY = bytes(range(32))
POLYTOPES = [
    L1Ball(radius=2.0),
    Simplex(total=1.5),
    Box(lower=-0.5, upper=2.0),
    Polytope(vertices=((0, 0, 1), (1, 0, 0), (-1, 2, 0.5))),
]


def certificate(made, x, y, w, key=KEY):
    data = Data(made, x, y, Randomness(key, made.digest()), w)
    return certificate_of(made, w, RUNS[NAME](made, data, Progress()))


def vertices(feasible):
    match feasible.kind:
        case "l1_ball":
            return feasible.radius * np.concatenate([np.eye(3), -np.eye(3)])
        case "simplex":
            return feasible.total * np.eye(3)
        case "box":
            return np.array(list(product((feasible.lower, feasible.upper), repeat=3)))
        case _:
            return np.array(feasible.vertices)


@pytest.mark.parametrize("feasible", POLYTOPES, ids=lambda f: f.kind)
def test_the_gap_is_the_best_improvement_of_a_linear_model_over_the_set(feasible):
    rng = np.random.default_rng(1)
    corners = vertices(feasible)
    for g in rng.normal(size=(5, 3)):
        # over convex combinations of the vertices
        best = linprog(corners @ g, A_eq=np.ones((1, len(corners))), b_eq=[1.0]).fun
        assert feasible.least(g) == pytest.approx(best)


@pytest.mark.parametrize("p", [1.0 + 2**-40, 1.5, 2.0])
def test_the_gap_over_an_lp_ball_is_that_of_its_dual_norm(p):
    g, ball = np.array([3.0, -4.0, 0.0]), LpBall(p=p, radius=2.0)
    angles = np.linspace(0, 2 * np.pi, 100_001)
    edge = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    edge *= 2.0 / np.linalg.norm(edge, p, axis=1, keepdims=True)
    assert ball.least(g) == pytest.approx((edge @ g[:2]).min(), rel=1e-3)


@pytest.mark.parametrize(
    "feasible",
    [*POLYTOPES, AllSpace(), L2Ball(), LpBall()],
    ids=lambda feasible: feasible.kind,
)
def test_a_certificate_is_made_over_every_set(feasible):
    asked = spec(NAME, set=feasible.model_dump())
    made = plan(asked, facts(rows=10, columns=3))
    x, y = np.full((10, 3), 1000, dtype=np.int16), np.ones(10)
    found = certificate(made, x, y, np.array([0.3, 0.2, 0.5]))
    assert canonical_json(found)
    assert (found["stationarity_gap"] is None) == (feasible.kind == "all")
    assert (found["projected_gradient_norm"] is None) == (feasible.kind == "polytope")


def test_a_point_is_stationary_where_its_measures_vanish():
    w = np.array([0.6, 0.8])
    ball = L2Ball(radius=1.0)
    at_the_edge = measures(-3 * w, w, ball, 1.0)  # the gradient points outwards
    assert at_the_edge["gradient_norm"] == pytest.approx(3.0)
    assert at_the_edge["stationarity_gap"] == pytest.approx(0.0, abs=1e-12)
    assert at_the_edge["projected_gradient_norm"] == pytest.approx(0.0, abs=1e-12)
    free = measures(np.array([3.0, 4.0]), w, AllSpace(), 0.1)
    assert free["stationarity_gap"] is None and free["projected_gradient_norm"] == pytest.approx(5)


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_noise_is_no_longer_than_stated_about_as_often_as_stated(delta):
    about = facts(columns=20)
    goal = target(spec(NAME, delta=delta), about)
    lattice = calibrate(goal, about, problem(spec(NAME), about), 1.0, times=1)
    sampler = rounded_normal if delta else rounded_laplace
    stream = Randomness(KEY, "0" * 64).stream(1, 0)
    z = sampler(stream, 20 * 4000, lattice.bits).reshape(4000, 20) * lattice.step
    within = np.mean(np.linalg.norm(z, axis=1) <= noise_norm(lattice, 20))
    assert within >= CONFIDENCE


@pytest.mark.parametrize("loss", ["logistic", "sigmoid", "phase_retrieval", "welsch"])
@pytest.mark.parametrize("radius", [0.0, 0.05])
def test_a_certificate_is_within_its_noise_of_the_truth(loss, radius):
    rng = np.random.default_rng(2)
    x = rng.integers(-2000, 2000, (5000, 3)).astype(np.int16)
    y = np.where(rng.uniform(size=5000) < 0.5, -1.0, 1.0)
    w = np.array([0.3, -0.2, 0.5])
    parameters = {"radius": radius, "points": 32} if radius else {}
    made = plan(
        spec(NAME, 5.0, loss=loss, ridge=0.1, set={"radius": 2.0}, parameters=parameters),
        facts(rows=5000, columns=3, epsilon=5.0),
    )
    found = certificate(made, x, y, w)
    g = mean_gradient(made.spec, x / 4095, y, w) + 0.1 * w
    true = measures(g, w, made.spec.set, 1.0)
    slack = radius + 1e-3  # the mean over a small ball, and quantised slopes
    assert abs(found["gradient_norm"] - true["gradient_norm"]) <= found["noise_norm"] + slack
    assert abs(found["stationarity_gap"] - true["stationarity_gap"]) <= found["gap_noise"] + slack
    assert found["noise"] < found["noise_norm"] < 0.05
    assert (found["of"], found["model_digest"]) == (OF["job"], OF["digest"])


@pytest.mark.parametrize("storage", ["fixed", "float64"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("points", [1, 5])
def test_no_exchange_moves_the_sum_over_points_beyond_its_sensitivity(storage, delta, points):
    parameters = {"clip": 0.3} | ({"radius": 0.5, "points": points} if points > 1 else {})
    about = facts(storage, rows=4, columns=3)
    made = plan(spec(NAME, 1.0, delta, parameters=parameters), about)
    rng = np.random.default_rng(3)
    places = [rng.normal(size=3) for _ in range(points)]
    diagonal = np.ones(3) / np.sqrt(3)
    pool = [np.zeros(3), np.array([1.0, 0, 0]), diagonal, -diagonal, rng.normal(size=3) / 9]
    results = []
    for row in pool:
        for label in (-1.0, 1.0):
            x = np.zeros((4, 3), dtype=np.int16 if storage == "fixed" else float)
            x[2] = np.trunc(4095 * row) if storage == "fixed" else 100 * row
            y = np.ones(4)
            y[2] = label
            data = Data(made, x, y, Randomness(KEY, made.digest()))
            results.append(sum(exact_sum(data, w, 0, 4) for w in places).astype(object))
    order = 1 if made.lattice.norm == "l1" else 2
    moved = [a - b for a in results for b in results]
    far = [sum(abs(v) for v in m) if order == 1 else sum(v * v for v in m) ** 0.5 for m in moved]
    sensitivity = made.release.sensitivity
    assert sensitivity == 2 * points * made.lattice.contribution_units
    assert 0.5 * sensitivity <= max(far) <= sensitivity


def test_a_certificate_needs_the_model_that_its_plan_names():
    made = plan(spec(NAME), facts(rows=10, columns=3))
    x, y = np.zeros((10, 3), dtype=np.int16), np.ones(10)
    for released in (None, np.zeros(4)):
        with pytest.raises(WrongDataError):
            certificate(made, x, y, released)


REFUSED = {
    "no model": ({"of": None}, 'set "of"', {}),
    "no coefficients": (
        {"loss": "geometric_median"},
        "use the loss absolute, hinge, huber,",
        {"loss": "huber"},
    ),
    "a network": (
        {"model": "relu_network"},
        'use the model linear, and set "of" to a job that fitted a linear one',
        {},
    ),
    "vertices of another length": (
        {"set": {"kind": "polytope", "vertices": [[1, 0], [0, 1]]}},
        "needs 20 entries",
        {"set": {"kind": "polytope", "vertices": [[0] * 20, [1] * 20]}},
    ),
    "points of no ball": (
        {"parameters": {"points": 3}},
        "set parameters.radius",
        {"parameters": {"points": 3, "radius": 0.1}},
    ),
}


@pytest.mark.parametrize(("asked", "says", "works"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_says_what_would_work(asked, says, works):
    with pytest.raises(PlanRefused) as caught:
        plan(spec(NAME, **asked), facts())
    assert says in caught.value.detail
    made = plan(spec(NAME, **works), facts())
    assert made.release == made.lattice.release()  # one, and nothing else


def test_another_algorithm_certifies_nothing():
    with pytest.raises(PlanRefused) as caught:
        plan(spec("gradient-descent", of=OF), facts())
    assert NAME in caught.value.detail
