"""Scalar derivatives dl/dm of the losses at margin m and label y, inlined into the passes. Privacy
rests on none of them: what they return is clipped and quantised."""

from math import exp

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

LOGISTIC, SQUARED = 0, 1
CODES = {"logistic": LOGISTIC, "squared": SQUARED}

_f = np.float32
_i = np.int32
_ONE, _HALF, _LOWEST = _f(1.0), _f(0.5), _f(-80.0)
_LOG2_E, _LN_2_HIGH, _LN_2_LOW = _f(1.4426950408889634), _f(0.693359375), _f(-2.12194440e-4)
_C2, _C3, _C4, _C5, _C6 = (_f(1 / n) for n in (2, 6, 24, 120, 720))


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
def derivative32(loss, m, y):
    """For fixed-point rows: single precision, branch-free, no call, so that the compiler turns a loop
    over records into vector code whose result does not depend on how wide the vectors are. The error
    is below 2^-20, far below the 2^-15 to which derivatives are quantised."""
    if loss == LOGISTIC:
        return _f(_f(-y) * _one_over_one_plus_exp(_f(y * m)))
    return _f(m - y)


@njit(cache=True, inline="always", error_model="numpy")
def derivative64(loss, m, y):
    """For float64 rows, whose margins may be of any size."""
    if loss == LOGISTIC:
        return -y / (
            1.0 + exp(y * m)
        )  # exp may overflow to inf: the quotient is then 0, as it should
    return m - y
