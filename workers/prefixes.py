"""Prefix sums as they grow: the exact rows that are due at each time, and from their noisy values the
estimate of the prefix. What the matrix is: service/planning/shared/prefixes.py."""

from typing import Any

import numpy as np

from service.planning.shared.prefixes import Mechanism, intervals, root, weights
from workers.arrays import Floats, Sum

Row = tuple[Sum, Sum]  # what the latest sums are multiplied with, the newest last; and the product


class Root:
    """One row per time: a combination of all sums so far, in integers."""

    def __init__(self, length: int, size: int) -> None:
        self._matrix = np.array(root(length), dtype=np.int64)
        self._weights = weights(length)
        self._sums: Sum = np.zeros((length, size), dtype=np.int64)
        self._released: Floats = np.zeros((length, size))
        self._time = 0

    def due(self, latest: Sum) -> list[Row]:
        time = self._time = self._time + 1
        self._sums[time - 1] = latest
        row = self._matrix[time - 1 :: -1]
        return [(row, row @ self._sums[:time])]

    def estimate(self, noisy: list[Floats]) -> Floats:
        time = self._time
        self._released[time - 1] = noisy[0]
        weights = self._weights[time - 1 :: -1]
        return np.asarray(np.einsum("t,td->d", weights, self._released[:time]))  # as in `length`


class Tree:
    """One row per dyadic interval that ends now; of each length only the latest is still needed."""

    def __init__(self, length: int, size: int) -> None:
        levels = length.bit_length()
        self._length = length
        self._latest: list[Any] = [None] * levels  # exact
        self._released: list[Any] = [None] * levels
        self._time = 0

    def due(self, latest: Sum) -> list[Row]:
        if self._time == self._length:
            raise IndexError("the period is over")
        self._time += 1
        rows, total = [], latest
        for level in intervals(self._time):
            # where the interval before was of this length, the next longer one ends here too
            rows.append((np.ones(1 << level, dtype=np.int64), total))
            before, self._latest[level] = self._latest[level], total
            total = total if before is None else before + total
        return rows

    def estimate(self, noisy: list[Floats]) -> Floats:
        for level, row in enumerate(noisy):
            self._released[level] = row
        parts = [row for level, row in enumerate(self._released) if self._time >> level & 1]
        return np.asarray(np.sum(parts, axis=0))


def prefixes(mechanism: Mechanism, length: int, size: int) -> Root | Tree:
    return Root(length, size) if mechanism == "root" else Tree(length, size)
