"""Scalar derivatives dl/dm of the losses at margin m and label y, inlined into the passes."""

from math import exp

from numba import njit

LOGISTIC, SQUARED = 0, 1
CODES = {"logistic": LOGISTIC, "squared": SQUARED}


@njit(cache=True, inline="always")
def derivative(loss, m, y):  # type: ignore[no-untyped-def]
    if loss == LOGISTIC:
        return -y / (
            1.0 + exp(y * m)
        )  # exp may overflow to inf: the quotient is then 0, as it should
    return m - y
