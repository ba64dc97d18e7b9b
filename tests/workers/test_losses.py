"""Losses of one margin: kernels and constants against the definitions."""

from math import exp, inf, log1p

import numpy as np
import pytest

from service.errors import PlanRefused
from service.planning.catalog import CATALOG, plan
from service.planning.losses import SHARP, is_convex, scalar
from service.planning.spec import JobSpec
from tests.planning.cases import facts, spec
from workers.kernels.losses import SIGMOID, as_slope, bent32, derivative32, derivative64, value64

# a loss, its value at (m, y), its labels
LOSSES = [
    ("logistic", lambda m, y: log1p(exp(-y * m)), "binary"),
    ("hinge", lambda m, y: max(0.0, 1 - y * m), "binary"),
    ("squared", lambda m, y: (m - y) ** 2 / 2, "numeric"),
    ("absolute", lambda m, y: abs(m - y), "numeric"),
    ("sigmoid", lambda m, y: 1 / (1 + exp(y * m)), "binary"),
    ("savage", lambda m, y: 1 / (1 + exp(y * m)) ** 2, "binary"),
    ("ramp", lambda m, y: min(2.0, max(0.0, 1 - y * m)), "binary"),
    (
        {"kind": "welsch", "scale": 0.7},
        lambda m, y: 0.245 * (1 - exp(-(((m - y) / 0.7) ** 2))),
        None,
    ),
    ({"kind": "trimmed", "threshold": 0.6}, lambda m, y: min((m - y) ** 2, 0.36) / 2, "numeric"),
    ("phase_retrieval", lambda m, y: abs(m * m - y), "numeric"),
]
NAMES = [loss if isinstance(loss, str) else loss["kind"] for loss, _, _ in LOSSES]
BENT = [loss for loss, _, _ in LOSSES[4:]]
REACH = 4.0
CONVEX_ONLY = [name for name, e in CATALOG.items() if not (e.nonconvex or e.certifies)]
MARGINS = np.linspace(-REACH, REACH, 1601) + 1e-5  # beside the corners


def shape_of(loss):
    return scalar(JobSpec(dataset="d", algorithm="a", loss=loss, privacy={"epsilon": 1.0}).loss)


def labels_of(kind):
    return (-1.0, 1.0) if kind == "binary" else (-0.75, 0.0, 0.5, 1.0)


@pytest.mark.parametrize(("loss", "value", "label"), LOSSES, ids=NAMES)
def test_value_and_slope_are_those_of_the_definition(loss, value, label):
    slope = as_slope(shape_of(loss))
    for y in labels_of(label):
        for m in MARGINS:
            bend = derivative64(slope, m, y)
            assert value64(slope, m, y, bend) == pytest.approx(value(m, y), abs=1e-12)
            numeric = (value(m + 1e-7, y) - value(m - 1e-7, y)) / 2e-7
            assert bend == pytest.approx(numeric, abs=1e-6)


@pytest.mark.parametrize(("loss", "value", "label"), LOSSES, ids=NAMES)
def test_the_constants_hold_and_are_reached(loss, value, label):
    shape = shape_of(loss)
    slope, steps = as_slope(shape), np.diff(MARGINS)
    largest, bends = 0.0, []
    for y in labels_of(label):
        slopes = np.array([derivative64(slope, m, y) for m in MARGINS])
        largest = max(largest, np.abs(slopes).max())
        bends.append(np.diff(slopes) / steps)
    bends = np.concatenate(bends)
    bound = shape.lipschitz(np.abs(MARGINS).max())
    assert 0.9 * bound <= largest <= bound * (1 + 1e-9)
    if shape.curvature < SHARP:
        assert 0.9 * shape.curvature <= np.abs(bends).max() <= shape.curvature * (1 + 1e-9)
    if shape.weak < inf:
        assert bends.min() >= -shape.weak * (1 + 1e-9)
        assert shape.weak == 0 or bends.min() <= -0.9 * shape.weak
    else:
        assert bends.min() < -50  # a corner that points up


@pytest.mark.parametrize("loss", BENT, ids=NAMES[4:])
def test_the_short_slope_is_right_to_twenty_bits(loss):
    slope = as_slope(shape_of(loss))
    for y in (-1.0, 1.0):
        for m in np.float32(MARGINS):
            short = bent32(slope, m, np.float32(y))
            assert short == pytest.approx(derivative64(slope, np.float64(m), y), abs=2**-20)


@pytest.mark.parametrize("loss", BENT, ids=NAMES[4:])
def test_far_margins_have_a_slope_or_none_but_no_surprise(loss):
    slope = as_slope(shape_of(loss))
    assert slope.code >= SIGMOID
    for m in (1e18, -1e18, 1e30, -1e30):
        for y in (-1.0, 1.0):
            long, short = derivative64(slope, m, y), bent32(slope, np.float32(m), np.float32(y))
            if loss == "phase_retrieval":
                assert long == 2 * m and short == np.float32(2 * np.float32(m))
            else:
                assert long == 0 and abs(short) < 1e-3


@pytest.mark.parametrize("name", CONVEX_ONLY)
@pytest.mark.parametrize("loss", BENT, ids=NAMES[4:])
def test_an_algorithm_for_convex_losses_refuses_this_one(name, loss):
    asked = spec(name, loss=loss)
    assert not is_convex(asked)
    with pytest.raises(PlanRefused, match="needs a convex loss"):
        plan(asked, facts())


def test_no_envelope_is_claimed_for_a_loss_that_is_not_convex():
    with pytest.raises(TypeError):
        shape_of("sigmoid").smoothed(0.01)
    assert derivative32(as_slope(shape_of("hinge")), np.float32(0.0), np.float32(1.0)) == -1
