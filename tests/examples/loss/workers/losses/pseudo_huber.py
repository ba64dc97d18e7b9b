"""high t/sqrt(1 + t^2) with t = (m - y)/high, kept where its square is a float."""

from math import sqrt

import numpy as np
from numba import njit

from workers.kernels.shapes import BENT, Kernel, clip

_f = np.float32


@njit(cache=True, inline="always", error_model="numpy")
def _slope32(line, m, y):
    t = clip(_f(_f(m - y) / _f(line.high)), _f(-1e9), _f(1e9))
    return _f(_f(line.high) * _f(t / np.sqrt(_f(_f(1.0) + _f(t * t)))))


@njit(cache=True, inline="always", error_model="numpy")
def _slope64(line, m, y):
    t = clip((m - y) / line.high, -1e9, 1e9)
    return line.high * (t / sqrt(1.0 + t * t))


@njit(cache=True, inline="always", error_model="numpy")
def _value64(line, m, y, bend):
    t = clip((m - y) / line.high, -1e9, 1e9)
    return line.high * line.high * (t * t / (1.0 + sqrt(1.0 + t * t)))  # nothing cancels


KERNEL = Kernel(BENT, slope32=_slope32, slope64=_slope64, value64=_value64)
