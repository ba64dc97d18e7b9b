"""Prefix sums under continual release: which integer matrix stands between the sums and the noise.

Times t = 1, ..., N have sums s_1, ..., s_N, and at each the prefix s_1 + ... + s_t is wanted. Rows of
K s + z are released for an integer matrix K; every prefix is a linear function of the rows released by
then, so estimating it is post-processing. What a K costs, and why the s_t may depend on what was
released before t: `releases.Prefixes`. Two kinds:

- root: K_tj = k_{t-j}, with k_i the nearest integers to 2^p binom(2i, i)/4^i, the coefficients of
  (1 - x)^(-1/2): the causal square root of the matrix of all prefixes. One row per time, squares of a
  column 4^p (1 + log(N)/pi), about. With integers K s is exact on the lattice, and the inverse is that
  of the integer matrix, so that rounding k_i costs a little noise and no bias.
- tree (KLT algorithm 1): a row per dyadic interval (j 2^l, (j + 1) 2^l] within {1, ..., N}, released
  when its last sum is known; a prefix is a sum over the binary digits of t, and a sum lies in at most
  1 + floor(log2 N) intervals. KLT asks for TREE(t mod N), which at t = N is the empty TREE(0): no
  noise at all. Its intervals stop short of the longest, so a prefix of a power of two would miss its
  last terms. Here positions are 1 to N, and intervals are all there are.

In squares the root is better at every N; in absolute values, for Laplace noise, the tree from N = 64.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import isqrt, sqrt
from typing import Literal

import numpy as np

from service.errors import PlanRefused
from service.planning.lattice import (
    BITS_MAX,
    DERIVATIVE_UNITS,
    SumLattice,
    Target,
    largest_sensitivity,
    norm_of,
    row_units_of,
    sum_lattice,
)
from service.planning.problem import Problem
from service.planning.releases import LaplacePrefixes, Leaf, Prefixes
from service.planning.spec import Facts

PRECISION = 8  # p: in root's integers
_FINE = 2**24  # units of a contribution where rows have no units of their own
_COARSE = 2**10  # units below which rounding would be felt
_HEADROOM = 2**61  # for sums of all rows times the largest integer of K
_GUARD = 128

Mechanism = Literal["root", "tree"]


@dataclass(frozen=True)
class Column:
    """Of K: what the price of a sum depends on."""

    squares: int
    absolutes: int


@lru_cache(maxsize=64)
def root(length: int) -> tuple[int, ...]:
    """k_0, ..., k_{N-1}; in integers, so that they are the same everywhere and for ever."""
    value, found = 1 << (PRECISION + _GUARD), []
    for i in range(length):
        value = value * (2 * i - 1) // (2 * i) if i > 0 else value
        found.append(((value >> (_GUARD - 1)) + 1) >> 1)
    return tuple(found)


def intervals(time: int) -> range:
    """The levels l of the tree's intervals that end at this time."""
    return range((time & -time).bit_length())


def columns(mechanism: Mechanism, length: int) -> tuple[Column, ...]:
    """Of the first time, and the costliest of later ones if there are any."""
    if mechanism == "tree":  # interval 1 of each level; the second sum shares all but the shortest
        one = Column(length.bit_length(), length.bit_length())
        return (one,) if length == 1 else (one, one)
    k = root(length)
    firsts = [k[:stop] for stop in (length, length - 1) if stop > 0]
    return tuple(Column(sum(v * v for v in part), sum(part)) for part in firsts)


def vectors(mechanism: Mechanism, length: int) -> int:
    """Rows of K."""
    if mechanism == "root":
        return length
    return sum(length >> level for level in range(length.bit_length()))


@lru_cache(maxsize=64)
def weights(length: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """a_0, ..., a_{N-1}: under root, prefix t is the sum of a_{t-j} times row j. The coefficients of
    1/((1 - x) k(x))."""
    k = np.array(root(length), dtype=np.float64)
    inverse = np.zeros(length)
    inverse[0] = 1 / k[0]
    for i in range(1, length):
        inverse[i] = -(k[1 : i + 1] @ inverse[i - 1 :: -1]) / k[0]
    found = np.cumsum(inverse)
    found.flags.writeable = False
    return found


@lru_cache(maxsize=256)
def error(mechanism: Mechanism, length: int) -> float:
    """The variance of a prefix's noise, per unit of a row's, averaged over 1 to N."""
    if mechanism == "tree":
        return sum(t.bit_count() for t in range(1, length + 1)) / length
    return float(np.cumsum(weights(length) ** 2).mean())


@lru_cache(maxsize=256)
def burden(mechanism: Mechanism, norm: str, length: int) -> float:
    """The standard deviation of a prefix's noise per unit of a sum's sensitivity, where one release
    of that sum alone would have 1: what mechanisms are compared by."""
    first = columns(mechanism, length)[0]
    size = sqrt(first.squares) if norm == "l2" else float(first.absolutes)
    return size * sqrt(error(mechanism, length))


@dataclass(frozen=True)
class PrefixLattice:
    """Sums of two kinds on one lattice of means: the first of a period and the later ones."""

    first: SumLattice
    later: SumLattice
    release: Prefixes | LaplacePrefixes
    unit: float  # gradient units of a mean per lattice unit

    def variance(self, mechanism: Mechanism, length: int) -> float:
        """Of the noise in one coordinate of an estimated prefix, in gradient units of a mean."""
        return self.first.variance_of(self.unit) * error(mechanism, length)


def calibrate_prefixes(
    goal: Target,
    facts: Facts,
    p: Problem,
    clips: tuple[float, float],
    batches: tuple[int, int],
    mechanism: Mechanism,
    length: int,
) -> PrefixLattice:
    """The lattice on which one period costs at most what the job asks. `clips` bound the derivative
    (rows of bounded norm) or else the gradient, of a record in the first batch and in a later one."""
    norm = norm_of(goal)
    by_row = row_units_of(facts, norm) if p.rowwise else None
    of_row = by_row or 1
    finest = DERIVATIVE_UNITS if by_row is not None else _FINE
    # an entry of a sum of q x is q times that of a row; any other may be as long as its vector
    entry = facts.linf_units if p.units_max > _HEADROOM and by_row is not None else of_row
    largest_of_matrix = root(1)[0] if mechanism == "root" else 1
    headroom = _HEADROOM // (facts.rows * largest_of_matrix * (entry or 1))
    finest = min(finest, headroom, p.units_max // of_row)
    both = columns(mechanism, length)
    both = (both[0], both[-1])
    sizes = [sqrt(c.squares) if norm == "l2" else float(c.absolutes) for c in both]
    means = [clip / batch for clip, batch in zip(clips, batches, strict=True)]
    costliest = max(range(min(length, 2)), key=lambda i: means[i] * sizes[i])

    def largest(which: int, bits: int) -> int:
        """Units of a derivative, or of a contribution, that leaf `which` could have by itself."""
        limit = largest_sensitivity(goal, 1, bits)
        if norm == "l2":
            return isqrt(limit**2 // both[which].squares) // (2 * of_row)
        return limit // both[which].absolutes // (2 * of_row)

    bits = 1
    while bits < BITS_MAX and largest(costliest, bits + 1) <= finest:
        bits += 1
    most = largest(costliest, bits)
    units = [0, 0]
    units[costliest] = most
    units[1 - costliest] = min(
        int(means[1 - costliest] / means[costliest] * most), largest(1 - costliest, bits), finest
    )
    if most < _COARSE or min(units) < 1:
        raise PlanRefused(
            "privacy.epsilon is too small, or the two batches too unlike, for 64-bit lattices; ask a "
            "larger epsilon, or leave parameters.batch and parameters.period out."
        )
    first, later = (
        sum_lattice(goal, facts, p, clip, bits, count * of_row)
        for clip, count in zip(clips, units, strict=True)
    )
    unit = (first, later)[costliest].step / batches[costliest]
    first, later = (
        each.model_copy(update={"step": unit * b, "clip": unit * b * each.contribution_units})
        for each, b in zip((first, later), batches, strict=True)
    )
    kinds = zip((first, later)[: min(length, 2)], both, strict=False)
    leaves = tuple(
        Leaf(sensitivity=2 * each.contribution_units, squares=c.squares, absolutes=c.absolutes)
        for each, c in kinds
    )
    rows = vectors(mechanism, length)
    release = (
        Prefixes(noise="gaussian", scale=2**bits, leaves=leaves, vectors=rows)
        if first.noise == "gaussian"
        else LaplacePrefixes(scale=2**bits, leaves=leaves, vectors=rows)
    )
    return PrefixLattice(first, later, release, unit)
