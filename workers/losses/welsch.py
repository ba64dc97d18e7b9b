"""r exp(-r^2/s^2) with r = m - y and the scale s, of which the largest slope is s/sqrt(2 exp(1))."""

from math import e, exp, sqrt

import numpy as np
from numba import njit

from workers.kernels.shapes import BENT, LOWEST, Kernel, exp32

_f = np.float32
_SCALE = sqrt(2 * e)  # over the largest slope


@njit(cache=True, inline="always", error_model="numpy")
def _slope32(line, m, y):
    r, s = _f(m - y), _f(line.high * _SCALE)
    z = _f(r / s)
    far = _f(z * z)
    return _f(r * exp32(_f(-far))) if far < -LOWEST else _f(0.0)


@njit(cache=True, inline="always", error_model="numpy")
def _slope64(line, m, y):
    r, s = m - y, line.high * _SCALE
    far = (r / s) * (r / s)
    return r * exp(-far) if far < 700.0 else 0.0


@njit(cache=True, inline="always", error_model="numpy")
def _value64(line, m, y, bend):
    r, s = m - y, line.high * _SCALE
    return 0.5 * s * s * (1.0 - exp(-(r / s) * (r / s)))


KERNEL = Kernel(BENT, slope32=_slope32, slope64=_slope64, value64=_value64)
