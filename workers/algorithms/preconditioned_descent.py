"""Runs what service/planning/algorithms/preconditioned_descent.py planned.

w is a model in white coordinates, its intercept first, for the centred rows of the frame."""

from math import erf, exp, log, pi, sqrt

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.preconditioned_descent import PreconditionedDescentSchedule
from service.planning.lattice import SumLattice
from service.planning.plan import Plan
from service.planning.shared.moments import DERIVED_UNITS, Coordinates
from workers.data import Data
from workers.kernels.symmetric import solve
from workers.optimizers.coordinates import (
    Located,
    White,
    locate,
    penalty_of,
    stored_weights,
    whiten,
)
from workers.progress import Progress

Floats = NDArray[np.float64]
_CURVATURE_MIN = 0.03
_START = 3.0  # of the first point: its margins' standard deviation, at most
_PROBIT = pi / 8  # E logistic(m) for m ~ N(a, s^2) is about logistic(a/sqrt(1 + pi s^2/8))
_OFF_NORMAL = 0.1  # by which an intercept may be off, if margins are not normal, per variance
_RARE = 1 - 2e-4
_SAFE = 1.2  # a step is shorter by this, where curvature follows from how margins are spread


def run(plan: Plan, data: Data, progress: Progress) -> Floats:
    schedule, lattice, n = plan.schedule, plan.lattice, plan.facts.rows
    assert isinstance(schedule, PreconditionedDescentSchedule) and isinstance(lattice, SumLattice)
    rules, ridge = schedule.coordinates, plan.spec.ridge
    middle, half = (0.0, 1.0) if schedule.labels is None else data.choose_label_range()
    located = locate(plan, data, schedule.means, rules, schedule.label_sum)
    of_ridge = ridge / (1.0 if schedule.residual else 0.25)
    white = whiten(plan, data, schedule.moments, rules, located, of_ridge)
    radius = _radius(rules, white)
    white = white.by(data.derive(located.frame.centre, white.a, radius))
    units = np.full(plan.dimension, radius)  # of a weight, for the rows that sums are over
    units[0] = DERIVED_UNITS / schedule.constant
    penalty = penalty_of(plan, located, white)

    w = _start(schedule, located, white)
    total, weight, squares = np.zeros_like(w), 0.0, 0.0
    variance = kept = 0.0
    for t in range(schedule.steps):
        factor = _clip(schedule, located, white, w, data)
        gradient = data.noisy_sum(w * units, 0, n) / n * units
        noise = sqrt(lattice.variance) / n * radius * factor
        curvature = _curvature(schedule, white, w)
        proposal = w - _step(curvature, penalty, gradient, w)
        share = (curvature / noise) ** 2 * (t + 1) ** schedule.growth
        total, weight = total + share * proposal, weight + share
        squares += (share * noise / curvature) ** 2
        variance = squares / weight**2
        w, kept = _shrunk(schedule, white, total / weight, variance)
        progress.step()
    of_constant = variance * (units[0] / radius) ** 2
    w[0] = _intercept(schedule, located, white, w, of_constant, kept)
    weights = half * stored_weights(plan, located, white, w)
    weights[0] += middle / (plan.facts.linf or 1.0)
    return plan.spec.set.project(weights)


def _radius(rules: Coordinates, white: White) -> float:
    effective = white.effective
    return max(rules.white_radius * sqrt(effective + min(1.0, effective)), 1e-3)


def _start(schedule: PreconditionedDescentSchedule, located: Located, white: White) -> Floats:
    """Least squares, or for a curved loss of y m the linear discriminant, by the moments alone."""
    rules, y = schedule.coordinates, located.frame.label_centre
    slopes = white.b * white.kept(white.b, white.b_noise, rules.doubt)
    if schedule.residual or schedule.window is not None:
        return np.concatenate([[y + schedule.tilt * sqrt(white.residual(slopes))], slopes])
    p = (1 + _likely(y)) / 2
    slopes *= 0.5 / max(p * (1 - p), 0.1)
    slopes *= min(1.0, _START / max(sqrt(white.spread(slopes)), 1e-9))
    return np.concatenate([[log(p / (1 - p))], slopes])


def _likely(y: float) -> float:
    return min(max(y, -0.98), 0.98)


def _clip(
    schedule: PreconditionedDescentSchedule,
    located: Located,
    white: White,
    w: Floats,
    data: Data,
) -> float:
    """The clip of the next sum in units of the Plan's, settled by what residuals are at w."""
    rule = schedule.clip
    if rule is None:
        return 1.0
    wanted = max(rule.spread * sqrt(white.residual(w[1:])), rule.low)
    wanted = min(wanted, rule.high, located.frame.label_radius)
    factor = wanted / rule.unit
    data.set_clip(factor)
    return factor


def _curvature(schedule: PreconditionedDescentSchedule, white: White, w: Floats) -> float:
    """Of the mean loss in a margin at w, if margins or residuals are about normal."""
    if schedule.residual:
        if schedule.window is None:
            return schedule.curvature
        share = erf(schedule.window / sqrt(8 * white.residual(w[1:])))
        return max(schedule.curvature * min(1.0, _SAFE * share), _CURVATURE_MIN)
    variance = white.spread(w[1:])
    if schedule.window is not None:
        share = schedule.window * 0.8 / sqrt(variance + 0.25)
        return max(schedule.curvature * min(1.0, share), _CURVATURE_MIN)
    flat = 1 / sqrt(1 + _PROBIT * variance)
    e = exp(-abs(flat * w[0]))
    curved = _SAFE * flat * e / (1 + e) ** 2 * 4 * schedule.curvature
    return min(max(curved, _CURVATURE_MIN), schedule.curvature)


def _step(curvature: float, penalty: Floats | None, gradient: Floats, w: Floats) -> Floats:
    if penalty is None:
        return gradient / curvature
    hessian = curvature * np.eye(w.size) + penalty
    return np.asarray(solve(hessian, gradient + np.einsum("ij,j->i", penalty, w)))


def _shrunk(
    schedule: PreconditionedDescentSchedule, white: White, mean: Floats, variance: float
) -> tuple[Floats, float]:
    """The mean of proposals, shrunk towards the constant model; and the factor."""
    rules, w = schedule.coordinates, mean.copy()
    variances = np.full(w.size - 1, schedule.inflation * variance)
    kept = white.kept(w[1:], variances, rules.doubt)
    before = white.spread(w[1:])
    w[1:] *= kept
    if schedule.residual:
        return w, kept
    # the intercept of the same share of positives, and a model that is no surer than `longest`
    w[0] *= sqrt((1 + _PROBIT * before * kept**2) / (1 + _PROBIT * before))
    w[1:] *= min(1.0, schedule.longest / max(sqrt(before) * kept, 1e-9))
    w[0] = min(max(w[0], -schedule.longest), schedule.longest)
    return w, kept


def _intercept(
    schedule: PreconditionedDescentSchedule,
    located: Located,
    white: White,
    w: Floats,
    variance: float,
    kept: float,
) -> float:
    """The intercept, weighed against what the mean of y says of it: all that there is to say of a
    parabola's, or of a constant model's likelihood; of another likelihood if margins are normal."""
    y, noise, old = located.frame.label_centre, located.label_noise, schedule.label_sum is None
    if schedule.window is not None or (old and kept > 0 and not schedule.residual):
        return float(w[0])
    if not schedule.residual:
        spread = 0.0 if old else white.spread(w[1:])
        p = (1 + (_likely(y) if old else min(max(y, -_RARE), _RARE))) / 2
        wider = sqrt(1 + _PROBIT * spread)
        y, noise = wider * log(p / (1 - p)), wider * noise / (2 * p * (1 - p))
        noise = noise if old else sqrt(noise**2 + (_OFF_NORMAL * spread) ** 2)
    return float((w[0] / variance + y / noise**2) / (1 / variance + 1 / noise**2))
