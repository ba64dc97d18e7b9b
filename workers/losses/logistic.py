"""-y/(1 + exp(y m))."""

from math import exp, log1p

import numpy as np
from numba import njit

from workers.kernels.shapes import EXPONENTIAL, Kernel, one_over_one_plus_exp32

_f = np.float32


@njit(cache=True, inline="always", error_model="numpy")
def _slope32(line, m, y):
    return _f(_f(-y) * one_over_one_plus_exp32(_f(y * m)))


@njit(cache=True, inline="always", error_model="numpy")
def _slope64(line, m, y):
    return -y / (1.0 + exp(y * m))  # exp may overflow to inf: the quotient is then 0, as it should


@njit(cache=True, inline="always", error_model="numpy")
def _value64(line, m, y, bend):
    z = y * m
    return log1p(exp(-abs(z))) + max(-z, 0.0)


KERNEL = Kernel(EXPONENTIAL, slope32=_slope32, slope64=_slope64, value64=_value64)
