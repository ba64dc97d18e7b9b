"""Samplers of integers by integers, compiled; see the package.

Each is called as fill(words, out, done, ...) and goes on from sample `done`; it returns how many
samples it made and how many words they used, and stops in front of one that lacks words. `at` is -1
once words have run out.
"""

import numpy as np
from numba import njit

_ONE, _HALF, _MAX = (np.uint64(v) for v in (1, 2**63, 2**64 - 1))
_EIGHT, _BYTE = np.uint64(8), np.uint64(255)


@njit(cache=True, nogil=True)
def _below(words, at, bound):  # type: ignore[no-untyped-def]
    """(a uniform integer in [0, bound), where to read on): words beyond the last full multiple of
    `bound` are passed over, so every residue is equally likely."""
    m = np.uint64(bound)
    limit = _MAX - (_MAX % m + _ONE) % m
    while 0 <= at < words.size:
        word = words[at]
        at += 1
        if word <= limit:
            return np.int64(word % m), at
    return np.int64(0), -1


@njit(cache=True, nogil=True)
def _survives(words, at, over, under):  # type: ignore[no-untyped-def]
    """(true with probability exp(-over/under), where to read on), for 0 <= over <= under < 2^31.

    Canonne, Kamath and Steinke 2020, algorithm 1: count k while Bernoulli(over/(under k)) succeeds;
    an odd count survives. The count stays far below the 2^31 that would overflow.
    """
    k = 1
    while True:
        draw, at = _below(words, at, under * k)
        if at < 0:
            return False, -1
        if draw >= over:
            return k % 2 == 1, at
        k += 1


@njit(cache=True, nogil=True)
def fill_uniform(words, out, done, bound):  # type: ignore[no-untyped-def]
    used = 0
    for i in range(done, out.size):
        value, at = _below(words, used, bound)
        if at < 0:
            return i - done, used
        out[i] = value
        used = at
    return out.size - done, used


@njit(cache=True, nogil=True)
def fill_swaps(words, out, done, order):  # type: ignore[no-untyped-def]
    """Step i of Fisher and Yates exchanges the last unsettled place with one at or before it."""
    used = 0
    for i in range(done, out.size):
        last = order.size - 1 - i
        other, at = _below(words, used, last + 1)
        if at < 0:
            return i - done, used
        order[last], order[other] = order[other], order[last]
        out[i] = other
        used = at
    return out.size - done, used


@njit(cache=True, nogil=True)
def fill_sample(words, out, done, count, taken):  # type: ignore[no-untyped-def]
    """Floyd's algorithm: for i = count - batch, ..., count - 1 take a uniform integer of [0, i], or i
    itself if that one was taken before. `taken` has a bit for each integer of [0, count)."""
    used = 0
    for k in range(done, out.size):
        i = count - out.size + k
        value, at = _below(words, used, i + 1)
        if at < 0:
            return k - done, used
        if taken[value >> 6] >> np.uint64(value & 63) & _ONE:
            value = i
        taken[value >> 6] |= _ONE << np.uint64(value & 63)
        out[k] = value
        used = at
    return out.size - done, used


@njit(cache=True, nogil=True)
def list_bits(taken, out):  # type: ignore[no-untyped-def]
    """out = the places of the bits that are set, in order."""
    k = 0
    for i in range(taken.size):
        word, place = taken[i], 64 * i
        while word:
            if word & _BYTE == 0:
                word >>= _EIGHT
                place += 8
                continue
            if word & _ONE:
                out[k] = place
                k += 1
            word >>= _ONE
            place += 1


@njit(cache=True, nogil=True)
def fill_discrete_laplace(words, out, done, over, under):  # type: ignore[no-untyped-def]
    """X = u + over v is geometric with ratio exp(-1/over); floor(X/under) one with exp(-under/over).
    A sign is drawn, and one of the two zeros passed over."""
    used = 0
    for i in range(done, out.size):
        at = used
        while True:
            u, at = _below(words, at, over)
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
