"""The proximal operators: they minimise what they should, and a lasso finds its support."""

import numpy as np
import pytest

from service.planning.catalog import plan
from service.planning.regularisers.elastic_net import ElasticNet
from service.planning.regularisers.group_lasso import GroupLasso
from service.planning.regularisers.l1 import L1
from service.planning.regularisers.none import NoRegulariser
from service.planning.sets.all import AllSpace
from service.planning.sets.box import Box
from service.planning.sets.l1_ball import L1Ball
from service.planning.sets.l2_ball import L2Ball
from service.planning.sets.lp_ball import LpBall
from service.planning.sets.simplex import Simplex
from tests.planning.cases import facts, spec
from tests.workers.heavy_tails import Noiseless
from tests.workers.records import (
    KEY,
)
from workers.algorithms import RUNS
from workers.progress import Progress
from workers.randomness import Randomness

REGULARISERS = [
    NoRegulariser(),
    L1(strength=0.7),
    ElasticNet(l1=0.4, l2=2.0),
    GroupLasso(strength=0.5, groups=(2, 1, 3)),
]


def value(h, w):
    w = w[1:]
    match h.kind:
        case "none":
            return 0.0
        case "l1":
            return h.strength * np.abs(w).sum()
        case "elastic_net":
            return h.l1 * np.abs(w).sum()
        case "group_lasso":
            parts = np.split(w, np.cumsum(h.groups)[:-1])
            return h.strength * sum(np.sqrt(p.size) * np.linalg.norm(p) for p in parts)


FEASIBLE = [
    AllSpace(),
    L2Ball(radius=1.0),
    L1Ball(radius=1.0),
    LpBall(p=1.3, radius=0.8),
    Box(lower=-0.6, upper=0.5),
    Box(lower=0.2, upper=0.5),
    Simplex(),
]


@pytest.mark.parametrize(
    ("h", "feasible"),
    [
        pytest.param(h, feasible, id=f"{h.kind}-{feasible.kind}")
        for h in REGULARISERS
        for feasible in FEASIBLE
        if h.suits(type(feasible))
    ],
)
def test_the_operator_minimises_what_it_should(h, feasible):
    """No point of the set near or far does better than the operator followed by the projection. An
    elastic net's square is no part of it."""
    rng = np.random.default_rng(4)
    for eta in (0.1, 1.0):
        for _ in range(10):
            z = rng.normal(size=7) * 2

            def objective(w, z=z, eta=eta):
                return eta * value(h, w) + (w - z) @ (w - z) / 2

            found = feasible.project(h.prox(z, eta, 7))
            least = objective(found)
            scales = 10.0 ** rng.uniform(-6, 1, size=(100, 1))
            for other in found + scales * rng.normal(size=(100, 7)):
                assert objective(feasible.project(other)) >= least - 1e-12


@pytest.mark.parametrize(
    ("h", "feasible"),
    [
        (L1(strength=1.0), Simplex()),
        (GroupLasso(strength=0.5, groups=(3, 3)), L1Ball(radius=0.5)),
        (GroupLasso(strength=0.5, groups=(3, 3)), LpBall(p=1.3, radius=0.8)),
        (GroupLasso(strength=0.5, groups=(3, 3)), Box(lower=-0.2, upper=0.1)),
    ],
    ids=lambda part: part.kind,
)
def test_where_a_regulariser_does_not_suit_a_set_the_projection_is_another_point(h, feasible):
    rng, worse = np.random.default_rng(4), 0.0
    assert not h.suits(type(feasible))
    for _ in range(20):
        z = rng.normal(size=7)
        found = feasible.project(h.prox(z, 1.0, 7))
        values = [
            value(h, w) + (w - z) @ (w - z) / 2
            for w in map(feasible.project, found + 0.05 * rng.normal(size=(300, 7)))
        ]
        worse = max(worse, value(h, found) + (found - z) @ (found - z) / 2 - min(values))
    assert worse > 1e-4


def test_a_network_s_outer_weights_are_penalised_one_by_one_and_its_offset_is_not():
    """Two hidden units of three columns, intercepts first; then two outer weights and an offset."""
    w = np.arange(1.0, 10.0)
    assert L1(strength=2.0).prox(w, 1.0, 3, 2).tolist() == [1, 0, 1, 4, 3, 4, 5, 6, 9]
    lasso = GroupLasso(strength=2.0, groups=(1, 1))
    assert lasso.prox(w, 1.0, 3, 2).tolist() == [1, 0, 1, 4, 3, 4, 5, 6, 9]
    net = ElasticNet(l1=0.0, l2=2.0)
    assert net.smooth_gradient(w, 3, 2).tolist() == [0, 4, 6, 0, 10, 12, 14, 16, 0]


def test_intercepts_are_left_alone_one_per_class():
    z = np.arange(1.0, 9.0)
    w = L1(strength=100.0).prox(z, 1.0, 4)
    assert w.tolist() == [1, 0, 0, 0, 5, 0, 0, 0]
    w = GroupLasso(strength=100.0, groups=(2, 1)).prox(z, 1.0, 4)
    assert w.tolist() == [1, 0, 0, 0, 5, 0, 0, 0]
    assert GroupLasso(strength=1.0, groups=(3,)).prox(np.zeros(4), 1.0, 4).tolist() == [0] * 4


def test_the_smooth_part_of_an_elastic_net_is_its_square():
    w = np.arange(1.0, 7.0)
    assert ElasticNet(l1=1.0, l2=2.0).smooth_gradient(w, 3).tolist() == [0, 4, 6, 0, 10, 12]
    assert L1(strength=3.0).smooth_gradient(w, 3).tolist() == [0] * 6


def test_a_noiseless_lasso_finds_the_support():
    """Squared loss, 3 of 12 features matter: the others are exactly zero."""
    n, d = 20_000, 13
    rng = np.random.default_rng(8)
    job = spec(
        "proximal-sgd",
        50.0,
        loss="squared",
        ridge=0.0,
        set="all",
        regulariser={"kind": "l1", "strength": 0.2},
        parameters={"clip": 100.0, "steps": 40},
    )
    made = plan(job, facts("float64", rows=n, columns=d, epsilon=50.0, label="numeric"))
    x = np.c_[np.ones(n), rng.normal(size=(n, d - 1)) / 2]
    y = 0.3 + x[:, [2, 5, 7]] @ [2.0, -2.0, 1.5] + rng.normal(size=n) / 2
    w = RUNS["proximal-sgd"](made, Noiseless(made, x, y, Randomness(KEY, "")), Progress())
    assert np.flatnonzero(w).tolist() == [0, 2, 5, 7]
    assert np.sign(w[[0, 2, 5, 7]]).tolist() == [1, 1, -1, 1]
