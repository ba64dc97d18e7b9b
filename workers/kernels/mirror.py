"""Mirror steps with h(w) = (1/2)||w - c||_p^2, 1 < p <= 2, over a set that contains c. They act on
released vectors only: post-processing.

grad h(c + u) = ||u||_p^(2-p) sgn(u) |u|^(p-1), whose inverse is the same map for the dual norm.
Over an l1 ball the minimiser of h(w) - <g, w> has a multiplier b >= 0 of the constraint and

    u_j = -c_j clipped to [f(g_j - b), f(g_j + b)],
    f(t) = sgn(t) |t/s|^(1/(p-1)),   s = ||u||_p^(2-p):

between the two the weight is zero. Over a simplex b has any sign and there is no upper end. The
norm falls as s grows, and the sum of the weights as b does, so both are found by bisection.
"""

from math import inf

import numpy as np
from numba import njit
from numpy.typing import NDArray

from service.planning.feasible import BaseSet
from service.planning.vectors import length

Floats = NDArray[np.float64]
_HALVINGS = 60


def mirror_gradient(u: Floats, p: float) -> Floats:
    """grad (1/2)||u||_p^2."""
    largest = float(np.abs(u).max())
    if p == 2 or largest == 0:
        return u
    scaled = np.abs(u) / largest
    size = float((scaled**p).sum() ** (1 / p))
    return np.sign(u) * (scaled / size) ** (p - 1) * (size * largest)


def nearest(
    dual: Floats, centre: Floats, feasible: BaseSet, p: float, reach: float | None
) -> Floats:
    """The minimiser of h(w) - <dual, w> over the set, within `reach` of the centre where p = 2."""
    if p == 2:
        size = length(dual)
        short = reach is None or size <= reach
        return feasible.project(centre + (dual if short else dual * (reach / size)))
    w = centre + mirror_gradient(dual, p / (p - 1))
    size, positive = feasible.l1_norm, feasible.nonnegative
    if size is None or (not positive and float(np.abs(w).sum()) <= size):
        return w
    return _constrained(dual, centre, size, p, positive)


@njit(cache=True)
def _moved(g, c, b, p, positive, u):
    """The u of the docstring for this b; s is sought on a logarithmic scale."""
    low, high = -300.0, 300.0  # of log s
    power = 1.0 / (p - 1.0)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        scale, total, top = np.exp(-middle), 0.0, 0.0
        for j in range(g.size):
            t = (g[j] - b) * scale
            lower = np.sign(t) * abs(t) ** power
            t = (g[j] + b) * scale
            upper = inf if positive else np.sign(t) * abs(t) ** power
            u[j] = min(max(-c[j], lower), upper)
            top = max(top, abs(u[j]))
        if 0.0 < top < inf:
            for j in range(g.size):
                total += (abs(u[j]) / top) ** p
            total = (2.0 - p) * (np.log(top) + np.log(total) / p)  # log of ||u||^(2-p)
        else:
            total = inf if top > 0.0 else -inf
        if total > middle:
            low = middle
        else:
            high = middle


@njit(cache=True)
def _constrained(g, c, size, p, positive):
    """centre + u with ||centre + u||_1 = size, or with entries >= 0 that add up to it."""
    u = np.zeros(g.size)
    far = np.abs(g).max() + np.abs(c).sum() + size  # beyond it all weights are zero
    low, high = (-far if positive else 0.0), far
    if positive:  # b may have to be far below: entries grow without bound as it falls
        _moved(g, c, low, p, positive, u)
        while (c + u).sum() < size:
            low *= 2.0
            _moved(g, c, low, p, positive, u)
    for _ in range(_HALVINGS):
        b = 0.5 * (low + high)
        _moved(g, c, b, p, positive, u)
        if np.abs(c + u).sum() > size:
            low = b
        else:
            high = b
    _moved(g, c, high, p, positive, u)
    w = c + u
    total = np.abs(w).sum()
    if 0.0 < total < inf:
        return w / total * size
    # g is so much longer than the set is large that no b here tells its entries apart: a vertex
    top = np.argmax(g if positive else np.abs(g))
    w[:] = 0.0
    w[top] = -size if g[top] < 0.0 and not positive else size
    return w
