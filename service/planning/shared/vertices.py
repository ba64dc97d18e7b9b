"""Sets with vertices that are chosen by their scores: how far one record moves two of them apart."""

from functools import partial
from math import isqrt
from typing import NamedTuple

from service.planning.lattice import DERIVATIVE_UNITS
from service.planning.spec import Facts, JobSpec
from service.planning.vertices import RowBounds, Scores, Vertices, largest_pair

VERTEX_BITS = 32  # binary places of a vertex given by its entries, for a running sum
SLACK = 3  # what rounding a running sum and its scores may move two of them apart
_COARSER = 8  # than the units of `scores`, for scores of running sums that stay within int64


def scores(spec: JobSpec, facts: Facts, unit: float | None = None) -> Scores:
    """Of the set's vertices; those that are given by their entries count in `unit`, or in one that
    suits them."""
    bounds = RowBounds(
        rows=facts.rows,
        columns=facts.columns,
        feature_step=facts.feature_step or 0.0,
        linf=facts.linf_units or 0,
        l2=facts.l2_units or 0,
        slope=DERIVATIVE_UNITS,
    )
    return spec.set.scores(bounds, unit)


class Shape(NamedTuple):
    """The polytope as scores see it."""

    vertices: int  # J
    unit: float  # what a unit of a vertex is worth
    pairs: int  # P: max |<v - v', x>| over vertices and rows, in units of vertices and of features
    width: float  # A: the same in units of margins


def shape(spec: JobSpec, facts: Facts, unit: float | None = None) -> tuple[Shape, float]:
    """The polytope's shape, in `unit` or in one that suits it, and the largest margin over it."""
    s, feature = scores(spec, facts), facts.feature_step or 0.0
    if spec.set.listed is None:
        pairs = int(s.pairs)
        return Shape(s.candidates, s.unit, pairs, pairs * s.unit * feature), s.margin
    unit = unit or s.unit * _COARSER
    fixed = fixed_point(spec.set.listed, unit)
    reach = partial(_reach, facts.linf_units or 0, facts.l2_units or 0)
    fine = largest_pair(fixed, reach)
    pairs = -(-fine // 2**VERTEX_BITS)
    return Shape(s.candidates, unit, pairs, pairs * unit * feature), s.margin


def fixed_point(vertices: Vertices, unit: float) -> list[list[int]]:
    """The vertices less the first one, in units of `unit` 2^-VERTEX_BITS: the same on any machine."""
    return [
        [round((a - b) / unit * 2.0**VERTEX_BITS) for a, b in zip(vertex, vertices[0], strict=True)]
        for vertex in vertices
    ]


def _reach(linf: int, l2: int, a: list[int], b: list[int]) -> int:
    """The lesser of Hoelder's two bounds on |<a - b, x>|, in integers."""
    v = [p - q for p, q in zip(a, b, strict=True)]
    return min(sum(map(abs, v)) * linf, (isqrt(sum(e * e for e in v)) + 1) * l2)
