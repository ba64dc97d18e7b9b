"""Positive definite systems, in plain loops: the same bits on any number of threads, which LAPACK's
are not. Inner loops run along rows, for the compiler to make vector code of."""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True, error_model="numpy")
def cholesky(a):
    """The lower L of a = L L', of which the lower triangle is read; and whether there is one."""
    size = a.shape[0]
    left, column = np.tril(a), np.empty(size)
    for k in range(size):
        pivot = left[k, k]
        if not pivot > 0.0:
            return left, False
        root = np.sqrt(pivot)
        for i in range(k, size):
            column[i] = left[i, k] / root
            left[i, k] = column[i]
        for i in range(k + 1, size):
            multiplier, row = column[i], left[i]
            for j in range(k + 1, i + 1):
                row[j] -= multiplier * column[j]
    return left, True


@njit(cache=True, nogil=True, error_model="numpy")
def inverse(left):
    """Of a lower triangular matrix."""
    size = left.shape[0]
    found = np.zeros((size, size))
    for i in range(size):
        row = found[i]
        for k in range(i):
            multiplier, above = left[i, k], found[k]
            for j in range(k + 1):
                row[j] -= multiplier * above[j]
        for j in range(i):
            row[j] /= left[i, i]
        row[i] = 1.0 / left[i, i]
    return found


@njit(cache=True, nogil=True, error_model="numpy")
def solve(left, right):
    """x with L L' x = right."""
    size, x = right.size, right.copy()
    for i in range(size):
        total = x[i]
        for j in range(i):
            total -= left[i, j] * x[j]
        x[i] = total / left[i, i]
    for i in range(size - 1, -1, -1):
        x[i] /= left[i, i]
        for j in range(i):
            x[j] -= left[i, j] * x[i]
    return x
