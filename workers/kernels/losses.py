"""Slopes dl/dm of the losses at margin m and label y, inlined into the passes.

Their shapes are those of service/planning/losses.py, and one more for each loss with a corner: the
loss averaged over a ball about w. Along one row such an average is over a single number, <v, x> with
v uniform in the ball: its distribution function takes the place of a corner's step, and where slopes
are lines its mean up to the corner is needed too. Rows shorter than X2 count as padded to that
length by a coordinate in which w is zero, so one table serves them all, and nothing is sampled.

Where a sum is released, privacy rests on none of this: slopes are clipped and quantised.
"""

from functools import cache
from math import e, exp, log1p, sqrt
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from service.planning.draft import Ball
from service.planning.losses import SHARP, Scalar, scalar
from service.planning.plan import Plan

LOGISTIC, MARGIN, RESIDUAL, BALL_MARGIN, BALL_RESIDUAL = range(5)
SIGMOID, SAVAGE, RAMP, WELSCH, TRIMMED, PHASE = range(5, 11)  # not convex, from SIGMOID on
BALL_RAMP, BALL_TRIMMED, BALL_PHASE = range(11, 14)
_CODES = {
    "logistic": LOGISTIC,
    "margin": MARGIN,
    "residual": RESIDUAL,
    "sigmoid": SIGMOID,
    "savage": SAVAGE,
    "ramp": RAMP,
    "welsch": WELSCH,
    "trimmed": TRIMMED,
    "phase": PHASE,
}
_BALL_CODES = {
    "margin": BALL_MARGIN,
    "residual": BALL_RESIDUAL,
    "ramp": BALL_RAMP,
    "trimmed": BALL_TRIMMED,
    "phase": BALL_PHASE,
}
_TABLE_SIZE = 4097

_f = np.float32
_i = np.int32
_ONE, _HALF, _LOWEST = _f(1.0), _f(0.5), _f(-80.0)
_LOG2_E, _LN_2_HIGH, _LN_2_LOW = _f(1.4426950408889634), _f(0.693359375), _f(-2.12194440e-4)
_C2, _C3, _C4, _C5, _C6 = (_f(1 / n) for n in (2, 6, 24, 120, 720))


class Slope(NamedTuple):
    """A loss as the passes take it. `curvature` is per unit of margin; for a loss averaged over a
    ball it scales the margin to the table's [-1, 1]. A Welsch loss has its scale in `high`, and a
    trimmed one its threshold."""

    code: int
    curvature: float
    low: float
    high: float
    table: NDArray[np.float64]
    means: NDArray[np.float64]


def slope_of(plan: Plan) -> Slope:
    """The slope that the Plan's kernels evaluate: its loss, smoothed as the Plan says."""
    shape, smoothing = scalar(plan.spec.loss), plan.smoothing
    if smoothing is None:
        return as_slope(shape)
    if not isinstance(smoothing, Ball):
        return as_slope(shape.smoothed(smoothing.smoothness))
    if shape.curvature != SHARP:
        raise ValueError("only a loss with a corner is averaged over a ball")
    width, table, means = _ball_marginal(plan.facts.columns + 1)
    reach = smoothing.radius * (plan.facts.l2 or 1.0) * width
    return Slope(_BALL_CODES[shape.shape], 1 / reach, shape.low, shape.high, table, means)


def as_slope(shape: Scalar) -> Slope:
    high = shape.high * sqrt(2 * e) if shape.shape == "welsch" else shape.high
    return Slope(_CODES[shape.shape], shape.curvature, shape.low, high, _NO_TABLE, _NO_TABLE)


def _frozen(values: Any) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    array.flags.writeable = False
    return array


_NO_TABLE = _frozen([0.0, 1.0])


@cache
def _ball_marginal(dimension: int) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """One coordinate of a uniform point in the unit ball: the width beyond which it hardly falls, and
    on a grid over [-width, width] its distribution function and, in units of the width, its mean over
    what lies below."""
    width = min(1.0, 9 / sqrt(dimension + 2))  # nine standard deviations
    grid = np.linspace(-width, width, _TABLE_SIZE)
    density = (1 - grid**2) ** ((dimension - 1) / 2)
    below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    moments = density * grid / width
    means = np.concatenate([[0.0], np.cumsum(moments[1:] + moments[:-1])])
    return width, _frozen(below / below[-1]), _frozen(means / below[-1])


@intrinsic
def _float_of_bits(typing_context, bits):
    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@njit(cache=True, inline="always", error_model="numpy")
def _exp(t):
    """exp(t) for t <= 0, by 2^k exp(r), |r| <= log(2)/2, and Taylor series in r; at least exp(-80)."""
    t = t if t > _LOWEST else _LOWEST
    k = np.floor(_f(t * _LOG2_E + _HALF))
    r = _f(_f(t - _f(k * _LN_2_HIGH)) - _f(k * _LN_2_LOW))
    p = _f(_C4 + _f(r * _f(_C5 + _f(r * _C6))))
    p = _f(_ONE + _f(r * _f(_ONE + _f(r * _f(_C2 + _f(r * _f(_C3 + _f(r * p))))))))
    return _f(p * _float_of_bits(_i(_i(_i(k) + _i(127)) << _i(23))))


@njit(cache=True, inline="always", error_model="numpy")
def _one_over_one_plus_exp(z):
    """1/(1 + exp(z)), by the exponential of -|z|."""
    e = _exp(_f(-abs(z)))
    return _f((e if z > _f(0.0) else _ONE) / _f(_ONE + e))


@njit(cache=True, inline="always", error_model="numpy")
def _clip(value, low, high):
    """value within [low, high]; a NaN stays one."""
    value = low if value < low else value
    return high if value > high else value


@njit(cache=True, inline="always", error_model="numpy")
def _below(table, t):
    """The tabulated distribution function at t, linear between its points and flat beyond [-1, 1]."""
    t = t if t == t else 0.0  # noqa: PLR0124 - a NaN has no place in the table
    place = (_clip(t, -1.0, 1.0) + 1.0) * (0.5 * (table.size - 1))
    low = min(int(place), table.size - 2)
    return table[low] + (table[low + 1] - table[low]) * (place - low)


@njit(cache=True, inline="always", error_model="numpy")
def logistic32(m, y):
    return _f(_f(-y) * _one_over_one_plus_exp(_f(y * m)))


@njit(cache=True, inline="always", error_model="numpy")
def derivative32(slope, m, y):
    """For fixed-point rows: single precision, branch-free, no call, so that the compiler turns a loop
    over records into vector code whose result does not depend on how wide the vectors are. The error
    is below 2^-20, far below the 2^-15 to which derivatives are quantised."""
    curvature, low, high = _f(slope.curvature), _f(slope.low), _f(slope.high)
    if slope.code == LOGISTIC:
        return logistic32(m, y)
    if slope.code == MARGIN:
        return _f(_f(-y) * _clip(_f(curvature * _f(_ONE - _f(y * m))), _f(0.0), _ONE))
    if slope.code == RESIDUAL:
        return _clip(_f(curvature * _f(m - y)), low, high)
    if slope.code == BALL_MARGIN:
        return _f(_f(-y) * _f(_below(slope.table, _f(curvature * _f(_ONE - _f(y * m))))))
    return _f(low + _f(_f(high - low) * _f(_below(slope.table, _f(curvature * _f(m - y))))))


@njit(cache=True, inline="always", error_model="numpy")
def bent32(slope, m, y):
    """`derivative32` of the losses that are not convex."""
    if slope.code <= SAVAGE:
        s = _one_over_one_plus_exp(_f(y * m))
        both = _f(s * _one_over_one_plus_exp(_f(-y * m)))  # s (1 - s), without cancellation
        return _f(_f(-y) * (both if slope.code == SIGMOID else _f(_f(2.0) * _f(s * both))))
    r, t = _f(m - y), _f(slope.high)
    if slope.code == RAMP:
        return _f(-y) if abs(m) < _ONE else _f(0.0)
    if slope.code == WELSCH:
        z = _f(r / t)
        far = _f(z * z)
        return _f(r * _exp(_f(-far))) if far < -_LOWEST else _f(0.0)
    if slope.code == TRIMMED:
        return r if abs(r) < t else _f(0.0)
    return _f(_f(2.0) * m) if _f(m * m) > y else _f(_f(-2.0) * m)


@njit(cache=True, inline="always", error_model="numpy")
def derivative64(slope, m, y):  # noqa: PLR0911 - one per shape
    """For float64 rows, whose margins may be of any size, and for points computed in float64."""
    if slope.code >= BALL_RAMP:
        return averaged(slope, m, y)
    if slope.code >= SIGMOID:
        return _bent64(slope, m, y)
    if slope.code == LOGISTIC:
        return -y / (
            1.0 + exp(y * m)
        )  # exp may overflow to inf: the quotient is then 0, as it should
    if slope.code == MARGIN:
        return -y * _clip(slope.curvature * (1.0 - y * m), 0.0, 1.0)
    if slope.code == RESIDUAL:
        return _clip(slope.curvature * (m - y), slope.low, slope.high)
    if slope.code == BALL_MARGIN:
        return -y * _below(slope.table, slope.curvature * (1.0 - y * m))
    return slope.low + (slope.high - slope.low) * _below(slope.table, slope.curvature * (m - y))


@njit(cache=True, error_model="numpy")
def _bent64(slope, m, y):
    """`derivative64` of the losses that are not convex."""
    if slope.code <= SAVAGE:
        z = exp(-abs(y * m))  # of s and 1 - s one is 1/(1 + z) and the other z/(1 + z)
        s, both = (z if y * m > 0.0 else 1.0) / (1.0 + z), z / ((1.0 + z) * (1.0 + z))
        return -y * (both if slope.code == SIGMOID else 2.0 * s * both)
    r, t = m - y, slope.high
    if slope.code == RAMP:
        return -y if abs(m) < 1.0 else 0.0
    if slope.code == WELSCH:
        far = (r / t) * (r / t)
        return r * exp(-far) if far < 700.0 else 0.0
    if slope.code == TRIMMED:
        return r if abs(r) < t else 0.0
    return 2.0 * m if m * m > y else -2.0 * m


@njit(cache=True, nogil=True, error_model="numpy")
def slopes_at(slope, margins, y):
    """dl/dm at each margin and label."""
    out = np.empty(y.size)
    for i in range(y.size):
        out[i] = derivative64(slope, margins[i], y[i])
    return out


@njit(cache=True, error_model="numpy")
def averaged(slope, m, y):
    """The slopes of ramp, trimmed and phase retrieval, averaged over a ball: m moves by u/curvature
    with u in [-1, 1] of the tabulated distribution."""
    if slope.code == BALL_RAMP:
        return -y * _inside(slope, -1.0 - m, 1.0 - m, 1.0, 0.0)
    if slope.code == BALL_TRIMMED:
        r = m - y
        return _inside(slope, -slope.high - r, slope.high - r, r, 1.0)
    if y > 0.0:
        return 2.0 * m - 4.0 * _inside(slope, -sqrt(y) - m, sqrt(y) - m, m, 1.0)
    return 2.0 * m


@njit(cache=True, inline="always", error_model="numpy")
def _inside(slope, low, high, level, tilt):
    """The mean of level + tilt v over moves v = u/curvature within [low, high], and 0 elsewhere."""
    a, b = low * slope.curvature, high * slope.curvature
    mass = _below(slope.table, b) - _below(slope.table, a)
    mean = _below(slope.means, b) - _below(slope.means, a)
    return level * mass + tilt * mean / slope.curvature


@njit(cache=True, error_model="numpy")
def value64(slope, m, y, bend):  # noqa: PLR0911 - one per shape
    """The loss at a margin where its slope is `bend`, or was clamped to it; the smallest value is 0.
    A parabola continued by its tangent is b (t - b/(2 curvature)), where b is its slope at t."""
    if slope.code == LOGISTIC:
        z = y * m
        return log1p(exp(-abs(z))) + max(-z, 0.0)
    r = m - y
    if slope.code >= SIGMOID:
        if slope.code <= SAVAGE:
            s = 1.0 / (1.0 + exp(y * m))
            return s if slope.code == SIGMOID else s * s
        if slope.code == RAMP:
            return _clip(1.0 - y * m, 0.0, 2.0)
        if slope.code == WELSCH:
            return 0.5 * slope.high * slope.high * (1.0 - exp(-(r / slope.high) * (r / slope.high)))
        if slope.code == TRIMMED:
            r = _clip(r, -slope.high, slope.high)
            return 0.5 * r * r
        return abs(m * m - y)
    t = 1.0 - y * m if slope.code == MARGIN else r
    b = abs(bend) if slope.code == MARGIN else bend
    return b * (t - b / (2.0 * slope.curvature))
