"""Minimisers of tilted losses and of losses under an adversary: attacked like any other; their limits,
threads and refusals."""

import inspect
from math import exp

import numpy as np
import pytest

import workers.algorithms.adversarial_output_perturbation as adversarial
import workers.algorithms.tilted_output_perturbation as tilted
import workers.rows
from service.errors import PlanRefused
from service.planning.algorithms.tilted_output_perturbation import largest_share
from service.planning.catalog import plan
from service.planning.shared import averaged, minimiser
from tests.planning.cases import facts, spec
from tests.workers.minimisers import (
    UNITS,
    farthest,
    point_of,
    random_rows,
)
from tests.workers.tilted_and_adversarial import (
    ADV,
    ADVERSARIES,
    LOSSES,
    SMOOTH,
    TERM,
    gradient_of,
    made_by,
    shape_of,
    value,
)
from workers.arrays import read_only
from workers.kernels.steps import Steps

# --- attacks --------------------------------------------------------------------------------------


DESCENT = {"solver": "gradient-descent", "steps": 300}
SOLVERS = ("gradient-descent", "averaged-passes", "accelerated")
ATTACKS = [
    (TERM, "logistic", {"tilt": 0.5, "set": {"radius": 2.0}}),
    (TERM, "logistic", {"tilt": 5.0, "set": {"radius": 2.0}}),
    (TERM, "huber", {"tilt": 2.0, "set": {"radius": 1.0}, "ridge": 2.0}),
    (TERM, "huber", {"tilt": 0.05, "set": {"radius": 1.0}, "ridge": 2.0}),
    (TERM, "hinge", {"tilt": 1.0, "set": {"radius": 1.0}}),
    (TERM, "squared", {"tilt": 0.3, "set": {"radius": 1.0}}),
    (TERM, "absolute", {"tilt": 3.0, "set": {"radius": 1.0}, "ridge": 0.0}),
    *[(ADV, loss, {"perturbation": 0.2, "set": {"radius": 1.0}}) for loss in LOSSES],
    (ADV, "huber", {"perturbation": 0.01, "set": {"radius": 1.0}, "ridge": 2.0}),
    (ADV, "logistic", {"perturbation": 0.2, "norm": "linf", "set": "all"}),
    (ADV, "huber", {"perturbation": 0.01, "norm": "linf", "ridge": 2.0}),
    (ADV, "absolute", {"perturbation": 0.3, "ridge": 0.0, "set": {"radius": 1.0}}),
    *[(ADV, loss, {"adversary": "penalised", "set": {"radius": 1.0}}) for loss in SMOOTH],
    (ADV, "huber", {"adversary": "penalised", "set": {"radius": 0.5}, "ridge": 2.0}),
]


def attacks():
    for algorithm, loss, more in ATTACKS:
        for solver in SOLVERS:
            if solver == "accelerated" and more.get("adversary") == "penalised":
                continue
            yield algorithm, loss, more | {"solver": solver}


@pytest.mark.parametrize(("algorithm", "loss", "more"), [*attacks()])
def test_no_exchange_moves_the_point_beyond_its_sensitivity(algorithm, loss, more):
    ratios = []
    for n, d in ((2, 1), (5, 3)):
        made = made_by(algorithm, n, d, loss, steps=60, **more)
        moved = farthest(made, d, seed=n)
        assert moved <= made.schedule.sensitivity
        ratios.append(moved / made.schedule.exact_part)
    print(f"{algorithm} {loss} {more}: largest movement over the exact part {max(ratios):.4f}")
    # levels cost more the heavier the tilt, and are chosen by what they cost
    loose = more["solver"] == "averaged-passes" and more.get("tilt") == 2.0
    if loss == "huber" and more.get("ridge") == 2.0 and not loose:
        assert max(ratios) >= 1 / 1.5


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("tilt", [0.01, 0.5])
def test_steps_in_weights_and_level_shrink_distances_and_an_exchange_adds_what_was_planned(
    loss, tilt, monkeypatch
):
    planned = []
    made_by_passes = averaged.averaged_sgd
    monkeypatch.setattr(
        averaged, "averaged_sgd", lambda o, pace: planned.append(o) or made_by_passes(o, pace)
    )
    n, size = 5000, 1.5
    made = made_by(
        TERM,
        n,
        2,
        loss,
        10.0,
        tilt=tilt,
        set={"radius": size},
        ridge=0.05,
        solver="averaged-passes",
    )
    o, schedule, rng = planned[-1], made.schedule, np.random.default_rng(1)
    one_pass, width = tilted.averaged(made, schedule), schedule.level.width
    steps = Steps(1, schedule.step_size, schedule.strong_convexity, schedule.radius)

    def stepped(w, v, row, label):
        """Passes share their level: it is set by a step of the kernel's own."""
        inside = inspect.getclosurevars(one_pass).nonlocals["v"]
        inside[0], after = v, w.copy()
        x, y = read_only(row[None, :]), read_only(np.array([label]))
        one_pass(after, np.zeros(2), x, y, np.zeros(1, dtype=np.int64), steps)
        return np.append(after, inside[0])

    shrunk = added = 0.0
    for _ in range(400):
        near = rng.choice([1.0, 1e-3])
        w = rng.normal(size=(2, 2))
        w *= size * rng.uniform(size=(2, 1)) ** 0.3 / np.linalg.norm(w, axis=1, keepdims=True)
        w[1] = w[0] + near * (w[1] - w[0])
        v = width * rng.uniform(size=2)
        v[1] = v[0] + near * (v[1] - v[0])
        rows, labels = random_rows(2, 2, rng)
        a = stepped(w[0], v[0], rows[0], labels[0])
        apart = np.hypot(np.linalg.norm(w[0] - w[1]), v[0] - v[1])
        moved = np.linalg.norm(a - stepped(w[1], v[1], rows[0], labels[0]))
        shrunk = max(shrunk, moved / apart)
        added = max(added, np.linalg.norm(a - stepped(w[0], v[0], rows[1], labels[1])))
    assert shrunk <= 1 - schedule.step_size * o.strong + 1e-9
    assert added <= schedule.step_size * n * o.change * (1 + 1e-9)
    if tilt == 0.01 and loss not in ("squared", "logistic"):  # whose worst pairs are rare
        assert added >= schedule.step_size * n * o.change / 1.5


@pytest.mark.parametrize("tilt", [0.2, 2.0, 20.0])
def test_no_exchange_changes_a_tilted_gradient_by_more_than_the_largest_share(tilt):
    """One record at the largest loss among records at the smallest: it holds the share itself, and
    exchanged for its mirror image it moves the gradient by all of it."""
    n = 6
    made = made_by(TERM, n, 1, "logistic", tilt=tilt, set={"radius": 3.0}, ridge=0.05, steps=3)
    w = np.array([made.schedule.radius])
    share = largest_share(tilt * 3.0 * (1 + 1e-9), n)
    changes = []
    rng = np.random.default_rng(1)
    for _ in range(200):
        x = np.trunc(rng.uniform(-1, 1, (n, 1)) * UNITS).astype(np.int16)
        x[1:] = UNITS if rng.integers(2) else x[1:]
        y = rng.choice([-1.0, 1.0], n) if rng.integers(2) else np.ones(n)
        there_x, there_y = x.copy(), y.copy()
        x[0], y[0] = UNITS, -1.0
        if rng.integers(2):
            there_x[0], there_y[0] = -UNITS, 1.0
        changes.append(
            abs(gradient_of(made, x, y)(w)[0] - gradient_of(made, there_x, there_y)(w)[0])
        )
    assert max(changes) <= 2 * share
    assert max(changes) >= 0.45 * share  # the others' gradients are small where their losses are


@pytest.mark.parametrize(
    ("loss", "more"),
    [
        *[(loss, {"perturbation": r}) for loss in LOSSES for r in (0.05, 0.6)],
        ("logistic", {"perturbation": 3.0}),
        ("absolute", {"perturbation": 0.4, "norm": "linf"}),
        ("logistic", {"perturbation": 2.0, "norm": "linf"}),
        *[(loss, {"adversary": "penalised"}) for loss in SMOOTH],
        ("huber", {"adversary": "penalised", "penalty": 1e6}),
    ],
)
def test_no_exchange_changes_a_robust_gradient_by_more_than_planned_and_the_worst_nearly_by_that(
    loss, more, monkeypatch
):
    """Every pair of records of a grid, of full length and of less, at points of every size. Of the
    losses that grow without end the worst slope is the set's, which few residuals have."""
    planned, descent = [], minimiser.descent
    monkeypatch.setattr(
        minimiser, "descent", lambda o, *rest: planned.append(o) or descent(o, *rest)
    )
    n = 400  # times the same record: smoothing is then hardly any
    made = made_by(ADV, n, 2, loss, 10.0, set={"radius": 8.0}, ridge=0.01, **more)
    angles = np.linspace(0, 2 * np.pi, 16, endpoint=False)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    rows = np.trunc(np.concatenate([circle, circle / 3, [[0.0, 0.0]]]) * UNITS).astype(np.int16)
    worst = 0.0
    for size in (0.0, 0.3, 2.0, made.schedule.radius):
        w = size * np.array([np.cos(0.4), np.sin(0.4)])
        found = np.array(
            [
                gradient_of(made, np.tile(row, (n, 1)), np.full(n, label))(w)
                for row in rows
                for label in (-1.0, 1.0)
            ]
        )
        worst = max(worst, np.linalg.norm(found[:, None] - found, axis=-1).max())
    bound = n * planned[-1].change
    print(f"{loss} {more}: the worst exchange over the bound {worst / bound:.4f}")
    assert worst <= bound * (1 + 1e-9)
    assert worst >= bound / (4 if more.get("perturbation", 0) > 1 or loss == "squared" else 1.5)


@pytest.mark.parametrize("loss", LOSSES)
def test_the_spread_of_losses_is_never_exceeded(loss):
    for margin in (0.01, 0.7, 1.0, 30.0):
        asked = spec(TERM, loss=loss).loss
        shape = asked.scalar()
        bound = asked.difference(margin, shape.lipschitz(margin))
        for smoothness in (0.1, 3.0, 1e3):
            shape_there = shape.smoothed(smoothness) if shape.straight else shape
            values = [
                value(shape_there, m, y)
                for m in np.linspace(-margin, margin, 41)
                for y in ((-1.0, 1.0) if shape.argument != "residual" else (-1.0, 0.0, 0.5, 1.0))
            ]
            assert max(values) - min(values) <= bound * (1 + 1e-12)


# --- limits, threads, refusals --------------------------------------------------------------------


def test_a_small_tilt_is_the_mean_and_a_large_one_the_worst_record():
    rng = np.random.default_rng(6)
    x, y = random_rows(40, 2, rng)
    little = made_by(TERM, 40, 2, "huber", tilt=1e-6, set={"radius": 1.0}, **DESCENT)
    descent = {"solver": "gradient-descent", "steps": 300}
    plain = made_by("output-perturbation", 40, 2, "huber", set={"radius": 1.0}, **descent)
    assert little.schedule.exact_part == pytest.approx(plain.schedule.exact_part, rel=1e-4)
    assert point_of(little, x, y) == pytest.approx(point_of(plain, x, y), abs=1e-5)
    much = made_by(TERM, 40, 2, "huber", 1e-3, tilt=1e4, set={"radius": 1.0}, steps=10)
    L, change = 0.1, 2 * 0.1
    assert largest_share(1e4, 40) == 1.0
    assert much.schedule.exact_part <= change / 0.4 and much.schedule.slope_bound == L
    w = np.array([0.1, 0.2])
    losses = [value(shape_of(much), row @ w / UNITS, v) for row, v in zip(x, y, strict=True)]
    worst = int(np.argmax(losses))
    m = x[worst] @ w / UNITS
    assert gradient_of(much, x, y)(w) == pytest.approx(
        np.clip(m - y[worst], -0.1, 0.1) * x[worst] / UNITS, abs=1e-2
    )


def test_a_tilt_that_drowns_the_minimiser_is_refused_with_one_that_does_not():
    about = facts()
    with pytest.raises(PlanRefused) as caught:
        plan(spec(TERM, parameters={"tilt": 1.0}), about)
    offered = float(caught.value.detail.split("at most ")[1].split(" ")[0])
    made = plan(spec(TERM, parameters={"tilt": offered}), about)
    assert made.prediction.noise_squared <= made.schedule.radius**2 * 1.01
    share = largest_share(offered * 10.0, 1000)
    assert share == pytest.approx(exp(offered * 10) / (exp(offered * 10) + 999), rel=1e-9)


@pytest.mark.parametrize(
    ("more", "says", "works"),
    [
        ({"loss": "pinball"}, "use absolute or huber", {"loss": "absolute"}),
        (
            {"loss": "hinge", "parameters": {"adversary": "penalised"}},
            "smoothed_hinge for hinge",
            {"loss": "smoothed_hinge", "parameters": {"adversary": "penalised"}},
        ),
        (
            {"set": "all", "parameters": {"adversary": "penalised"}},
            "use the set l2_ball",
            {"set": "l2_ball", "parameters": {"adversary": "penalised"}},
        ),
        (
            {"parameters": {"adversary": "penalised", "penalty": 99.0}},
            "at least 100.0001",
            {"parameters": {"adversary": "penalised", "penalty": 100.0001}},
        ),
    ],
)
def test_an_adversary_that_cannot_be_is_refused_with_one_that_can(more, says, works):
    with pytest.raises(PlanRefused) as caught:
        plan(spec(ADV, **more), facts())
    assert says in caught.value.detail
    assert plan(spec(ADV, **works), facts()).schedule.adversary is not None


@pytest.mark.parametrize(
    ("algorithm", "more"), [(TERM, {"tilt": 0.1}), *[(ADV, more) for more in ADVERSARIES]]
)
def test_any_number_of_threads_gives_the_same_bits(algorithm, more, monkeypatch):
    rng = np.random.default_rng(9)
    x, y = random_rows(3000, 5, rng)
    made = made_by(algorithm, 3000, 5, steps=4, **more)
    for module in (tilted, adversarial):
        monkeypatch.setattr(module, "block_rows", lambda columns: minimiser.GROUP)
    points = []
    for threads in (1, 2):
        monkeypatch.setattr(workers.rows, "thread_count", lambda threads=threads: threads)
        points.append(point_of(made, x, y))
    assert np.array_equal(*points) and np.abs(points[0]).max() > 0
