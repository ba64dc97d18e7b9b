"""Samplers that no Plan uses, made of the parts of those that Plans do use.

`uniform_integers` and `permutation` show that `below`, from which subsets are drawn, is uniform.
`discrete_laplace` is what OpenDP's Laplace noise is, so that benchmarks/kernels.py can compare the two
in law.
"""

import numpy as np
from numba import njit

from workers.samplers import integers
from workers.samplers.subsets import below

_HALF = np.uint64(2**63)


def discrete_laplace(stream, count, over, under):
    """`count` independent integers with P(z) proportional to exp(-|z| under/over): scale over/under.

    Canonne, Kamath and Steinke 2020, algorithm 2.
    """
    if not (0 < over < 2**31 and 0 < under < 2**31):
        raise ValueError("the scale must be a ratio of positive integers below 2^31")
    return integers(fill_discrete_laplace, stream, count, words_each=16, parameters=(over, under))


def uniform_integers(stream, count, bound):
    """`count` independent integers, uniform on [0, bound)."""
    if not 0 < bound < 2**63:
        raise ValueError("the bound must be positive and below 2^63")
    return integers(fill_uniform, stream, count, words_each=2, parameters=(bound,))


def permutation(stream, count):
    """A uniform permutation of range(count): Fisher and Yates, with exact uniform integers."""
    order = np.arange(count, dtype=np.int64)
    integers(fill_swaps, stream, max(0, count - 1), words_each=2, parameters=(order,))
    return order


@njit(cache=True, nogil=True)
def _survives(words, at, over, under):
    """(true with probability exp(-over/under), where to read on), for 0 <= over <= under < 2^31.

    Canonne, Kamath and Steinke 2020, algorithm 1: count k while Bernoulli(over/(under k)) succeeds;
    an odd count survives. The count stays far below the 2^31 that would overflow.
    """
    k = 1
    while True:
        draw, at = below(words, at, under * k)
        if at < 0:
            return False, -1
        if draw >= over:
            return k % 2 == 1, at
        k += 1


@njit(cache=True, nogil=True)
def fill_uniform(words, out, done, bound):
    used = 0
    for i in range(done, out.size):
        value, at = below(words, used, bound)
        if at < 0:
            return i - done, used
        out[i] = value
        used = at
    return out.size - done, used


@njit(cache=True, nogil=True)
def fill_swaps(words, out, done, order):
    """Step i of Fisher and Yates exchanges the last unsettled position with one at or before it."""
    used = 0
    for i in range(done, out.size):
        last = order.size - 1 - i
        other, at = below(words, used, last + 1)
        if at < 0:
            return i - done, used
        order[last], order[other] = order[other], order[last]
        out[i] = other
        used = at
    return out.size - done, used


@njit(cache=True, nogil=True)
def fill_discrete_laplace(words, out, done, over, under):
    """X = u + over v is geometric with ratio exp(-1/over); floor(X/under) one with exp(-under/over).
    A sign is drawn, and one of the two zeros passed over."""
    used = 0
    for i in range(done, out.size):
        at = used
        while True:
            u, at = below(words, at, over)
            alive, at = _survives(words, at, u, over)
            if at < 0:
                return i - done, used
            if not alive:
                continue
            v = 0
            while True:
                alive, at = _survives(words, at, 1, 1)
                if at < 0:
                    return i - done, used
                if not alive:
                    break
                v += 1
            magnitude = (u + over * v) // under
            if at >= words.size:
                return i - done, used
            negative = words[at] >= _HALF
            at += 1
            if not (negative and magnitude == 0):
                break
        out[i] = -magnitude if negative else magnitude
        used = at
    return out.size - done, used
