"""The vertices of a set, and their scores: service/planning/shared/vertices.py."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from service.planning.plan import Plan

Floats = NDArray[np.float64]
Sum = NDArray[np.int64]
_PUBLIC_MAX = 2.0**60  # of the ridge's part of a score: with any sum's it stays within int64


@dataclass(frozen=True)
class Corners:
    """The vertices: where to start, their scores from a sum of gradients, and one by its number."""

    centre: Floats
    scores: Callable[
        [Floats, Sum], Sum
    ]  # of the ridge's sum of gradients and, in its units, the data's
    vertex: Callable[[int], Floats]


def corners_of(plan: Plan, unit: float) -> Corners:
    feasible, d = plan.spec.set, plan.dimension
    match feasible.kind:
        case "l1_ball":
            return Corners(
                centre=np.zeros(d),
                scores=_both_signs,
                vertex=lambda i: feasible.radius * _axis(d, i % d, 1.0 if i < d else -1.0),
            )
        case "simplex":
            return Corners(
                centre=np.full(d, feasible.total / d),
                scores=lambda pull, total: total + public_part(pull),
                vertex=lambda i: feasible.total * _axis(d, i, 1.0),
            )
        case "polytope":
            vertices = np.array(feasible.vertices)
            relative = (vertices - vertices[0]) / unit
            return Corners(
                centre=vertices.mean(axis=0),
                scores=lambda pull, total: (
                    np.rint((relative * total).sum(axis=1)).astype(np.int64)
                    + public_part((relative * pull).sum(axis=1))
                ),
                vertex=lambda i: vertices[i],
            )
        case _:
            raise TypeError(feasible.kind)


def _both_signs(pull: Floats, total: Sum) -> Sum:
    signed = total + public_part(pull)
    return np.concatenate([signed, -signed])


def public_part(pull: Floats) -> Sum:
    """The ridge's part, in whole units: a function of earlier choices alone."""
    return np.rint(np.clip(np.nan_to_num(pull), -_PUBLIC_MAX, _PUBLIC_MAX)).astype(np.int64)


def _axis(d: int, place: int, sign: float) -> Floats:
    axis = np.zeros(d)
    axis[place] = sign
    return axis
