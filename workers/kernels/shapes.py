"""Slopes dl/dm of a loss at margin m and label y, as functions that the passes inline: what a loss has
to bring, and the shapes that several of them share.

`slope32` is for fixed-point rows: single precision, branch-free, no call, so that the compiler turns a
loop over records into vector code whose result does not depend on how wide the vectors are. Its error
is below 2^-20, far below the 2^-15 to which derivatives are quantised. `slope64` is for float64 rows,
whose margins may be of any size, and for points computed in float64.

Where a sum is released, privacy rests on none of this: slopes are clipped and quantised.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from workers.kernels.ball import below

_f = np.float32
_i = np.int32
_ONE, _HALF, LOWEST = _f(1.0), _f(0.5), _f(-80.0)
_LOG2_E, _LN_2_HIGH, _LN_2_LOW = _f(1.4426950408889634), _f(0.693359375), _f(-2.12194440e-4)
_C2, _C3, _C4, _C5, _C6 = (_f(1 / n) for n in (2, 6, 24, 120, 720))


class Line(NamedTuple):
    """A slope's numbers: see `Scalar`."""

    curvature: float
    low: float
    high: float


class Slope(NamedTuple):
    """A loss as the passes take it. For a loss averaged over a ball, the curvature scales the margin
    to the table's [-1, 1]."""

    code: int
    straight: bool  # a line between two bounds, and not averaged
    residual: bool  # a function of m - y
    line: Line
    table: NDArray[np.float64]
    means: NDArray[np.float64]


# Losses whose slopes share a loop are of one type, so that a pass is compiled for those alone. The
# compiler writes vector code for an exponential only in a loop without much else, so those that have
# one are not among the straight ones.


class EXPONENTIAL(Slope):
    __slots__ = ()


class STRAIGHT(Slope):
    __slots__ = ()


class BENT(Slope):
    __slots__ = ()


class AVERAGED32(Slope):
    """Over a ball, by a table, in either precision."""

    __slots__ = ()


class AVERAGED64(Slope):
    """The same, in double precision only."""

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class Kernel:
    """A loss of one margin for the passes: compiled functions of (line, m, y) with the `Line` of a
    `Slope`, for there are no references to count in it.

    `value64` takes the slope at m besides, or what it was clamped to, if that is a straight line.
    A loss with a corner may also come `averaged` over a ball about w: functions of (slope, m, y)."""

    loop: type[Slope]
    slope64: Any
    slope32: Any = None
    value64: Any = None
    averaged: "Kernel | None" = None


@intrinsic
def _float_of_bits(typing_context, bits):
    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@njit(cache=True, inline="always", error_model="numpy")
def exp32(t):
    """exp(t) for t <= 0, by 2^k exp(r), |r| <= log(2)/2, and Taylor series in r; at least exp(-80)."""
    t = t if t > LOWEST else LOWEST
    k = np.floor(_f(t * _LOG2_E + _HALF))
    r = _f(_f(t - _f(k * _LN_2_HIGH)) - _f(k * _LN_2_LOW))
    p = _f(_C4 + _f(r * _f(_C5 + _f(r * _C6))))
    p = _f(_ONE + _f(r * _f(_ONE + _f(r * _f(_C2 + _f(r * _f(_C3 + _f(r * p))))))))
    return _f(p * _float_of_bits(_i(_i(_i(k) + _i(127)) << _i(23))))


@njit(cache=True, inline="always", error_model="numpy")
def one_over_one_plus_exp32(z):
    """1/(1 + exp(z)), by the exponential of -|z|."""
    e = exp32(_f(-abs(z)))
    return _f((e if z > _f(0.0) else _ONE) / _f(_ONE + e))


@njit(cache=True, inline="always", error_model="numpy")
def clip(value, low, high):
    """value within [low, high]; a NaN stays one."""
    value = low if value < low else value
    return high if value > high else value


# --- -y clip(curvature (1 - y m), 0, 1) --------------------------------------------------------------


@njit(cache=True, inline="always", error_model="numpy")
def _margin32(line, m, y):
    return _f(_f(-y) * clip(_f(_f(line.curvature) * _f(_ONE - _f(y * m))), _f(0.0), _ONE))


@njit(cache=True, inline="always", error_model="numpy")
def _margin64(line, m, y):
    return -y * clip(line.curvature * (1.0 - y * m), 0.0, 1.0)


@njit(cache=True, inline="always", error_model="numpy")
def _margin_value(line, m, y, bend):
    """A parabola continued by its tangent is b (t - b/(2 curvature)), where b is its slope at t."""
    b = abs(bend)
    return b * ((1.0 - y * m) - b / (2.0 * line.curvature))


@njit(cache=True, inline="always", error_model="numpy")
def _ball_margin32(slope, m, y):
    place = _f(_f(slope.line.curvature) * _f(_ONE - _f(y * m)))
    return _f(_f(-y) * _f(below(slope.table, place)))


@njit(cache=True, inline="always", error_model="numpy")
def _ball_margin64(slope, m, y):
    return -y * below(slope.table, slope.line.curvature * (1.0 - y * m))


MARGIN = Kernel(
    STRAIGHT,
    slope32=_margin32,
    slope64=_margin64,
    value64=_margin_value,
    averaged=Kernel(AVERAGED32, slope32=_ball_margin32, slope64=_ball_margin64),
)


# --- clip(curvature (m - y), low, high) --------------------------------------------------------------


@njit(cache=True, inline="always", error_model="numpy")
def _residual32(line, m, y):
    return clip(_f(_f(line.curvature) * _f(m - y)), _f(line.low), _f(line.high))


@njit(cache=True, inline="always", error_model="numpy")
def _residual64(line, m, y):
    return clip(line.curvature * (m - y), line.low, line.high)


@njit(cache=True, inline="always", error_model="numpy")
def _residual_value(line, m, y, bend):
    """As for the margin."""
    return bend * ((m - y) - bend / (2.0 * line.curvature))


@njit(cache=True, inline="always", error_model="numpy")
def _ball_residual32(slope, m, y):
    low, high = _f(slope.line.low), _f(slope.line.high)
    share = _f(below(slope.table, _f(_f(slope.line.curvature) * _f(m - y))))
    return _f(low + _f(_f(high - low) * share))


@njit(cache=True, inline="always", error_model="numpy")
def _ball_residual64(slope, m, y):
    share = below(slope.table, slope.line.curvature * (m - y))
    return slope.line.low + (slope.line.high - slope.line.low) * share


RESIDUAL = Kernel(
    STRAIGHT,
    slope32=_residual32,
    slope64=_residual64,
    value64=_residual_value,
    averaged=Kernel(AVERAGED32, slope32=_ball_residual32, slope64=_ball_residual64),
)
