"""Symmetric matrices, in plain loops: the same bits on any number of threads, which LAPACK's are not.
Inner loops run along rows, for the compiler to make vector code of. What loops need is made outside of
them, for a first job waits for their compilation."""

import numpy as np
from numba import njit

from workers.arrays import Floats

_SWEEPS = 60  # for one eigenvalue; two or three do


def eigen(a: Floats) -> tuple[Floats, Floats]:
    """(values, vectors in rows) of a symmetric matrix, in no order: by Householder's reflections to
    three diagonals, then by the implicit QL method (Golub and Van Loan, 8.3)."""
    left, vectors = a.copy(), np.eye(len(a))
    _tridiagonal(left, vectors, np.zeros(len(a)), np.zeros(len(a)))
    values, beside = left.diagonal().copy(), np.zeros(len(a))
    beside[:-1] = left.diagonal(-1)
    _diagonal(values, beside, vectors)
    return values, vectors


@njit(cache=True, nogil=True, error_model="numpy")
def _combined(rows, by, first, low, out):
    """out[low:] = the sum over i >= first of by[i] rows[i, low:]."""
    sums = out[low:]
    for j in range(sums.size):
        sums[j] = 0.0
    for i in range(first, by.size):
        row, factor = rows[i, low:], by[i]
        for j in range(sums.size):
            sums[j] += factor * row[j]


@njit(cache=True, nogil=True, error_model="numpy")
def _less(rows, by, vector, first, low):
    """rows[i, low:] -= by[i] vector[low:], for i >= first."""
    taken = vector[low:]
    for i in range(first, by.size):
        row, factor = rows[i, low:], by[i]
        for j in range(taken.size):
            row[j] -= factor * taken[j]


@njit(cache=True, nogil=True, error_model="numpy")
def _tridiagonal(a, turned, v, p):
    """a becomes Q' a Q, of which three diagonals are left, and `turned`, 1 at first, Q'; v and p are
    for work. Reflections I - v v' take column after column, and a becomes a - v w' - w v' with
    w = p - (v.p/2) v, p = a v."""
    size, all_of_it = a.shape[0], np.int64(0)
    for k in range(size - 2):
        v[k] = 0.0
        squares = 0.0
        for j in range(k + 1, size):
            v[j] = a[k, j]
            squares += v[j] * v[j]
        length = np.sqrt(squares)
        if length == 0.0:
            continue
        v[k + 1] += length if v[k + 1] > 0.0 else -length
        root = np.sqrt(length * abs(v[k + 1]))
        for j in range(k + 1, size):
            v[j] /= root
        _combined(a, v, k + 1, k, p)
        product = 0.0
        for j in range(k + 1, size):
            product += p[j] * v[j]
        for j in range(k, size):
            p[j] -= 0.5 * product * v[j]
        _less(a, v, p, k, k)
        _less(a, p, v, k, k)
        _combined(turned, v, k + 1, all_of_it, p)
        _less(turned, v, p, k + 1, all_of_it)


@njit(cache=True, nogil=True, error_model="numpy")
def _diagonal(d, e, vectors):
    """QL with implicit shifts, in place; rotations turn pairs of rows of `vectors`."""
    size = d.size
    for low in range(size):
        for _ in range(_SWEEPS):
            high = low
            while high < size - 1:
                if abs(e[high]) <= 2.0**-52 * (abs(d[high]) + abs(d[high + 1])):
                    break
                high += 1
            if high == low:
                break
            g = (d[low + 1] - d[low]) / (2.0 * e[low])
            r = np.sqrt(g * g + 1.0)
            g = d[high] - d[low] + e[low] / (g + (r if g >= 0.0 else -r))
            sine, cosine, shift = 1.0, 1.0, 0.0
            split = False
            for i in range(high - 1, low - 1, -1):
                f, b = sine * e[i], cosine * e[i]
                r = np.sqrt(f * f + g * g)
                e[i + 1] = r
                if r == 0.0:
                    d[i + 1] -= shift
                    e[high] = 0.0
                    split = True
                    break
                sine, cosine = f / r, g / r
                g = d[i + 1] - shift
                r = (d[i] - g) * sine + 2.0 * cosine * b
                shift = sine * r
                d[i + 1] = g + shift
                g = cosine * r - b
                one, other = vectors[i], vectors[i + 1]
                for k in range(size):
                    f = other[k]
                    other[k] = sine * one[k] + cosine * f
                    one[k] = cosine * one[k] - sine * f
            if not split:
                d[low] -= shift
                e[low], e[high] = g, 0.0


@njit(cache=True, nogil=True, error_model="numpy")
def solve(a, right):
    """x with a x = right, for a positive definite a: by a Cholesky factor."""
    size = a.shape[0]
    left, x, column = np.tril(a), right.copy(), np.empty(size)
    for k in range(size):
        root = np.sqrt(left[k, k])
        for i in range(k, size):
            column[i] = left[i, k] / root
            left[i, k] = column[i]
        for i in range(k + 1, size):
            row, by = left[i], column[i]
            for j in range(k + 1, i + 1):
                row[j] -= by * column[j]
        x[k] /= root
        for i in range(k + 1, size):
            x[i] -= x[k] * column[i]
    for i in range(size - 1, -1, -1):
        x[i] /= left[i, i]
        for j in range(i):
            x[j] -= left[i, j] * x[i]
    return x
