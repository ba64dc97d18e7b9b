"""-y for |m| < 1, and 0 beyond."""

import numpy as np
from numba import njit

from workers.kernels.ball import inside
from workers.kernels.shapes import AVERAGED64, BENT, Kernel, clip

_f = np.float32


@njit(cache=True, inline="always", error_model="numpy")
def _slope32(line, m, y):
    return _f(-y) if abs(m) < _f(1.0) else _f(0.0)


@njit(cache=True, inline="always", error_model="numpy")
def _slope64(line, m, y):
    return -y if abs(m) < 1.0 else 0.0


@njit(cache=True, inline="always", error_model="numpy")
def _value64(line, m, y, bend):
    return clip(1.0 - y * m, 0.0, 2.0)


@njit(cache=True, inline="always", error_model="numpy")
def _ball64(slope, m, y):
    return -y * inside(slope, -1.0 - m, 1.0 - m, 1.0, 0.0)


KERNEL = Kernel(
    BENT,
    slope32=_slope32,
    slope64=_slope64,
    value64=_value64,
    averaged=Kernel(AVERAGED64, slope64=_ball64),
)
