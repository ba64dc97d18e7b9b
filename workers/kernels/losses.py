"""Slopes dl/dm of the losses at margin m and label y, inlined into the passes.

Their shapes are those of service/planning/losses.py, and two more for a loss averaged over a ball
about w. Along one row such an average is over a single number, <v, x> with v uniform in the ball: its
distribution function takes the place of a corner's step. Rows shorter than X2 count as padded to that
length by a coordinate in which w is zero, so one table serves them all, and nothing is sampled.

Where a sum is released, privacy rests on none of this: slopes are clipped and quantised.
"""

from functools import cache
from math import exp, sqrt
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from service.planning.losses import SHARP, Scalar, scalar
from service.planning.plan import Ball, Plan

LOGISTIC, MARGIN, RESIDUAL, BALL_MARGIN, BALL_RESIDUAL = range(5)
_CODES = {"logistic": LOGISTIC, "margin": MARGIN, "residual": RESIDUAL}
_TABLE_SIZE = 4097

_f = np.float32
_i = np.int32
_ONE, _HALF, _LOWEST = _f(1.0), _f(0.5), _f(-80.0)
_LOG2_E, _LN_2_HIGH, _LN_2_LOW = _f(1.4426950408889634), _f(0.693359375), _f(-2.12194440e-4)
_C2, _C3, _C4, _C5, _C6 = (_f(1 / n) for n in (2, 6, 24, 120, 720))


class Slope(NamedTuple):
    """A loss as the passes take it. `curvature` is per unit of margin; for a loss averaged over a
    ball it scales the margin to the table's [-1, 1]."""

    code: int
    curvature: float
    low: float
    high: float
    table: NDArray[np.float64]


def slope_of(plan: Plan) -> Slope:
    """The slope that the Plan's kernels evaluate: its loss, smoothed as the Plan says."""
    shape, smoothing = scalar(plan.spec.loss), plan.smoothing
    if smoothing is None:
        return as_slope(shape)
    if not isinstance(smoothing, Ball):
        return as_slope(shape.smoothed(smoothing.smoothness))
    if shape.curvature != SHARP:
        raise ValueError("only a loss with a corner is averaged over a ball")
    width, table = _ball_marginal(plan.facts.columns + 1)
    reach = smoothing.radius * (plan.facts.l2 or 1.0) * width
    code = BALL_MARGIN if shape.shape == "margin" else BALL_RESIDUAL
    return Slope(code, 1 / reach, shape.low, shape.high, table)


def as_slope(shape: Scalar) -> Slope:
    return Slope(_CODES[shape.shape], shape.curvature, shape.low, shape.high, _NO_TABLE)


def _frozen(values: Any) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    array.flags.writeable = False
    return array


_NO_TABLE = _frozen([0.0, 1.0])


@cache
def _ball_marginal(dimension: int) -> tuple[float, NDArray[np.float64]]:
    """One coordinate of a uniform point in the unit ball: the width beyond which it hardly falls, and
    its distribution function on a grid over [-width, width]."""
    width = min(1.0, 9 / sqrt(dimension + 2))  # nine standard deviations
    grid = np.linspace(-width, width, _TABLE_SIZE)
    density = (1 - grid**2) ** ((dimension - 1) / 2)
    below = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return width, _frozen(below / below[-1])


@intrinsic
def _float_of_bits(typing_context, bits):
    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@njit(cache=True, inline="always", error_model="numpy")
def _one_over_one_plus_exp(z):
    """1/(1 + exp(z)), by e = exp(-|z|) = 2^k exp(r), |r| <= log(2)/2, and a Taylor series in r."""
    t = -abs(z)
    t = t if t > _LOWEST else _LOWEST
    k = np.floor(_f(t * _LOG2_E + _HALF))
    r = _f(_f(t - _f(k * _LN_2_HIGH)) - _f(k * _LN_2_LOW))
    p = _f(_C4 + _f(r * _f(_C5 + _f(r * _C6))))
    p = _f(_ONE + _f(r * _f(_ONE + _f(r * _f(_C2 + _f(r * _f(_C3 + _f(r * p))))))))
    e = _f(p * _float_of_bits(_i(_i(_i(k) + _i(127)) << _i(23))))
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
def derivative64(slope, m, y):
    """For float64 rows, whose margins may be of any size, and for points computed in float64."""
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
