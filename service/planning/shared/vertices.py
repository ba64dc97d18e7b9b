"""Sets with vertices that are chosen by their scores: how many there are, in which units they count,
and how far one record moves the difference of two scores."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from math import ceil, dist, frexp, fsum, isqrt
from operator import sub
from typing import Any, TypeVar

from service.errors import PlanRefused
from service.planning.lattice import DERIVATIVE_UNITS
from service.planning.spec import Facts, JobSpec

_U = 2.0**-53
_PAIRS_MAX = 5 * 10**5  # of vertices, times their length
_SCORE_BITS = 31
_WIDTH_MIN = 1e-90

T = TypeVar("T", int, float)


@dataclass(frozen=True)
class Scores:
    candidates: int
    unit: float  # what a unit of a vertex is worth
    pairs: float  # max |<v - v', x>| over vertices and rows, in units of vertices and of features
    margin: float  # max |<v, x>|
    sensitivity: int  # how far one record moves the difference of two scores


def scores(spec: JobSpec, facts: Facts, unit: float | None = None) -> Scores:
    """Of the set's vertices; those that are given by their entries count in `unit`, or in one that
    suits them."""
    d, feature = facts.columns, facts.feature_step or 0.0
    linf, l2, Q = facts.linf_units or 0, facts.l2_units or 0, DERIVATIVE_UNITS
    entry = min(linf, l2)
    match spec.set.kind:
        case "l1_ball":
            radius, pairs = spec.set.radius, 2 * entry
            return Scores(2 * d, radius, pairs, radius * entry * feature, 2 * Q * pairs)
        case "simplex":
            _require_choice(d)
            total, pairs = spec.set.total, min(2 * linf, isqrt(2 * l2**2))
            return Scores(d, total, pairs, total * entry * feature, 2 * Q * pairs)
        case "polytope":
            vertices = spec.set.vertices
            if len(vertices[0]) != d:
                raise PlanRefused(
                    f"every vertex needs {d} entries, one per feature of this dataset with the "
                    f"intercept first, and these have {len(vertices[0])}."
                )
            _require_choice(len(set(vertices)))
            reach = partial(_reach, linf, l2)
            width = largest_pair(vertices, reach) * (1 + 2.0**-40)
            if width < _WIDTH_MIN:
                raise PlanRefused("the vertices differ by less than 1e-90; give them a distance.")
            unit = unit or 2.0 ** (frexp(Q * width)[1] - _SCORE_BITS)
            R = Q * width / unit
            slack = ceil(8 * (d + 1) * _U * facts.rows * R) + 3
            margin = max(reach(v, (0.0,) * d) for v in vertices) * feature
            return Scores(len(vertices), unit, width / unit, margin, ceil(2 * R) + slack)
        case _:
            raise TypeError(spec.set.kind)


def _require_choice(vertices: int) -> None:
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


def _reach(linf: int, l2: int, a: Sequence[float], b: Sequence[float]) -> float:
    """The lesser of Hoelder's two bounds on |<a - b, x>|, up to rounding."""
    return min(fsum(map(abs, map(sub, a, b))) * linf, dist(a, b) * l2)
