"""Losses of one margin: kernels and constants against the definitions."""

from itertools import product
from math import exp, inf, isnan, log1p

import numpy as np
import pytest

from service.errors import PlanRefused
from service.planning.catalog import CATALOG, plan
from service.planning.loss import SHARP
from service.planning.losses import LOSSES as ALL
from service.planning.problem import is_convex
from service.planning.spec import JobSpec
from tests.depth import FULL
from tests.planning.cases import facts, spec
from workers.kernels import shapes
from workers.kernels.ball import ball_marginal
from workers.kernels.losses import (
    as_slope,
    bent32,
    choices,
    codes_of,
    derivative64,
    exact_slope,
    straight32,
    value64,
)
from workers.losses import KERNELS

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
REACH = 4.0
CONVEX_ONLY = [
    name
    for name, e in CATALOG.items()
    if not (e.nonconvex or e.certifies or e.needs.summaries)  # these fit no loss
]
MARGINS = np.linspace(-REACH, REACH, 1601) + 1e-5  # beside the corners


def asked(loss):
    return JobSpec(dataset="d", algorithm="a", loss=loss, privacy={"epsilon": 1.0}).loss


def kind_of(loss):
    return asked(loss).kind


NAMES = [kind_of(loss) for loss, _, _ in LOSSES]
BENT = [loss for loss, _, _ in LOSSES if KERNELS[kind_of(loss)].loop == shapes.BENT]
NOT_CONVEX = [loss for loss, _, _ in LOSSES if not asked(loss).convex]


def labels_of(kind):
    return (-1.0, 1.0) if kind == "binary" else (-0.75, 0.0, 0.5, 1.0)


@pytest.mark.parametrize(("loss", "value", "label"), LOSSES, ids=NAMES)
def test_value_and_slope_are_those_of_the_definition(loss, value, label):
    slope = exact_slope(asked(loss))
    for y in labels_of(label):
        for m in MARGINS:
            bend = derivative64(slope, m, y)
            assert value64(slope, m, y, bend) == pytest.approx(value(m, y), abs=1e-12)
            numeric = (value(m + 1e-7, y) - value(m - 1e-7, y)) / 2e-7
            assert bend == pytest.approx(numeric, abs=1e-6)


@pytest.mark.parametrize(("loss", "value", "label"), LOSSES, ids=NAMES)
def test_the_constants_hold_and_are_reached(loss, value, label):
    shape = asked(loss).scalar()
    slope, steps = exact_slope(asked(loss)), np.diff(MARGINS)
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


@pytest.mark.parametrize("loss", BENT, ids=kind_of)
def test_the_short_slope_is_right_to_twenty_bits(loss):
    slope = exact_slope(asked(loss))
    for y in (-1.0, 1.0):
        for m in np.float32(MARGINS):
            short = bent32(slope.code, slope.line, m, np.float32(y))
            assert short == pytest.approx(derivative64(slope, np.float64(m), y), abs=2**-20)


@pytest.mark.parametrize("loss", NOT_CONVEX, ids=kind_of)
def test_far_margins_have_a_slope_or_none_but_no_surprise(loss):
    slope = exact_slope(asked(loss))
    assert isinstance(slope, shapes.BENT)
    for m in (1e18, -1e18, 1e30, -1e30):
        for y in (-1.0, 1.0):
            short = bent32(slope.code, slope.line, np.float32(m), np.float32(y))
            long = derivative64(slope, m, y)
            if loss == "phase_retrieval":
                assert long == 2 * m and short == np.float32(2 * np.float32(m))
            else:
                assert long == 0 and abs(short) < 1e-3


@pytest.mark.parametrize("name", CONVEX_ONLY)
@pytest.mark.parametrize("loss", NOT_CONVEX, ids=kind_of)
def test_an_algorithm_for_convex_losses_refuses_this_one(name, loss):
    job = spec(name, loss=loss)
    assert not is_convex(job)
    with pytest.raises(PlanRefused, match="needs a convex loss"):
        plan(job, facts())


def test_no_envelope_is_claimed_for_a_loss_that_is_not_convex():
    with pytest.raises(TypeError):
        asked("sigmoid").scalar().smoothed(0.01)
    hinge = exact_slope(asked("hinge"))
    assert straight32(hinge.code, hinge.line, np.float32(0.0), np.float32(1.0)) == -1


# --- a code is only a number ------------------------------------------------------------------------


def orders():
    """The kernels as the list has them, from the last to the first, and with the halves exchanged."""
    kernels = list(KERNELS.values())
    half = len(kernels) // 2
    return {"as listed": kernels, "reversed": kernels[::-1], "cut": kernels[half:] + kernels[:half]}


def ball_slope(kernel, loss):
    """As `slope_of` makes it, for a ball over which margins move by up to 0.8."""
    _, table, means = ball_marginal(9)
    slope = as_slope(kernel.averaged, loss.scalar())
    line = slope.line._replace(curvature=1 / 0.8)
    return slope._replace(straight=False, line=line, table=table, means=means)


@pytest.mark.parametrize("order", orders() if FULL else ["reversed"])
def test_the_order_of_the_list_changes_no_slope(order):
    """Chosen by codes in this order, or called as it is: the same to the last bit."""
    codes = codes_of(orders()[order])
    assert sorted(codes.values()) == list(range(len(codes)))
    chosen = choices(codes)
    long = {
        shapes.EXPONENTIAL: chosen.convex64,
        shapes.STRAIGHT: chosen.convex64,
        shapes.BENT: chosen.bent64,
        shapes.AVERAGED32: chosen.averaged32_64,
        shapes.AVERAGED64: chosen.averaged64,
    }
    short = {
        shapes.EXPONENTIAL: chosen.exponential32,
        shapes.STRAIGHT: chosen.straight32,
        shapes.BENT: chosen.bent32,
        shapes.AVERAGED32: chosen.averaged32,
    }
    for loss in (kind() for kind in ALL if kind.margin):
        kernel = KERNELS[loss.kind]
        exact = as_slope(kernel, loss.scalar())
        parts = [(kernel, exact, exact.line)]
        if not loss.smooth:  # only a corner is averaged over a ball
            parts.append((kernel.averaged, *[ball_slope(kernel, loss)] * 2))
        for (part, slope, about), m, y in product(parts, (-30.0, -1.5, 0.0, 0.4, 1.7), (-1.0, 0.5)):
            code, there = codes[part], part.slope64(about, m, y)
            assert long[part.loop](code, about, m, y) == there, loss.kind
            assert derivative64(slope, m, y) == there, loss.kind
            if part.slope32 is not None:
                found = short[part.loop](code, about, np.float32(m), np.float32(y))
                assert found == part.slope32(about, np.float32(m), np.float32(y)), loss.kind
            value = chosen.value64(code, slope.line, m, y, there)
            if part.value64 is None:
                assert isnan(value)
            else:
                assert value == part.value64(slope.line, m, y, there), loss.kind


def test_the_slopes_of_two_losses_are_told_apart():
    """The test above would notice a code that is taken for another."""
    found = {
        kind: tuple(derivative64(exact_slope(asked(kind)), m, 0.5) for m in (-1.5, 0.3, 0.9))
        for kind in ("logistic", "hinge", "squared", "sigmoid", "savage", "ramp", "phase_retrieval")
    }
    assert len(set(found.values())) == len(found)
