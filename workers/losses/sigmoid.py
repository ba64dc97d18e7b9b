"""-y s (1 - s) with s = 1/(1 + exp(y m))."""

from math import exp

import numpy as np
from numba import njit

from workers.kernels.shapes import BENT, Kernel, one_over_one_plus_exp32

_f = np.float32


@njit(cache=True, inline="always", error_model="numpy")
def _slope32(line, m, y):
    s = one_over_one_plus_exp32(_f(y * m))
    both = _f(s * one_over_one_plus_exp32(_f(-y * m)))  # s (1 - s), without cancellation
    return _f(_f(-y) * both)


@njit(cache=True, inline="always", error_model="numpy")
def _slope64(line, m, y):
    z = exp(-abs(y * m))  # of s and 1 - s one is 1/(1 + z) and the other z/(1 + z)
    return -y * (z / ((1.0 + z) * (1.0 + z)))


@njit(cache=True, inline="always", error_model="numpy")
def _value64(line, m, y, bend):
    return 1.0 / (1.0 + exp(y * m))


KERNEL = Kernel(BENT, slope32=_slope32, slope64=_slope64, value64=_value64)
