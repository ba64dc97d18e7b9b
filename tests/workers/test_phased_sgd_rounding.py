"""Phased SGD in floats: no step and no mean errs by more than was planned."""

import numpy as np
import pytest
from mpmath import mp, mpf

from service.planning.algorithms.phased_sgd import step_error
from service.planning.loss import Scalar
from tests.workers.phased import JOBS, UNIT, D, exact_slope, made_for, means, phases_of
from workers.arrays import read_only
from workers.kernels.losses import as_slope
from workers.kernels.shapes import MARGIN
from workers.kernels.trajectory import descend
from workers.losses import KERNELS


def exact_step(w, x, y, feature_step, shape, bound, ridge, eta, radius):
    margin = mp.fsum(mpf(int(a)) * b for a, b in zip(x, w, strict=True)) * mpf(feature_step)
    slope = min(max(exact_slope(shape, margin, mpf(float(y))), -mpf(bound)), mpf(bound))
    step = mpf(eta) * mpf(feature_step) * slope
    w = [(1 - mpf(eta) * mpf(ridge)) * b - step * int(a) for a, b in zip(x, w, strict=True)]
    norm = mp.sqrt(mp.fsum(b * b for b in w))
    return [b * min(mpf(1), mpf(radius) / norm) if norm else b for b in w]


SHAPES = {
    "logistic": Scalar("margin", 0.25),
    "hinge": Scalar("margin", 50.0, straight=True),
    "huber": Scalar("residual", 1.0, -0.1, 0.1, straight=True),
    "pinball": Scalar("residual", 30.0, -0.3, 0.7, straight=True),
}


@pytest.mark.parametrize("d", [1, 3, 17, 160])
@pytest.mark.parametrize("loss", SHAPES)
def test_a_computed_step_errs_by_no_more_than_was_planned(loss, d):
    """Against 60 digits: in the middle of the ball, at its edge and thrown beyond it."""
    shape, rng, worst = SHAPES[loss], np.random.default_rng(d), 0.0
    feature_step, radius, ridge = 1 / UNIT, 3.7, 0.3
    bound = shape.lipschitz(radius)
    eta = 1.9 / (shape.curvature + ridge)
    e = step_error(d, eta, shape.curvature, 1.0, bound, radius)
    with mp.workdps(60):
        for turn in range(60):
            row = rng.normal(size=d)
            x = np.trunc(row / np.linalg.norm(row) * UNIT).astype(np.int16).reshape(1, d)
            v = rng.normal(size=d)
            v *= radius * (1.0, rng.uniform(), 1e-9)[turn % 3] / np.linalg.norm(v)
            y = np.array([float(rng.uniform(-1, 1)) if shape.argument == "residual" else 1.0])
            f = 1.0 if turn % 2 else 0.77
            args = feature_step, as_slope(KERNELS[loss], shape), bound, ridge, eta, radius
            before = [mpf(f) * mpf(float(b)) for b in v]
            after = descend(v, np.zeros(d), f, 0.0, read_only(x), read_only(y), *args)
            right = exact_step(before, x[0], y[0], feature_step, shape, *args[2:])
            error = mp.sqrt(
                mp.fsum(
                    (mpf(float(after)) * mpf(float(b)) - c) ** 2
                    for b, c in zip(v, right, strict=True)
                )
            )
            worst = max(worst, float(error / e))
    print(f"d = {d}: error over bound {worst:.4f}")
    assert 1e-4 < worst <= 1


@pytest.mark.parametrize("job", ["hinge", "logistic", "ridge"])
def test_a_computed_mean_is_the_exact_one_within_its_share_of_the_bound(job):
    made, rng = made_for(64, **JOBS[job]), np.random.default_rng(8)
    x = rng.integers(-2300, 2300, (64, D))
    y = rng.choice([-1.0, 1.0], 64)
    shape = made.spec.loss.scalar()
    if made.smoothing:
        shape = shape.smoothed(made.smoothing.smoothness)
    schedule, feature_step = made.schedule, made.facts.feature_step
    computed = means(made, x, y, np.array([0.3, -0.2, 0.1]))
    with mp.workdps(60):
        for k, (rows, _) in enumerate(phases_of(made)):
            eta = schedule.phases[k].step_size
            w = [mpf(b) for b in ((0.3, -0.2, 0.1) if k else (0.0,) * D)]
            total = [mpf(0)] * D
            for i in rows:
                w = exact_step(
                    *(w, x[i], y[i], feature_step, shape, schedule.slope_bound),
                    *(made.spec.ridge, eta, schedule.radius),
                )
                total = [a + b for a, b in zip(total, w, strict=True)]
            error = mp.sqrt(
                mp.fsum(
                    (mpf(float(a)) - b / len(rows)) ** 2
                    for a, b in zip(computed[k], total, strict=True)
                )
            )
            e = step_error(
                *(D, eta, shape.curvature, made.facts.l2, schedule.slope_bound, schedule.radius)
            )
            assert error <= (len(rows) + 2) * e / 2


def test_labels_and_slopes_outside_their_bounds_are_kept_within():
    """What ingestion excludes would still not move an iterate further than was planned."""
    loss, x = (
        as_slope(MARGIN, Scalar("margin", 100.0)),
        read_only(np.array([[UNIT]], dtype=np.int16)),
    )
    for label in (7.0, -1e300, np.inf, np.nan):
        v = np.array([0.5])
        y = read_only(np.array([label]))
        descend(v, np.zeros(1), 1.0, 0.0, x, y, 1 / UNIT, loss, 1.0, 0.0, 0.01, 1.0)
        assert abs(v[0] - 0.5) <= 0.01 * (1 + 1e-12)
