"""Regularisers in the algorithms that descend along noisy gradients: each comes to the composite
optimum, over every set on which the operator is exact, whatever the loss."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linprog, minimize
from scipy.sparse import hstack, identity

from service.errors import PlanRefused
from service.planning.catalog import CATALOG, plan
from service.planning.needs import WITH_THEIR_SETS
from service.planning.regularisers import REGULARISERS
from service.planning.sets import SETS
from tests.planning.cases import facts, spec
from tests.workers.heavy_tails import Noiseless
from tests.workers.records import KEY
from workers.algorithms import RUNS
from workers.data import Data
from workers.progress import Progress
from workers.randomness import Randomness

GD, AC, LOCAL, SUB = (
    "gradient-descent",
    "accelerated-sgd",
    "localized-accelerated-sgd",
    "localized-subgradient",
)
D = 4
L1 = {"kind": "l1", "strength": 0.1}
NET = {"kind": "elastic_net", "l1": 0.05, "l2": 0.1}
GROUPS = {"kind": "group_lasso", "strength": 0.05, "groups": [2, 1]}
BALL, BOX = {"kind": "l2_ball", "radius": 2.0}, {"kind": "box", "lower": -0.3, "upper": 0.8}
CROSS, LP = {"kind": "l1_ball", "radius": 1.0}, {"kind": "lp_ball", "p": 1.3, "radius": 1.0}
PINBALL = {"kind": "pinball", "quantile": 0.8}
VALUES = {
    "hinge": lambda m, y: np.maximum(0, 1 - y * m),
    "logistic": lambda m, y: np.logaddexp(0, -y * m),
    "absolute": lambda m, y: np.abs(m - y),
    "pinball": lambda m, y: np.maximum(0.8 * (y - m), 0.2 * (m - y)),
}
CASES = [  # loss, regulariser, set
    ("hinge", L1, BALL),
    ("hinge", L1, BOX),
    ("absolute", L1, CROSS),
    (PINBALL, L1, LP),
    ("hinge", GROUPS, BALL),
    ("absolute", NET, BOX),
    ("logistic", NET, LP),
    ("logistic", GROUPS, "all"),
]


def rows(made, n):
    """Of four columns with the intercept first, of which two say something of the label."""
    rng = np.random.default_rng(3)
    x = np.c_[np.full(n, 2000), rng.integers(-2000, 2001, size=(n, D - 1))].astype(np.int16)
    clean = x @ [0.4, 1.5, 0.0, -1.0] + 800 * rng.normal(size=n)
    sign = made.facts.label == "binary"
    return x, np.where(clean > 0, 1.0, -1.0) if sign else np.clip(clean / 4095, -1, 1)


def penalty(h, w):
    w = w[1:]
    match h["kind"]:
        case "l1":
            return h["strength"] * np.abs(w).sum()
        case "elastic_net":
            return h["l1"] * np.abs(w).sum() + h["l2"] / 2 * w @ w
        case "group_lasso":
            return h["strength"] * (np.sqrt(2) * np.linalg.norm(w[:2]) + np.abs(w[2]))


def objective(made, x, y):
    X, spec_ = x * made.facts.feature_step, made.spec
    value, h = VALUES[spec_.loss.kind], spec_.regulariser.model_dump()
    return lambda w: float(value(X @ w, y).mean() + penalty(h, w) + spec_.ridge / 2 * w @ w)


def least(made, of, found):
    """In so few dimensions a simplex of points finds it, begun afresh until it stays."""
    project, best = made.spec.set.project, found
    for _ in range(2):
        best = minimize(
            lambda w: of(project(w)),
            best,
            method="Nelder-Mead",
            options={"xatol": 1e-7, "fatol": 1e-9},
        ).x
    return of(project(best))


def planned(algorithm, loss, h, where, n, epsilon=50.0, **job):
    kind = loss if isinstance(loss, str) else loss["kind"]
    label = "binary" if kind in ("hinge", "logistic") else "numeric"
    about = facts(rows=n, columns=D, epsilon=epsilon, label=label)
    return plan(spec(algorithm, epsilon, loss=loss, regulariser=h, set=where, **job), about)


@pytest.mark.parametrize(("loss", "h", "where"), CASES, ids=str)
@pytest.mark.parametrize("algorithm", [GD, AC, LOCAL, SUB])
def test_without_noise_the_composite_optimum_is_met(algorithm, loss, h, where):
    """Those in phases are pulled towards their start, the less the more rows there are, and read half
    of the rows at first: with 400 rows the pull alone would be most of what is left."""
    phases = algorithm in (LOCAL, SUB)
    n = 4000 if phases else 400
    made = planned(algorithm, loss, h, where, n, ridge=0.01, parameters={"steps": 500})
    x, y = rows(made, n)
    found = RUNS[algorithm](made, Noiseless(made, x, y, Randomness(KEY, "")), Progress())
    of = objective(made, x, y)
    excess = of(found) - least(made, of, found)
    assert excess <= (0.02 if phases else 0.005)


@pytest.mark.parametrize("algorithm", [GD, AC])
def test_with_little_noise_l1_and_hinge_come_to_the_linear_program_s_optimum(algorithm):
    n = 6000
    made = planned(algorithm, "hinge", L1, BOX, n, epsilon=100.0)
    x, y = rows(made, n)
    found = RUNS[algorithm](made, Data(made, x, y, Randomness(KEY, "")), Progress())
    leaning = y[:, None] * x * made.facts.feature_step
    strength = np.r_[0.0, np.full(D - 1, L1["strength"])]
    exact = linprog(  # the parts above and below 0 of each weight, and what each row falls short by
        np.r_[strength, strength, np.full(n, 1 / n)],
        A_ub=hstack([-leaning, leaning, -identity(n)]).tocsr(),
        b_ub=np.full(n, -1.0),
        bounds=[*[(0, BOX["upper"])] * D, *[(0, -BOX["lower"])] * D, *[(0, None)] * n],
    )
    assert exact.status == 0
    assert -1e-9 <= objective(made, x, y)(found) - exact.fun <= 0.003


@pytest.mark.parametrize("h", [L1, NET, GROUPS], ids=lambda h: h["kind"])
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
@pytest.mark.parametrize("algorithm", [GD, AC, LOCAL, SUB])
def test_a_regulariser_costs_next_to_nothing_of_the_bound_at_any_number_of_rows(algorithm, loss, h):
    """Up to 10^8 of them, which are planned here and not run."""
    for rows_ in (10**k for k in range(3, 9)):
        bound, without = (
            planned(algorithm, loss, each, BALL, rows_, 1.0).prediction.excess_risk
            for each in (h, "none")
        )
        assert bound <= 1.5 * without


@pytest.mark.parametrize("algorithm", [n for n, e in CATALOG.items() if e.needs.regularisers])
def test_what_is_taken_with_a_regulariser_is_where_its_operator_is_exact(algorithm):
    """And a refusal names the sets that are."""
    strong = {"l1": L1, "elastic_net": NET, "group_lasso": GROUPS}
    corner = {"polytope": {"vertices": [[0.0] * D, [1.0] * D]}}
    for kind, where in product(strong, SETS):
        named = {"kind": where.name(), **corner.get(where.name(), {})}
        job = spec(algorithm, regulariser=strong[kind], set=named)
        if where.name() in WITH_THEIR_SETS[kind]:
            assert plan(job, facts(columns=D)).spec.regulariser == job.regulariser
        else:
            with pytest.raises(PlanRefused, match=", ".join(WITH_THEIR_SETS[kind])):
                plan(job, facts(columns=D))
    assert {*strong, "none"} == {each.name() for each in REGULARISERS}
