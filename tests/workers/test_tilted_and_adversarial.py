"""Minimisers of tilted losses and of losses under an adversary: attacked like any other, and their
gradients compared with what they are gradients of."""

from decimal import Decimal, localcontext
from math import exp

import numpy as np
import pytest

import workers.algorithms.adversarial_output_perturbation as adversarial
import workers.algorithms.tilted_output_perturbation as tilted
import workers.rows
from service.errors import PlanRefused
from service.planning.algorithms.tilted_output_perturbation import largest_share
from service.planning.catalog import plan
from service.planning.plan import Plan
from service.planning.shared import minimiser
from tests.planning.cases import facts, spec
from tests.workers.test_output_perturbation import (
    UNITS,
    exact_slope,
    farthest,
    point_of,
    random_rows,
)
from workers.data import Data
from workers.randomness import Randomness

TERM, ADV = "tilted-output-perturbation", "adversarial-output-perturbation"
SMOOTH = ("logistic", "smoothed_hinge", "squared", "huber")
LOSSES = (*SMOOTH, "hinge", "absolute")


def made_by(
    algorithm: str, n: int, d: int, loss: str = "logistic", epsilon: float = 1.0, **more
) -> Plan:
    parameters = {key: more.pop(key) for key in list(more) if key not in ("ridge", "set")}
    job = spec(algorithm, epsilon, loss=loss, parameters=parameters, **{"ridge": 0.4, **more})
    return plan(job, facts(rows=n, columns=d))


def gradient_of(made: Plan, x, y):
    data = Data(made, x, y, Randomness(bytes(32), "gradient"))
    make = tilted.tilted_gradient if made.algorithm == TERM else adversarial.robust_gradient
    return make(made, made.schedule, data)


def shape_of(made: Plan):
    shape = made.spec.loss.scalar()
    return shape if made.smoothing is None else shape.smoothed(made.smoothing.smoothness)


# --- attacks --------------------------------------------------------------------------------------

ATTACKS = [
    (TERM, "logistic", {"tilt": 0.5, "set": {"radius": 2.0}}),
    (TERM, "logistic", {"tilt": 5.0, "set": {"radius": 2.0}}),
    (TERM, "huber", {"tilt": 2.0, "set": {"radius": 1.0}, "ridge": 2.0}),
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


@pytest.mark.parametrize(("algorithm", "loss", "more"), ATTACKS)
def test_no_exchange_moves_the_point_beyond_its_sensitivity(algorithm, loss, more):
    ratios = []
    for n, d in ((2, 1), (5, 3)):
        made = made_by(algorithm, n, d, loss, steps=60, **more)
        moved = farthest(made, d, seed=n)
        assert moved <= made.schedule.sensitivity
        ratios.append(moved / made.schedule.exact_part)
    print(f"{algorithm} {loss} {more}: largest movement over the exact part {max(ratios):.4f}")
    if loss == "huber" and more.get("ridge") == 2.0:
        assert max(ratios) >= 1 / 1.5


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


def value(shape, m, y):
    """A loss in numpy, by its own formula."""
    if not shape.straight:
        return float(np.logaddexp(0.0, -y * m))
    c = shape.curvature
    low, high = (0.0, 1.0) if shape.argument == "margin" else (shape.low, shape.high)
    t = 1 - y * m if shape.argument == "margin" else m - y
    s = min(max(c * t, low), high)
    return s * t - s * s / (2 * c)


# --- the gradients are those of the objectives ----------------------------------------------------


def tilted_objective(made, x, y, w):
    shape, tilt = shape_of(made), made.schedule.tilt
    values = np.array(
        [value(shape, row @ w / UNITS, label) for row, label in zip(x, y, strict=True)]
    )
    return float(np.log(np.mean(np.exp(tilt * values))) / tilt)


def robust_objective(made, x, y, w):
    """By brute force over what an adversary can do to a margin; corners are not smoothed here."""
    shape, hostile = shape_of(made), made.schedule.adversary
    total = 0.0
    for row, label in zip(x, y, strict=True):
        m = row @ w / UNITS
        if hostile.kind == "bounded":
            reach = hostile.reach * np.linalg.norm(w, 2 if hostile.norm == "l2" else 1)
            moves = np.linspace(-reach, reach, 3)
            total += max(value(shape, m + s, label) for s in moves)
        else:
            moves = np.linspace(-1.0, 1.0, 20001)
            cost = hostile.penalty * moves**2 / (2 * (w @ w))
            total += max(value(shape, m + s, label) - c for s, c in zip(moves, cost, strict=True))
    return total / len(y)


def slopes_of(objective, made, x, y, w, h=1e-5):
    return np.array(
        [
            (objective(made, x, y, w + h * e) - objective(made, x, y, w - h * e)) / (2 * h)
            for e in np.eye(w.size)
        ]
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("tilt", [0.1, 3.0, 40.0])
def test_a_tilted_gradient_is_the_gradient_of_the_tilted_loss(loss, tilt):
    rng = np.random.default_rng(2)
    x, y = random_rows(9, 3, rng)
    made = made_by(TERM, 9, 3, loss, tilt=tilt, set={"radius": 0.9}, ridge=0.5)
    w = np.array([0.3, -0.5, 0.2])
    expected = slopes_of(tilted_objective, made, x, y, w)
    assert gradient_of(made, x, y)(w) == pytest.approx(expected, abs=3e-4)


ADVERSARIES = [
    {"perturbation": 0.3},
    {"perturbation": 0.1, "norm": "linf"},
    {"adversary": "penalised"},
]


@pytest.mark.parametrize("loss", SMOOTH)
@pytest.mark.parametrize("more", ADVERSARIES)
def test_a_robust_gradient_is_the_gradient_of_the_worst_case(loss, more):
    rng = np.random.default_rng(3)
    x, y = random_rows(7, 3, rng)
    made = made_by(ADV, 7, 3, loss, set={"radius": 0.9}, **more)
    if made.schedule.adversary.kind == "bounded":  # a sharper corner than the noise would ask for
        sharper = made.schedule.adversary.model_copy(update={"corner": 1e-7})
        schedule = made.schedule.model_copy(update={"adversary": sharper})
        made = made.model_copy(update={"schedule": schedule})
    w = np.array([0.3, -0.5, 0.2])
    expected = slopes_of(robust_objective, made, x, y, w, h=1e-4)
    assert gradient_of(made, x, y)(w) == pytest.approx(expected, abs=2e-3)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("algorithm", "more"),
    [(TERM, {"tilt": 0.3}), (TERM, {"tilt": 9.0}), *[(ADV, more) for more in ADVERSARIES]],
)
def test_gradients_are_as_monotone_lipschitz_and_bounded_as_the_plan_says(loss, algorithm, more):
    """What the contraction rests on, at random pairs of weights, close and far."""
    if more.get("adversary") == "penalised" and loss not in SMOOTH:
        return
    rng = np.random.default_rng(4)
    made = made_by(algorithm, 3, 2, loss, set={"radius": 1.0}, **more)
    schedule = made.schedule
    beta = 2 * (1 - 2.0**-20) / schedule.step_size - 2 * schedule.strong_convexity
    steepest = 0.0
    for _ in range(150):
        x, y = random_rows(3, 2, rng)
        gradient = gradient_of(made, x, y)
        a = rng.normal(size=2) * 0.5
        b = a + rng.normal(size=2) * 10.0 ** rng.uniform(-6, 0)
        a, b = (v * min(1.0, schedule.radius / np.linalg.norm(v)) for v in (a, b))
        ga, gb = gradient(a), gradient(b)
        assert (ga - gb) @ (a - b) >= -1e-14
        ratio = np.linalg.norm(ga - gb) / np.linalg.norm(a - b)
        assert ratio <= beta * (1 + 1e-6)
        steepest = max(steepest, ratio / beta)
        bound = schedule.slope_bound * bound_on_rows(made)
        assert np.linalg.norm(ga) <= bound * (1 + 1e-9)
    print(f"{algorithm} {loss} {more}: steepest over beta {steepest:.3f}")


def bound_on_rows(made: Plan) -> float:
    hostile, d = made.schedule.adversary, made.dimension
    if hostile is None:
        return made.facts.l2
    if hostile.kind == "bounded":
        return made.facts.l2 + hostile.reach * (1 if hostile.norm == "l2" else d**0.5)
    return made.facts.l2 + made.schedule.slope_bound * made.spec.set.radius / hostile.penalty


# --- rounding: against 60 digits ------------------------------------------------------------------


def exact_value(shape, m, y, slope):
    if not shape.straight:
        return (1 + (-y * m).exp()).ln()
    t = 1 - y * m if shape.argument == "margin" else m - y
    s = abs(slope) if shape.argument == "margin" else slope
    return s * (t - s / (2 * Decimal(shape.curvature)))


def exact_gradient(made, x, y, w):
    unit, schedule, shape = Decimal(made.facts.feature_step), made.schedule, shape_of(made)
    bound, n = schedule.slope_bound, Decimal(len(y))
    w = [Decimal(float(v)) for v in w]
    rows = [[unit * v for v in row] for row in x.tolist()]
    margins = [sum((a * b for a, b in zip(row, w, strict=True)), Decimal(0)) for row in rows]
    labels = [Decimal(v) for v in y.tolist()]

    def mean(factors, divisor):
        return [
            sum((f * row[j] for f, row in zip(factors, rows, strict=True)), Decimal(0)) / divisor
            for j in range(len(w))
        ]

    hostile = schedule.adversary
    if hostile is None:
        slopes = [exact_slope(shape, bound, m, v) for m, v in zip(margins, labels, strict=True)]
        weights = [
            (Decimal(schedule.tilt) * exact_value(shape, m, v, s)).exp()
            for m, v, s in zip(margins, labels, slopes, strict=True)
        ]
        return mean([p * s for p, s in zip(weights, slopes, strict=True)], sum(weights))
    if hostile.kind == "penalised":
        give = sum(a * a for a in w) / Decimal(hostile.penalty)
        slopes = []
        for m, v in zip(margins, labels, strict=True):
            slope = exact_slope(shape, bound, m, v)
            for _ in range(100):
                slope = exact_slope(shape, bound, m + give * slope, v)
            slopes.append(slope)
        extra = sum(s * s for s in slopes) / n / Decimal(hostile.penalty)
        return [g + extra * a for g, a in zip(mean(slopes, n), w, strict=True)]
    square = Decimal(hostile.corner) ** 2
    reach = Decimal(hostile.reach)
    if hostile.norm == "l2":
        roots = [(sum(a * a for a in w) + square).sqrt()] * len(w)
        shift = reach * roots[0]
    else:
        roots = [(a * a + square).sqrt() for a in w]
        shift = reach * sum(roots)
    slopes, sizes = [], []
    for m, v in zip(margins, labels, strict=True):
        if shape.argument == "residual":
            size = ((m - v) ** 2 + square).sqrt()
            slope = exact_slope(shape, bound, size + shift, Decimal(0))
            slopes.append(slope * (m - v) / size)
            sizes.append(slope)
        else:
            slopes.append(exact_slope(shape, bound, m - v * shift, v))
            sizes.append(abs(slopes[-1]))
    extra = sum(sizes) / n * reach
    return [g + extra * a / root for g, a, root in zip(mean(slopes, n), w, roots, strict=True)]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    ("algorithm", "more"),
    [(TERM, {"tilt": 0.3}), (TERM, {"tilt": 30.0}), *[(ADV, more) for more in ADVERSARIES]],
)
def test_a_computed_gradient_errs_at_most_as_planned(loss, algorithm, more, monkeypatch):
    if more.get("adversary") == "penalised" and loss not in SMOOTH:
        return
    for module in (tilted, adversarial):
        monkeypatch.setattr(module, "block_rows", lambda columns: minimiser.GROUP)
    rng = np.random.default_rng(5)
    planned = []
    descent = minimiser.descent
    monkeypatch.setattr(
        minimiser, "descent", lambda o, *rest: planned.append(o) or descent(o, *rest)
    )
    worst = 0.0
    with localcontext(prec=60):
        for n, d, radius in ((2, 1, 3.0), (5, 9, 0.5), (280, 3, 2.0)):
            # at such an epsilon no tilt is to blame for the noise, so none is refused
            made = made_by(algorithm, n, d, loss, 1e-3, set={"radius": radius}, ridge=0.3, **more)
            x, y = random_rows(n, d, rng)
            gradient = gradient_of(made, x, y)
            for size in (0.0, 0.6, 1.0):
                w = rng.normal(size=d)
                w *= size * made.schedule.radius / np.linalg.norm(w)
                exact = exact_gradient(made, x, y, w)
                error = sum(
                    (Decimal(float(a)) - b) ** 2 for a, b in zip(gradient(w), exact, strict=True)
                )
                bound = planned[-1].error
                assert float(error.sqrt()) <= bound
                worst = max(worst, float(error.sqrt()) / bound)
    print(f"{algorithm} {loss} {more}: largest error over its bound {worst:.4f}")


# --- limits, threads, refusals --------------------------------------------------------------------


def test_a_small_tilt_is_the_mean_and_a_large_one_the_worst_record():
    rng = np.random.default_rng(6)
    x, y = random_rows(40, 2, rng)
    little = made_by(TERM, 40, 2, "huber", tilt=1e-6, set={"radius": 1.0}, steps=300)
    plain = made_by("output-perturbation", 40, 2, "huber", set={"radius": 1.0}, steps=300)
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
