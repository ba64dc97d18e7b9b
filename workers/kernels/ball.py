"""A loss with a corner, averaged over a ball about w.

Along one row such an average is over a single number, <v, x> with v uniform in the ball: its
distribution function takes the place of a corner's step, and where slopes are lines its mean up to the
corner is needed too. Rows shorter than X2 count as padded to that length by a coordinate in which w is
zero, so one table serves them all, and nothing is sampled.
"""

from functools import cache
from math import sqrt
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

_TABLE_SIZE = 4097


def _frozen(values: Any) -> NDArray[np.float64]:
    array = np.asarray(values, dtype=np.float64)
    array.flags.writeable = False
    return array


NO_TABLE = _frozen([0.0, 1.0])


@cache
def ball_marginal(dimension: int) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """One coordinate of a uniform point in the unit ball: the width beyond which it hardly falls, and
    on a grid over [-width, width] its distribution function and, in units of the width, its mean over
    what lies below."""
    width = min(1.0, 9 / sqrt(dimension + 2))  # nine standard deviations
    grid = np.linspace(-width, width, _TABLE_SIZE)
    density = (1 - grid**2) ** ((dimension - 1) / 2)
    cumulated = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    moments = density * grid / width
    means = np.concatenate([[0.0], np.cumsum(moments[1:] + moments[:-1])])
    return width, _frozen(cumulated / cumulated[-1]), _frozen(means / cumulated[-1])


@njit(cache=True, inline="always", error_model="numpy")
def below(table, t):
    """The tabulated distribution function at t, linear between its points and flat beyond [-1, 1]."""
    t = t if t == t else 0.0  # noqa: PLR0124 - a NaN has no place in the table
    t = -1.0 if t < -1.0 else t
    t = 1.0 if t > 1.0 else t
    place = (t + 1.0) * (0.5 * (table.size - 1))
    low = min(int(place), table.size - 2)
    return table[low] + (table[low + 1] - table[low]) * (place - low)


@njit(cache=True, inline="always", error_model="numpy")
def inside(slope, low, high, level, tilt):
    """The mean of level + tilt v over moves v = u/curvature within [low, high], and 0 elsewhere: u in
    [-1, 1] has the tabulated distribution."""
    a, b = low * slope.line.curvature, high * slope.line.curvature
    mass = below(slope.table, b) - below(slope.table, a)
    mean = below(slope.means, b) - below(slope.means, a)
    return level * mass + tilt * mean / slope.line.curvature
