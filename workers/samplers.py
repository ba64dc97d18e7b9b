"""Exact noise on the integers: correctly rounded normal and Laplace deviates of scale 2^bits.

A sampler reads random words and compares them; no floating-point number occurs, so none decides an
outcome. A uniform deviate is a string of 64-bit digits of which only the needed ones are drawn: the
second digit is asked for when two first digits are equal (once in 2^64), and so on without end.

Normal: Karney 2016, "Sampling exactly from the normal distribution", algorithm N. It yields an
integer part k and a uniform string x such that k + x is distributed exactly like |N(0,1)|; rounding
2^bits (k + x) to the nearest integer needs only the first bits + 1 binary digits of x.
Laplace: von Neumann 1951: k + x is distributed exactly like Exp(1); rounded the same way.

Why rounding a continuous deviate is as private as the deviate itself: for an integer q,
q + round(Z) = round(q + Z), which is post-processing of the continuous mechanism.
"""

import numpy as np
from numba import njit
from numpy.typing import NDArray

from workers.randomness import Stream

_RAN_OUT, _TIED = 1, 2  # reasons to stop: more words, or longer digit strings, are needed
_X, _P, _Q = 0, 1, 2  # the three deviates that are alive at a time
_ZERO, _ONE, _HALF, _MAX = (np.uint64(v) for v in (0, 1, 2**63, 2**64 - 1))


def rounded_normal(stream: Stream, count: int, bits: int) -> NDArray[np.int64]:
    """`count` independent integers, each the correct rounding of 2^bits N(0, 1)."""
    return _sample(_fill_normal, stream, count, bits, words_each=24)


def rounded_laplace(stream: Stream, count: int, bits: int) -> NDArray[np.int64]:
    """`count` independent integers, each the correct rounding of a Laplace of scale 2^bits."""
    return _sample(_fill_laplace, stream, count, bits, words_each=12)


def _sample(fill, stream: Stream, count: int, bits: int, words_each: int) -> NDArray[np.int64]:  # type: ignore[no-untyped-def]
    """Run a sampler until it has filled the array, feeding it words and longer digit strings.

    It stops in front of the sample it could not finish, and starts that sample again from its first
    word: what was read stays what it was, so nothing is conditioned on how long a sample took.
    """
    if not 1 <= bits <= 62:
        raise ValueError("bits out of range")
    out = np.empty(count, dtype=np.int64)
    done, digits = 0, 2
    words = stream.words(words_each * count + 64)
    while done < count:
        made, used, reason = fill(words, out[done:], bits, digits)
        done += made
        words = words[used:]
        if reason == _TIED:
            digits *= 2
        elif done < count:
            words = np.concatenate([words, stream.words(words_each * (count - done) + 64)])
            words.flags.writeable = False  # like the first ones: one compiled version serves both
    return out


@njit(cache=True, nogil=True)
def _draw(words, state):  # type: ignore[no-untyped-def]
    """The next word; when there is none, note it and return 0 (the sample will be discarded)."""
    if state[0] >= words.size:
        state[1] = _RAN_OUT
        return np.uint64(0)
    state[0] += 1
    return words[state[0] - 1]


@njit(cache=True, nogil=True)
def _fresh(words, state, strings, lengths, i):  # type: ignore[no-untyped-def]
    strings[i, 0] = _draw(words, state)
    lengths[i] = 1


@njit(cache=True, nogil=True)
def _less(words, state, strings, lengths, i, j):  # type: ignore[no-untyped-def]
    """Whether deviate i is below deviate j, drawing further digits of both while they tie."""
    for k in range(strings.shape[1]):
        if lengths[i] == k:
            strings[i, k] = _draw(words, state)
            lengths[i] = k + 1
        if lengths[j] == k:
            strings[j, k] = _draw(words, state)
            lengths[j] = k + 1
        if strings[i, k] != strings[j, k]:
            return strings[i, k] < strings[j, k]
    if state[1] == 0:
        state[1] = _TIED
    return False


@njit(cache=True, nogil=True)
def _choose(words, state, m):  # type: ignore[no-untyped-def]
    """-1, 0 or 1 with probabilities 1/m, 1/m, 1 - 2/m; words past a multiple of m are redrawn."""
    remainder = (_MAX % m + _ONE) % m  # 2^64 mod m
    while state[1] == 0:
        word = _draw(words, state)
        if word <= _MAX - remainder:
            residue = word % m
            return -1 if residue == _ZERO else (0 if residue == _ONE else 1)
    return -1


@njit(cache=True, nogil=True)
def _half_exponential(words, state, strings, lengths):  # type: ignore[no-untyped-def]
    """True with probability exp(-1/2) (algorithm H: the length of a falling run below 1/2)."""
    p, q = _P, _Q
    _fresh(words, state, strings, lengths, p)
    if strings[p, 0] >= _HALF:
        return True
    while state[1] == 0:
        _fresh(words, state, strings, lengths, q)
        if not _less(words, state, strings, lengths, q, p):
            return False
        _fresh(words, state, strings, lengths, p)
        if not _less(words, state, strings, lengths, p, q):
            return True
    return False


@njit(cache=True, nogil=True)
def _accept(words, state, strings, lengths, k):  # type: ignore[no-untyped-def]
    """True with probability exp(-x (2k + x)/(2k + 2)) for the deviate x (algorithm B).

    Each turn goes on with probability (2k + x)/(2k + 2) while fresh deviates keep falling below the
    last one, starting from x; true if it went on an even number of times.
    """
    m = np.uint64(2 * k + 2)
    above, below = _X, _P
    turns = 0
    while state[1] == 0:
        _fresh(words, state, strings, lengths, below)
        if not _less(words, state, strings, lengths, below, above):
            break
        choice = _choose(words, state, m)
        if choice < 0:
            break
        if choice == 0:
            spare = _Q if below == _P else _P  # what stood there is no longer needed
            _fresh(words, state, strings, lengths, spare)
            if not _less(words, state, strings, lengths, spare, _X):
                break
        turns += 1
        above, below = below, (_Q if below == _P else _P)
    return turns % 2 == 0


@njit(cache=True, nogil=True)
def _rounded(k, digit, bits):  # type: ignore[no-untyped-def]
    """2^bits (k + x) to the nearest integer, where `digit` holds the first 64 binary digits of x.

    A tie would need all further digits to be zero: it has probability zero.
    """
    fraction = (digit >> np.uint64(63 - bits)) + _ONE
    return (np.int64(k) << np.int64(bits)) + np.int64(fraction >> _ONE)


@njit(cache=True, nogil=True)
def _fill_normal(words, out, bits, digits):  # type: ignore[no-untyped-def]
    """Fill `out`; returns (samples made, words used by them, why it stopped)."""
    strings = np.empty((3, digits), dtype=np.uint64)
    lengths = np.zeros(3, dtype=np.int64)
    state = np.zeros(2, dtype=np.int64)  # next word; reason to stop
    used = 0
    for i in range(out.size):
        while True:
            k = 0  # N1: geometric with ratio exp(-1/2)
            while state[1] == 0 and _half_exponential(words, state, strings, lengths):
                k += 1
            j = 0  # N2: keep k with probability exp(-k (k - 1)/2)
            while state[1] == 0 and j < k * (k - 1):
                if not _half_exponential(words, state, strings, lengths):
                    break
                j += 1
            if state[1] == 0 and j < k * (k - 1):
                continue
            _fresh(words, state, strings, lengths, _X)  # N3
            j = 0  # N4: keep x with probability exp(-x (2k + x)/2), in k + 1 equal shares
            while state[1] == 0 and j <= k:
                if not _accept(words, state, strings, lengths, k):
                    break
                j += 1
            if state[1] != 0 or j > k:
                break
        sign = _draw(words, state)
        if state[1] != 0:
            return i, used, state[1]
        magnitude = _rounded(k, strings[_X, 0], bits)
        out[i] = magnitude if sign >= _HALF else -magnitude
        used = state[0]
    return out.size, used, 0


@njit(cache=True, nogil=True)
def _fill_laplace(words, out, bits, digits):  # type: ignore[no-untyped-def]
    strings = np.empty((3, digits), dtype=np.uint64)
    lengths = np.zeros(3, dtype=np.int64)
    state = np.zeros(2, dtype=np.int64)
    used = 0
    for i in range(out.size):
        k = 0
        while state[1] == 0:  # a falling run from x of odd length keeps x; even: one more unit
            _fresh(words, state, strings, lengths, _X)
            above, below, length = _X, _P, 1
            while state[1] == 0:
                _fresh(words, state, strings, lengths, below)
                if not _less(words, state, strings, lengths, below, above):
                    break
                length += 1
                above, below = below, (_Q if below == _P else _P)
            if length % 2 == 1:
                break
            k += 1
        sign = _draw(words, state)
        if state[1] != 0:
            return i, used, state[1]
        magnitude = _rounded(k, strings[_X, 0], bits)
        out[i] = magnitude if sign >= _HALF else -magnitude
        used = state[0]
    return out.size, used, 0
