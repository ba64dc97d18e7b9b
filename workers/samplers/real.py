"""Normal and Laplace deviates with first digits only, compiled; see the package."""

import numpy as np
from numba import njit

RAN_OUT, TIED = 1, 2  # why a sampler stopped: it needs more words, or more digits
_ZERO, _ONE, _HALF, _MAX = (np.uint64(v) for v in (0, 1, 2**63, 2**64 - 1))
_ROOT_E = np.uint64(0x9B4597E37CB04FF3)  # the first digit of exp(-1/2)


@njit(cache=True, nogil=True)
def _rounded(k, digit, bits):  # type: ignore[no-untyped-def]
    """2^bits (k + x) to the nearest integer, where `digit` holds the first 64 binary digits of x.

    A tie would need all further digits to be zero: it has probability zero.
    """
    fraction = (digit >> np.uint64(63 - bits)) + _ONE
    return (np.int64(k) << np.int64(bits)) + np.int64(fraction >> _ONE)


@njit(cache=True, nogil=True)
def fill_normal(words, out, bits):  # type: ignore[no-untyped-def]
    """Fill `out`; returns (samples made, words used by them, why it stopped).

    Comments name the steps of algorithm N. A word counts as success of Bernoulli(exp(-1/2)) when it
    is below the digits of exp(-1/2).
    """
    size = words.size
    at = 0
    for i in range(out.size):
        start = at
        while True:
            k = 0  # N1: the number of successes before a failure
            while True:
                if at == size:
                    return i, start, RAN_OUT
                u = words[at]
                at += 1
                if u >= _ROOT_E:
                    if u == _ROOT_E:
                        return i, start, TIED
                    break
                k += 1
            trials = k * (k - 1)  # N2: keep k if all of these succeed
            while trials > 0:
                if at == size:
                    return i, start, RAN_OUT
                u = words[at]
                at += 1
                if u >= _ROOT_E:
                    if u == _ROOT_E:
                        return i, start, TIED
                    break
                trials -= 1
            if trials > 0:
                continue
            if at == size:
                return i, start, RAN_OUT
            x = words[at]  # N3
            at += 1
            m = np.uint64(2 * k + 2)
            limit = _MAX - (_MAX % m + _ONE) % m  # words above it would favour small residues
            shares = k + 1  # N4: keep x with probability exp(-x (2k + x)/2), in k + 1 equal shares
            while shares > 0:
                above = x  # algorithm B: a falling run of deviates from x, each kept going with
                length = 0  # probability (2k + x)/(2k + 2); even lengths accept
                while True:
                    if at + 1 >= size:
                        return i, start, RAN_OUT
                    below = words[at]
                    at += 1
                    if below >= above:
                        if below == above:
                            return i, start, TIED
                        break
                    r = words[at]
                    at += 1
                    while r > limit:
                        if at == size:
                            return i, start, RAN_OUT
                        r = words[at]
                        at += 1
                    residue = r % m
                    if residue == _ZERO:
                        break
                    if residue == _ONE:
                        if at == size:
                            return i, start, RAN_OUT
                        z = words[at]
                        at += 1
                        if z >= x:
                            if z == x:
                                return i, start, TIED
                            break
                    length += 1
                    above = below
                if length % 2 == 1:
                    break
                shares -= 1
            if shares == 0:
                break
        if at == size:
            return i, start, RAN_OUT
        magnitude = _rounded(k, x, bits)
        out[i] = magnitude if words[at] >= _HALF else -magnitude
        at += 1
    return out.size, at, 0


@njit(cache=True, nogil=True)
def fill_laplace(words, out, bits):  # type: ignore[no-untyped-def]
    """The same for Laplace: a falling run from x of odd length keeps x, an even one adds a unit."""
    size = words.size
    at = 0
    for i in range(out.size):
        start = at
        k = 0
        while True:
            if at == size:
                return i, start, RAN_OUT
            x = words[at]
            at += 1
            above, length = x, 1
            while True:
                if at == size:
                    return i, start, RAN_OUT
                below = words[at]
                at += 1
                if below >= above:
                    if below == above:
                        return i, start, TIED
                    break
                above = below
                length += 1
            if length % 2 == 1:
                break
            k += 1
        if at == size:
            return i, start, RAN_OUT
        magnitude = _rounded(k, x, bits)
        out[i] = magnitude if words[at] >= _HALF else -magnitude
        at += 1
    return out.size, at, 0
