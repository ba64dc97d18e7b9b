"""Exact noise on the integers, from random words alone.

A sampler reads 64-bit words and compares them; no floating-point number occurs, so none decides an
outcome, and every probability is exactly what it says.

Real-valued deviates are strings of 64-bit digits of which only the needed ones are ever drawn. The
compiled samplers (real.py) work with first digits. Where two are equal (once in 2^64 comparisons)
they stop in front of that sample, and digits.py makes it with as many digits as it takes: the same
algorithm on the same words, in Python. So nothing is truncated, at the speed of the common case.

Normal: Karney 2016, "Sampling exactly from the normal distribution", algorithm N, gives an integer k
and a uniform string x such that k + x is distributed exactly like |N(0, 1)|; rounding 2^bits (k + x)
to the nearest integer needs only the first bits + 1 binary digits of x. Laplace: von Neumann 1951, the
same for Exp(1). Why rounding costs nothing: for an integer q, q + round(Z) = round(q + Z), which is
post-processing of the continuous mechanism.

A choice (selection.py) is the one sampler with floats in it; they decide where their proven error
cannot change the outcome, and decimals with more digits decide the rest.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.randomness import Stream
from workers.samplers.digits import slow_laplace, slow_normal
from workers.samplers.real import TIED, fill_laplace, fill_normal
from workers.samplers.selection import race
from workers.samplers.subsets import fill_sample, list_bits

_BITS_MAX = 56


def rounded_normal(stream: Stream, count: int, bits: int) -> NDArray[np.int64]:
    """`count` independent integers, each the correct rounding of 2^bits N(0, 1)."""
    return _deviates(fill_normal, slow_normal, stream, count, bits, words_each=14)


def rounded_laplace(stream: Stream, count: int, bits: int) -> NDArray[np.int64]:
    """`count` independent integers, each the correct rounding of a Laplace of scale 2^bits."""
    return _deviates(fill_laplace, slow_laplace, stream, count, bits, words_each=6)


def sample(stream: Stream, batch: int, count: int) -> NDArray[np.int64]:
    """`batch` of range(count), in order: every subset of that size is equally likely."""
    if not 0 < batch <= count:
        raise ValueError("a sample has at least one and at most all of its population")
    taken = np.zeros(-(-count // 64), dtype=np.uint64)
    drawn = integers(fill_sample, stream, batch, words_each=2, parameters=(count, taken))
    list_bits(taken, drawn)
    return drawn


def choose(stream: Stream, scores: NDArray[np.int64], scale: int) -> int:
    """The exponential mechanism: index v with probability proportional to exp(-scores[v]/scale), in
    time that does not depend on the scores; see selection.py."""
    if scores.size == 0 or scores.dtype != np.int64 or not 0 < scale < 2**63:
        raise ValueError("needs candidates, and a scale that is a positive integer below 2^63")
    words = _Words(stream, scores.size)
    return race(words.take, scores, scale)


class _Words:
    """The words of a stream that are not used up yet."""

    def __init__(self, stream: Stream, count: int) -> None:
        self._stream = stream
        self.left = stream.words(count)

    def use(self, count: int) -> None:
        self.left = self.left[count:]

    def more(self, count: int) -> None:
        self.left = np.concatenate([self.left, self._stream.words(count)])
        self.left.flags.writeable = False  # like the first ones: one compiled version serves both

    def take(self, count: int) -> NDArray[np.uint64]:
        while self.left.size < count:
            self.more(count - self.left.size)
        taken = self.left[:count]
        self.use(count)
        return taken

    def draw(self) -> int:
        if self.left.size == 0:
            self.more(64)
        word = int(self.left[0])
        self.use(1)
        return word


def _deviates(  # type: ignore[no-untyped-def]
    fill, slow: Callable[[Callable[[], int], int], int], stream: Stream, count, bits, words_each
) -> NDArray[np.int64]:
    """Fill an array with rounded deviates. A sample that lacked words or digits is begun again from
    its first word, so nothing is conditioned on how long a sample took."""
    if not 1 <= bits <= _BITS_MAX:
        raise ValueError(f"bits must be from 1 to {_BITS_MAX}")
    out = np.empty(count, dtype=np.int64)
    words = _Words(stream, words_each * count + 64)
    done = 0
    while done < count:
        made, used, reason = fill(words.left, out[done:], bits)
        done += made
        words.use(used)
        if reason == TIED:
            out[done] = slow(words.draw, bits)
            done += 1
        elif done < count:
            words.more(words_each * (count - done) + 64)
    return out


def integers(  # type: ignore[no-untyped-def]
    fill, stream: Stream, count: int, words_each: int, parameters: tuple[Any, ...]
) -> NDArray[np.int64]:
    """`count` integers by a sampler that needs no digits beyond the first; see subsets.py."""
    out = np.empty(count, dtype=np.int64)
    words = _Words(stream, words_each * count + 64)
    done = 0
    while done < count:
        made, used = fill(words.left, out, done, *parameters)
        done += made
        words.use(used)
        if done < count:
            words.more(words_each * (count - done) + 64)
    return out
