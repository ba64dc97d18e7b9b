"""Draws that depend on no data: directions, perturbations, initial weights.

They come from the job's keyed stream, so a job that is run again draws the same; but no privacy rests
on them. What is released is bounded by integer arithmetic for any directions whatever, and they might
as well be published. So an ordinary construction in floats will do.
"""

from math import sqrt

import numpy as np
from numpy.typing import NDArray

from service.planning.plan import Plan
from service.planning.spec import ReluNetwork
from workers.kernels.directional import orthonormal
from workers.randomness import Stream

Floats = NDArray[np.float64]


def uniforms(stream: Stream, count: int) -> Floats:
    """In (0, 1)."""
    digits = (stream.words(count)[:count] >> np.uint64(12)).astype(np.float64)
    return np.asarray((digits + 0.5) * 2.0**-52)


def gaussians(stream: Stream, *shape: int) -> Floats:
    """By Box and Muller."""
    count = int(np.prod(shape))
    half = -(-count // 2)
    radius = np.sqrt(-2 * np.log(uniforms(stream, half)))
    angle = 2 * np.pi * uniforms(stream, half)
    both = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    return both[:count].reshape(shape)


def frame(stream: Stream, count: int, dimension: int) -> Floats:
    """[count, dimension]: unit vectors, each uniform on the sphere, orthogonal to one another as far
    as there is room: whole orthonormal bases, and a part of one.

    Independent normals that Gram and Schmidt made orthonormal are uniform over the rotations.
    Orthogonal directions find the slope of a linear function exactly, where independent ones err by
    its size times sqrt(dimension/count).
    """
    parts = []
    for first in range(0, count, dimension):
        size = min(dimension, count - first)
        columns = gaussians(stream, dimension, size)
        rows = np.ascontiguousarray(columns.T)
        orthonormal(rows, columns)
        parts.append(rows)
    return np.concatenate(parts)


def ball(stream: Stream, count: int, dimension: int, radius: float) -> Floats:
    """[count, dimension]: points uniform in the ball."""
    points = gaussians(stream, count, dimension)
    lengths = radius * uniforms(stream, count) ** (1 / dimension)
    return np.asarray(points * (lengths / np.linalg.norm(points, axis=1))[:, None])


def network_start(stream: Stream, columns: int, width: int, row_norm: float) -> Floats:
    """Weights of a network whose units see rows of this norm: hidden ones as long as keeps their
    values about 1, outer ones so that the output is about 1, no offset."""
    hidden = gaussians(stream, width, columns) * (sqrt(2.0) / row_norm)
    outer = gaussians(stream, width) / sqrt(width)
    return np.concatenate([hidden.ravel(), outer, [0.0]])


def start_of(plan: Plan, stream: Stream) -> Floats:
    """Where a run begins: at 0, where a network would stay; at drawn weights."""
    model = plan.spec.model
    if not isinstance(model, ReluNetwork):
        return np.zeros(plan.dimension)
    return network_start(stream, plan.facts.columns, model.width, plan.facts.l2 or 1.0)
