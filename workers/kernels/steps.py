"""A step of averaged SGD, whatever the loss, and the sum of its iterates in groups."""

from collections.abc import Callable
from math import sqrt
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from service.planning.shared.minimiser import GROUP
from workers.arrays import Array, Floats


class Steps(NamedTuple):
    """w <- P(w - size (the mean gradient of `block` rows + strong w)), P onto the ball of `radius`."""

    block: int
    size: float
    strong: float
    radius: float


# a pass over x and y in this order with such steps: moves w and adds iterates to the total
Pass = Callable[[Floats, Floats, Array, Array, NDArray[np.int64], Steps], None]


@njit(cache=True, inline="always", error_model="numpy")
def dot(row, v):
    """In eight interleaved sums: a fixed order, which the compiler keeps in vectors."""
    whole = v.size - v.size % 8
    a = b = c = d = e = f = g = h = 0.0
    for j in range(0, whole, 8):
        a += row[j] * v[j]
        b += row[j + 1] * v[j + 1]
        c += row[j + 2] * v[j + 2]
        d += row[j + 3] * v[j + 3]
        e += row[j + 4] * v[j + 4]
        f += row[j + 5] * v[j + 5]
        g += row[j + 6] * v[j + 6]
        h += row[j + 7] * v[j + 7]
    for j in range(whole, v.size):
        a += row[j] * v[j]
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@njit(cache=True, inline="always", error_model="numpy")
def step(w, move, group, steps):
    """w <- P((1 - size strong) w - move); group += w."""
    shrink = 1.0 - steps.size * steps.strong
    for j in range(w.size):
        w[j] = shrink * w[j] - move[j]
    norm = sqrt(dot(w, w))
    scale = steps.radius / norm if norm > steps.radius else 1.0
    for j in range(w.size):
        w[j] *= scale
        group[j] += w[j]


@njit(cache=True, inline="always", error_model="numpy")
def collect(total, group, position):
    """total += the group, whenever there are GROUP iterates in it."""
    if position % GROUP == GROUP - 1:
        for j in range(group.size):
            total[j] += group[j]
            group[j] = 0.0
