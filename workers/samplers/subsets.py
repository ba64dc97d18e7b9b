"""Uniform integers and uniform subsets, compiled; see the package.

A sampler of integers is called as fill(words, out, done, ...) and goes on from sample `done`; it
returns how many samples it made and how many words they used, and stops in front of one that lacks
words. `at` is -1 once words have run out.
"""

import numpy as np
from numba import njit

_ONE, _MAX = np.uint64(1), np.uint64(2**64 - 1)
_EIGHT, _BYTE = np.uint64(8), np.uint64(255)


@njit(cache=True, nogil=True)
def below(words, at, bound):  # type: ignore[no-untyped-def]
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
def fill_sample(words, out, done, count, taken):  # type: ignore[no-untyped-def]
    """Floyd's algorithm: for i = count - batch, ..., count - 1 take a uniform integer of [0, i], or i
    itself if that one was taken before. `taken` has a bit for each integer of [0, count)."""
    used = 0
    for k in range(done, out.size):
        i = count - out.size + k
        value, at = below(words, used, i + 1)
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
    """out = the positions of the bits that are set, in order."""
    k = 0
    for i in range(taken.size):
        word, position = taken[i], 64 * i
        while word:
            if word & _BYTE == 0:
                word >>= _EIGHT
                position += 8
                continue
            if word & _ONE:
                out[k] = position
                k += 1
            word >>= _ONE
            position += 1
