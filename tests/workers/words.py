"""Streams of words, endless or in short supply."""

from collections.abc import Callable

import numpy as np

from workers.randomness import Randomness, Use

KEY = bytes(range(32))
WORD = 2**64


def stream(index=0):
    return Randomness(KEY, "samplers").stream(Use.NOISE, index)


class Words:
    """An endless supply of words, given out in pieces of at most `piece`; what was drawn counts."""

    def __init__(self, draw: Callable[[], int], piece: int | None = None) -> None:
        self._draw, self._piece = draw, piece
        self._drawn: list[int] = []
        self._given = 0

    def at(self, i: int) -> int:
        while len(self._drawn) <= i:
            self._drawn.append(self._draw())
        return self._drawn[i]

    def words(self, count: int) -> np.ndarray:
        count = count if self._piece is None else min(count, self._piece)
        out = np.array([self.at(self._given + i) for i in range(count)], dtype=np.uint64)
        self._given += count
        out.flags.writeable = False
        return out


def fair(seed: int) -> Callable[[], int]:
    rng = np.random.default_rng(seed)
    return lambda: int(rng.integers(0, WORD, dtype=np.uint64))
