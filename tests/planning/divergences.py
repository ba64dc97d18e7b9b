"""Exact Renyi divergences and those of dp_accounting, to hold prices against."""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations

import numpy as np
from dp_accounting import dp_event
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant
from scipy.special import logsumexp

ORDERS = (2, 3, 5, 8, 16, 32, 64)
FLOAT = 1 + 1e-9  # what a float64 oracle may err by


def divergence(p: np.ndarray, q: np.ndarray, order: int) -> float:
    """The Renyi divergence of two positive measures on the same points, given as logarithms."""
    return float(logsumexp(order * p - (order - 1) * q)) / (order - 1)


def both(p: np.ndarray, q: np.ndarray, order: int) -> float:
    return max(divergence(p, q, order), divergence(q, p, order))


def accountant(event: dp_event.DpEvent) -> dict[int, float]:
    """dp_accounting's Renyi divergences under replacement of one record."""
    made = RdpAccountant(ORDERS, NeighboringRelation.REPLACE_ONE).compose(event)
    return dict(zip(ORDERS, made._rdp, strict=True))


def sampled_sum(values: tuple[int, ...], batch: int, sigma: int, x: np.ndarray) -> np.ndarray:
    """log density of (the sum over a uniform batch) + N(0, sigma^2), up to the grid's constant."""
    sums = Counter(sum(chosen) for chosen in combinations(values, batch))
    logs = [np.log(times) - (x - s) ** 2 / (2 * sigma**2) for s, times in sums.items()]
    density = logsumexp(np.array(logs), axis=0)
    return density - logsumexp(density)


def sampled_divergences(
    others: tuple[int, ...], batch: int, record: int, instead: int, sigma: int
) -> Iterator[tuple[int, float]]:
    """(order, the larger of both directions) between a record and what replaces it."""
    for order in (2, 3, 5, 8, 16):
        reach = 14 * sigma + 4 * batch + 4 * order
        x = np.arange(-reach, reach, sigma / 200)
        p = sampled_sum((*others, record), batch, sigma, x)
        q = sampled_sum((*others, instead), batch, sigma, x)
        yield order, both(p, q, order)


POPULATIONS = [  # the others, then the record and what replaces it
    ((0,) * 3, 1, 2, -2),
    ((0,) * 9, 1, 2, -2),
    ((2,) * 9, 1, 2, -2),
    ((-2,) * 9, 3, 2, -2),
    ((2, -2, 0, 1, 2, -1), 2, -2, 2),
    ((0,) * 19, 2, 2, -2),
]
