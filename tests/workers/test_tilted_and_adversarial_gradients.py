"""The gradients of tilted losses and of losses under an adversary, compared with what they are
gradients of, and with 60 digits."""

from decimal import Decimal, localcontext

import numpy as np
import pytest

import workers.algorithms.adversarial_output_perturbation as adversarial
import workers.algorithms.tilted_output_perturbation as tilted
from service.planning.plan import Plan
from service.planning.shared import minimiser
from tests.workers.minimisers import (
    UNITS,
    exact_slope,
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
