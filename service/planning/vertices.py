"""Vertices of a feasible set, as algorithms that choose one of them by its score see them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import dist, fsum, sqrt
from operator import sub
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from service.errors import PlanRefused
from service.planning.vectors import Floats, length

Sum = NDArray[np.int64]
Vertices = tuple[tuple[float, ...], ...]
T = TypeVar("T", int, float)
_PAIRS_MAX = 5 * 10**5  # of vertices, times their length
_PUBLIC_MAX = 2.0**60  # of the ridge's part of a score: with any sum's it stays within int64


@dataclass(frozen=True)
class Corners:
    """The vertices: where to start, their scores from a sum of gradients, and one by its number."""

    centre: Floats
    # of the ridge's sum of gradients and, in its units, the data's
    scores: Callable[[Floats, Sum], Sum]
    vertex: Callable[[int], Floats]
    opposite: Callable[[int], int]  # the number of a vertex far from this one
    candidates: int

    def far_row(self, number: int, linf: int, l2: int) -> Sum:
        """A row within these norms that sets vertex `number` and its opposite far apart."""
        one = number % self.candidates
        apart = self.vertex(one) - self.vertex(self.opposite(one))
        apart = apart / np.abs(apart).max()
        flat = min(linf, int(l2 / sqrt(np.count_nonzero(apart)))) * np.sign(apart)
        round_ = np.clip(apart * (l2 / length(apart)), -linf, linf)
        best = max(flat, round_, key=lambda row: float((row * apart).sum()))
        return np.asarray(np.trunc(best), dtype=np.int64)


def public_part(pull: Floats) -> Sum:
    """The ridge's part, in whole units: a function of earlier choices alone."""
    return np.rint(np.clip(np.nan_to_num(pull), -_PUBLIC_MAX, _PUBLIC_MAX)).astype(np.int64)


def axis(d: int, place: int, sign: float) -> Floats:
    """The unit vector along one coordinate, or against it."""
    found = np.zeros(d)
    found[place] = sign
    return found


@dataclass(frozen=True)
class RowBounds:
    """What is public of the rows, and in which units slopes are counted."""

    rows: int
    columns: int
    feature_step: float
    linf: int  # of a row, in feature steps
    l2: int
    slope: int  # the largest slope


@dataclass(frozen=True)
class Scores:
    candidates: int
    unit: float  # what a unit of a vertex is worth
    pairs: float  # max |<v - v', x>| over vertices and rows, in units of vertices and of features
    margin: float  # max |<v, x>|
    sensitivity: int  # how far one record moves the difference of two scores


def require_choice(vertices: int) -> None:
    if vertices < 2:
        raise PlanRefused(
            "this set has a single point, which is the answer without any data; give it at least "
            "2 vertices."
        )


def largest_pair(vertices: Sequence[Sequence[T]], reach: Callable[[Any, Any], T]) -> T:
    """An upper bound on |<v - v', x>| over pairs of vertices and rows, of `reach` for one pair: of all
    pairs where they are few, else twice the largest distance from the middle."""
    if len(vertices) ** 2 * len(vertices[0]) <= 2 * _PAIRS_MAX:
        return max(reach(a, b) for a, b in combinations(vertices, 2))
    ends = [min(c) + max(c) for c in zip(*vertices, strict=True)]  # twice the middle
    return max(reach([2 * e for e in v], ends) for v in vertices)


def reach(linf: int, l2: int, a: Sequence[float], b: Sequence[float]) -> float:
    """The lesser of Hoelder's two bounds on |<a - b, x>|, up to rounding."""
    return min(fsum(map(abs, map(sub, a, b))) * linf, dist(a, b) * l2)
