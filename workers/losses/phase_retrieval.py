"""2 m sign(m^2 - y)."""

from math import sqrt

import numpy as np
from numba import njit

from workers.kernels.ball import inside
from workers.kernels.shapes import AVERAGED64, BENT, Kernel

_f = np.float32


@njit(cache=True, inline="always", error_model="numpy")
def _slope32(line, m, y):
    return _f(_f(2.0) * m) if _f(m * m) > y else _f(_f(-2.0) * m)


@njit(cache=True, inline="always", error_model="numpy")
def _slope64(line, m, y):
    return 2.0 * m if m * m > y else -2.0 * m


@njit(cache=True, inline="always", error_model="numpy")
def _value64(line, m, y, bend):
    return abs(m * m - y)


@njit(cache=True, inline="always", error_model="numpy")
def _ball64(slope, m, y):
    if y > 0.0:
        return 2.0 * m - 4.0 * inside(slope, -sqrt(y) - m, sqrt(y) - m, m, 1.0)
    return 2.0 * m


KERNEL = Kernel(
    BENT,
    slope32=_slope32,
    slope64=_slope64,
    value64=_value64,
    averaged=Kernel(AVERAGED64, slope64=_ball64),
)
