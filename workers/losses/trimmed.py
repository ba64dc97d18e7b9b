"""r = m - y where |r| is below the threshold, and 0 beyond."""

import numpy as np
from numba import njit

from workers.kernels.ball import inside
from workers.kernels.shapes import AVERAGED64, BENT, Kernel, clip

_f = np.float32


@njit(cache=True, inline="always", error_model="numpy")
def _slope32(line, m, y):
    r = _f(m - y)
    return r if abs(r) < _f(line.high) else _f(0.0)


@njit(cache=True, inline="always", error_model="numpy")
def _slope64(line, m, y):
    r = m - y
    return r if abs(r) < line.high else 0.0


@njit(cache=True, inline="always", error_model="numpy")
def _value64(line, m, y, bend):
    r = clip(m - y, -line.high, line.high)
    return 0.5 * r * r


@njit(cache=True, inline="always", error_model="numpy")
def _ball64(slope, m, y):
    r = m - y
    return inside(slope, -slope.line.high - r, slope.line.high - r, r, 1.0)


KERNEL = Kernel(
    BENT,
    slope32=_slope32,
    slope64=_slope64,
    value64=_value64,
    averaged=Kernel(AVERAGED64, slope64=_ball64),
)
