"""Phased SGD as the paper prints it would not do; as it is run here, it does."""

from itertools import pairwise
from math import log, sqrt

import numpy as np
import pytest
from mpmath import mpf
from scipy.optimize import minimize_scalar

from service.planning.catalog import plan
from service.planning.loss import Scalar
from service.planning.price import price_units
from service.planning.releases import Sequence
from service.planning.spec import JobSpec
from tests.planning.cases import facts, spec
from tests.workers.phased import JOBS, NAME, UNIT, Bare, D, exact_slope, made_for, means, phases_of
from workers.algorithms import RUNS
from workers.arrays import read_only
from workers.kernels.losses import as_slope, slope_of
from workers.kernels.shapes import MARGIN
from workers.kernels.trajectory import descend
from workers.progress import Progress


@pytest.mark.parametrize("rows", [2, 3, 8, 100, 1023, 1024])
def test_phases_share_no_row_and_printed_ones_do(rows):
    made = made_for(rows, **JOBS["hinge"])
    ranges = [positions for positions, _ in phases_of(made)]
    seen = [i for positions in ranges for i in positions]
    assert len(seen) == len(set(seen)) == rows - rows.bit_count() and max(seen) < rows
    guarded = Bare(made, np.zeros((rows, D), dtype=np.int16), np.ones(rows), [np.zeros(D)])
    RUNS[NAME](made, guarded, Progress())
    assert guarded.rows == ranges
    printed = [range(r.start, r.stop + 1) for r in ranges]  # z_s, ..., z_{s+T_k}
    for one, following in pairwise(printed):
        (shared,) = set(one) & set(following)
        twice = Sequence(parts=(made.lattice.release(),) * 2)
        assert price_units(twice, made.facts.account) > made.price.units
        assert shared == following.start


def test_the_attained_movement_is_half_of_the_printed_one_and_twice_a_one_record_bound():
    """4 L0 R eta pays for a movement that no pair of records makes; L0 R eta would be exceeded."""
    made = made_for(8, **JOBS["hinge"])
    _, sensitivity = phases_of(made)[0]
    eta = made.schedule.phases[0].step_size
    x, y = np.zeros((8, D)), np.ones(8)
    x[0, 0] = UNIT
    moved = np.linalg.norm(means(made, x, y, np.zeros(D))[0] - means(made, -x, y, np.zeros(D))[0])
    assert moved == pytest.approx(2 * eta, rel=1e-9) and moved <= sensitivity < 2.0001 * eta
    assert moved > 1.9 * eta and 4 * eta > 1.9 * sensitivity
    delta, epsilon = made.guarantee.delta, made.guarantee.epsilon
    printed = 4 * eta / (epsilon / (2 * sqrt(log(1 / delta))))
    assert made.prediction.paper_noise == pytest.approx(printed, rel=1e-5)
    assert made.prediction.our_noise < printed


def printed_beta_and_eta(n: int, D: float) -> tuple[float, float]:
    """Theorem 6 for L0 = R = 1, d small: beta = sqrt(n), eta = D/(3 sqrt(n)); the first phase's."""
    return sqrt(n), D / (3 * sqrt(n)) / 4


@pytest.mark.parametrize("radius", [1.0, 10.0, 1000.0])
def test_the_step_condition_holds_for_any_radius_and_the_printed_one_fails(radius):
    n = 10**4
    made = plan(spec(NAME, 100.0, loss="hinge", set={"radius": radius}), facts(rows=n, columns=1))
    b = made.spec.loss.scalar().smoothed(made.smoothing.smoothness).curvature
    assert made.schedule.phases[0].step_size * b <= 2
    beta, eta = printed_beta_and_eta(n, 2 * radius)
    assert (eta * beta <= 2) == (radius < 12)

    def spread(curvature, step, edge):
        """How far one step brings two points near the envelope's corner apart, as a multiple."""
        loss, ends = as_slope(MARGIN, Scalar("margin", curvature)), []
        x, y = read_only(np.array([[UNIT]], dtype=np.int16)), read_only(np.ones(1))
        for w in (edge - 1e-4, edge):
            v = np.array([w])
            f = descend(v, np.zeros(1), 1.0, 0.0, x, y, 1 / UNIT, loss, 1.0, 0.0, step, radius)
            ends.append(f * v[0])
        return abs(ends[1] - ends[0]) / 1e-4

    assert spread(b, made.schedule.phases[0].step_size, 1.0) <= 1 + 1e-9
    if radius > 12:
        assert spread(beta, eta, 1.0) > 2  # so a replaced record's trace would grow


LOSSES = {
    "hinge": ("hinge", lambda m, y: max(0.0, 1 - y * m)),
    "smoothed_hinge": (
        {"kind": "smoothed_hinge", "width": 0.5},
        lambda m, y: 0.0 if y * m >= 1 else (1 - y * m) ** 2 if y * m > 0.5 else 0.25 + 0.5 - y * m,
    ),
    "squared": ("squared", lambda m, y: (m - y) ** 2 / 2),
    "absolute": ("absolute", lambda m, y: abs(m - y)),
    "huber": (
        {"kind": "huber", "threshold": 0.1},
        lambda m, y: (m - y) ** 2 / 2 if abs(m - y) <= 0.1 else 0.1 * (abs(m - y) - 0.05),
    ),
    "pinball": (
        {"kind": "pinball", "quantile": 0.8},
        lambda m, y: max(0.8 * (y - m), -0.2 * (y - m)),
    ),
}


def proximal(loss, m, y, beta):
    """argmin l(u) + (beta/2)(u - m)^2, by brute force."""
    reach = 4.0 / beta + abs(m - y) + 2.0
    found = minimize_scalar(
        lambda u: loss(u, y) + beta / 2 * (u - m) ** 2,
        bounds=(m - reach, m + reach),
        method="bounded",
        options={"xatol": 1e-11},
    )
    return found.x


def printed_oracle(loss, m, y, beta, L0):
    """Algorithm 1 as it stands."""
    a, b, tried = m - 2 * L0 / beta, m + 2 * L0 / beta, []
    for _ in range(60):
        middle = (a + b) / 2
        tried.append(middle)
        left, right = (a + middle) / 2, (middle + b) / 2
        if loss(left, y) + abs(left - m) ** 2 >= loss(right, y) + abs(right - m) ** 2:
            b = middle
        else:
            a = middle
    return min(tried, key=lambda u: loss(u, y) + abs(u - m) ** 2)


@pytest.mark.parametrize("beta", [0.5, 3.0, 40.0])
@pytest.mark.parametrize("name", LOSSES)
def test_closed_forms_are_the_envelopes_slope_and_the_printed_oracle_is_not(name, beta):
    asked, loss = LOSSES[name]
    job = {"dataset": "d", "algorithm": NAME, "loss": asked, "privacy": {"epsilon": 1.0}}
    shape = JobSpec.model_validate(job).loss.scalar()
    smooth, L0, missed = shape.smoothed(beta), shape.lipschitz(3.0), 0.0
    assert smooth.curvature <= beta
    for m in np.linspace(-3, 3, 25).tolist():
        for y in (-1.0, 1.0):
            by_force = beta * (m - proximal(loss, m, y, beta))
            if smooth is not shape:
                closed = float(exact_slope(smooth, mpf(m), mpf(y)))
                assert closed == pytest.approx(by_force, abs=2e-4)
            printed = beta * (m - printed_oracle(loss, m, y, beta, L0))
            missed = max(missed, abs(printed - by_force))
    assert missed > 0.2 * L0


def test_an_approximate_oracle_pushes_near_points_apart_and_ours_does_not():
    """A bisection that stops at accuracy alpha is a staircase: over a stair it adds eta alpha."""
    beta, eta, alpha = 10.0, 0.19, 1e-3
    shape = spec(NAME, loss="hinge").loss.scalar().smoothed(beta)

    def exact(w):
        return w - eta * float(exact_slope(shape, mpf(w), mpf(1)))

    def approximate(w):
        return w - eta * alpha * round(float(exact_slope(shape, mpf(w), mpf(1))) / alpha)

    points = np.linspace(0.9, 1.0, 4001).tolist()
    for step, grows in ((exact, False), (approximate, True)):
        apart = max(abs(step(a) - step(b)) / (b - a) for a, b in pairwise(points))
        assert (apart > 1 + 1e-6) == grows


def test_the_kernel_runs_the_loss_that_was_planned():
    made = made_for(100, **JOBS["hinge"])
    slope = slope_of(made)
    assert slope.line.curvature == made.smoothing.smoothness == sqrt(100) / 2
