"""Proximal SGD of losses that are not convex and of networks: sums move no further than was priced,
and the runs come to stationary points, with zeros where the regulariser wants them."""

from itertools import combinations

import numpy as np
import pytest

from service.errors import PlanRefused
from service.planning.catalog import CATALOG, plan
from service.planning.choose import choose, compare
from service.planning.plan import Plan
from tests.planning.cases import facts, spec
from tests.workers.exact import exact_sum
from tests.workers.heavy_tails import Noiseless
from tests.workers.records import KEY, MIXES, N, movement, noises, records, storages, sums, weights
from tests.workers.records import D as COLUMNS
from workers.algorithms import RUNS
from workers.data import Data
from workers.kernels.losses import exact_slope, slopes_at
from workers.progress import Progress
from workers.randomness import Randomness

NAME, D = "proximal-sgd", 9
NETWORK = {"kind": "relu_network", "width": 6}
L1 = {"kind": "l1", "strength": 0.01}
NET = {"kind": "elastic_net", "l1": 0.01, "l2": 0.02}
GROUPS = {"kind": "group_lasso", "strength": 0.01, "groups": [2, 2, 4]}
LOSSES = ["sigmoid", "savage", "welsch"]


def planned(loss, rows, epsilon=1.0, storage="fixed", columns=D, delta=None, **job) -> Plan:
    about = facts(storage, rows=rows, columns=columns, epsilon=epsilon)
    job = {"ridge": 0.0, "set": {"radius": 4.0}, **job}
    return plan(spec(NAME, epsilon, delta, loss=loss, **job), about)


def table(rows):
    """The intercept and eight columns, of which the first and the third say something of the label."""
    rng = np.random.default_rng(6)
    x = np.c_[np.full(rows, 2000), rng.integers(-1200, 1201, size=(rows, D - 1))].astype(np.int16)
    clean = 2.0 * x[:, 1] - 3.0 * x[:, 3] + 300 * rng.normal(size=rows)
    return x, np.where(clean > 0, 1.0, -1.0)


def mapping(made, x, y, w):
    """The length of the gradient mapping at w, of all rows and without noise."""
    spec_, X = made.spec, x * made.facts.feature_step
    h, eta = spec_.regulariser, made.schedule.step_size
    gradient = slopes_at(exact_slope(spec_.loss), X @ w, y) @ X / len(x) + spec_.ridge * w
    gradient = gradient + h.smooth_gradient(w, D)
    moved = spec_.set.project(h.prox(w - eta * gradient, eta, D))
    return float(np.linalg.norm(moved - w)) / eta


@storages
@noises
@pytest.mark.parametrize("loss", ["sigmoid", "ramp", "welsch"])
def test_no_exchange_moves_a_sum_beyond_its_sensitivity_and_one_comes_near(storage, noise, loss):
    clip = {"parameters": {"clip": 1.0}} if storage == "float64" else {}
    made = planned(loss, N, 1.0, storage, COLUMNS, MIXES[noise], **clip)
    pool, farthest = records(made, np.random.default_rng(5)), 0
    kind = np.int16 if storage == "fixed" else np.float64
    x, y = np.zeros((N, COLUMNS), dtype=kind), np.ones(N)
    for place, w in enumerate(weights(np.random.default_rng(5))):
        results = []
        for row, label in pool:
            x[place], y[place] = row, label
            results.append(exact_sum(sums(made, x, y), w, 0, N))
        farthest = max(farthest, *(movement(made, a, b) for a, b in combinations(results, 2)))
    sensitivity = made.lattice.release().sensitivity
    assert sensitivity / 1.5 <= farthest <= sensitivity


@storages
@noises
def test_no_exchange_moves_a_sum_over_a_network_beyond_its_sensitivity(storage, noise):
    made = planned(
        "hinge", N, 1.0, storage, COLUMNS, MIXES[noise], model=NETWORK, parameters={"clip": 0.5}
    )
    rng, farthest = np.random.default_rng(5), 0
    pool = records(made, rng)
    kind = np.int16 if storage == "fixed" else np.float64
    x, y = np.zeros((N, COLUMNS), dtype=kind), np.ones(N)
    for scale in (1.0, 30.0):
        w = rng.normal(size=made.dimension) * scale
        w[6 * COLUMNS : -1] = np.abs(w[6 * COLUMNS : -1])  # all units lean one way
        results = []
        for row, label in pool:
            x[2], y[2] = row, label
            results.append(exact_sum(sums(made, x, y), w, 0, N))
        farthest = max(farthest, *(movement(made, a, b) for a, b in combinations(results, 2)))
    sensitivity = made.lattice.release().sensitivity
    assert sensitivity / (1.5 if made.lattice.norm == "l2" else 4) <= farthest <= sensitivity


@pytest.mark.parametrize("h", [L1, NET, GROUPS], ids=lambda h: h["kind"])
@pytest.mark.parametrize("loss", LOSSES)
def test_the_gradient_mapping_is_as_short_as_the_plan_says(loss, h):
    for epsilon, kind in ((1.0, Data), (30.0, Noiseless)):
        made = planned(loss, 20_000, epsilon, regulariser=h)
        x, y = table(20_000)
        run = RUNS[NAME]
        found = [
            mapping(made, x, y, run(made, kind(made, x, y, Randomness(KEY, str(k))), Progress()))
            for k in range(3)
        ]
        assert made.schedule.output == "drawn"
        assert np.mean(found) <= made.prediction.excess_risk


@pytest.mark.parametrize("loss", ["sigmoid", "savage"])
def test_with_little_noise_a_lasso_of_a_bounded_loss_finds_the_support(loss):
    strong = {"kind": "l1", "strength": 0.006}
    made = planned(loss, 60_000, 100.0, regulariser=strong, parameters={"growth": 0.02})
    x, y = table(60_000)
    w = RUNS[NAME](made, Data(made, x, y, Randomness(KEY, "")), Progress())
    assert made.schedule.output == "last"
    assert set(np.flatnonzero(w)) - {0} == {1, 3}
    assert np.mean((x @ w > 0) == (y > 0)) > 0.9


@pytest.mark.parametrize("h", [{"kind": "none"}, L1, NET, GROUPS], ids=lambda h: h["kind"])
@pytest.mark.parametrize(("loss", "model"), [("hinge", NETWORK), ("ramp", {"kind": "linear"})])
def test_networks_and_other_corners_are_fitted_without_a_theorem(loss, model, h):
    weak = {k: v / 10 if isinstance(v, float) else v for k, v in h.items()}
    made = planned(loss, 60_000, 30.0, model=model, regulariser=weak, set="all")
    assert made.prediction.theorem.startswith("none") and made.schedule.output == "last"
    x, y = table(60_000)
    w = RUNS[NAME](made, Data(made, x, y, Randomness(KEY, "")), Progress())
    X = x * made.facts.feature_step
    if model is NETWORK:
        hidden, outer = w[: 6 * D].reshape(6, D), w[6 * D :]
        margins = np.maximum(X @ hidden.T, 0) @ outer[:-1] + outer[-1]
        assert np.abs(outer[:-1]).min() < 0.02 or h["kind"] == "none"  # units are switched off
    else:
        margins = X @ w
    assert np.mean((margins > 0) == (y > 0)) > 0.9


def test_the_bound_on_a_gradient_mapping_falls_with_the_rows():
    for loss in LOSSES:
        bounds = [planned(loss, 10**k, regulariser=L1).prediction.excess_risk for k in range(3, 9)]
        assert bounds == sorted(bounds, reverse=True) and bounds[-1] < bounds[0] / 20


def test_a_loss_that_grows_is_one_whose_ridge_is_beyond_its_weak_convexity():
    """On rows without bounds that is not known, and growth is what the analyst says."""
    weak = spec(NAME, loss="welsch").loss.scalar().weak
    for ridge, output in ((weak * 0.9, "drawn"), (weak * 1.1, "last")):
        assert planned("welsch", 1000, ridge=ridge).schedule.output == output
    assert planned("welsch", 1000, storage="float64", ridge=9.0).schedule.output == "drawn"
    given = {"growth": 0.1}
    assert planned("welsch", 1000, storage="float64", parameters=given).schedule.output == "last"


def test_auto_takes_it_where_a_theorem_stands_behind_it():
    def among(**job):
        asked = spec(NAME, **{"ridge": 0.0, "regulariser": L1, **job})
        return [c for c in compare(asked, facts(columns=D), 10**12) if c.plan is not None]

    assert choose(among(loss="sigmoid"))[0].algorithm == NAME
    assert NAME not in [c.algorithm.name for c in among(loss="ramp")]
    assert NAME not in [c.algorithm.name for c in among(loss="hinge", model=NETWORK)]
    assert NAME in [c.algorithm.name for c in among(loss="logistic", ridge=0.1)]


def test_a_convex_corner_is_refused_and_others_are_not():
    entry = CATALOG[NAME]
    assert {"sigmoid", "savage", "ramp", "welsch", "trimmed", "logistic"} <= set(
        entry.needs.takes()["losses"]
    )
    with pytest.raises(
        PlanRefused, match=r"hinge has a corner; use the loss .*, or use accelerated"
    ):
        planned("hinge", 1000, regulariser=L1, ridge=0.1)
