"""What a gradient says of a point: of a noisy one by post-processing, or of the caller's own rows."""

from collections.abc import Mapping, Sequence
from math import isfinite, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.client import Model
from service.datasets.encode import columns_from_rows, encode_features, encode_label
from service.jobs.card import weights_of
from service.planning.algorithms.stationarity_certificate import CONFIDENCE, noise_norm
from service.planning.lattice import SumLattice
from service.planning.plan import CertificateSchedule, Plan
from service.planning.sets import FeasibleSet
from service.planning.spec import JobSpec
from service.planning.vectors import length
from workers.directions import ball
from workers.kernels.losses import exact_slope, slopes_at
from workers.losses import VECTOR_KERNELS
from workers.randomness import Randomness, Use

Floats = NDArray[np.float64]


def certificate_of(plan: Plan, w: Floats, gradient: Floats) -> dict[str, Any]:
    """The card's certificate, from the noisy mean gradient of the data at w."""
    schedule, lattice, of = plan.schedule, plan.lattice, plan.spec.of
    assert isinstance(schedule, CertificateSchedule) and isinstance(lattice, SumLattice)
    assert of is not None
    sums = plan.facts.rows * schedule.points
    noise = noise_norm(lattice, w.size) / sums
    farthest = length(w) + plan.spec.set.l2_radius(w.size)
    return {
        "of": of.job,
        "model_digest": of.digest,
        "radius": schedule.radius,
        **measures(gradient + plan.spec.ridge * w, w, plan.spec.set, schedule.step),
        "noise": sqrt(lattice.variance) / sums,
        "noise_norm": noise,
        "gap_noise": noise * farthest if isfinite(farthest) else None,
        "confidence": CONFIDENCE,
    }


def measures(gradient: Floats, w: Floats, feasible: FeasibleSet, step: float) -> dict[str, Any]:
    """Frank-Wolfe's gap max <g, w - v> over the set, and the lengths of g and of the projected one."""
    lowest, here = feasible.least(gradient), float(np.einsum("i,i->", gradient, w))
    projected = None
    if feasible.has_projection:
        moved = (w - feasible.project(w - step * gradient)) / step
        projected = length(moved)
    return {
        "gradient": gradient.tolist(),
        "gradient_norm": length(gradient),
        "projected_gradient_norm": projected,
        "stationarity_gap": here - lowest if isfinite(lowest) else None,
    }


def certify(
    model: Model,
    rows: Sequence[Mapping[str, object]],
    spec: JobSpec,
    radius: float = 0.0,
    points: int = 64,
    step: float = 1.0,
) -> dict[str, Any]:
    """The same of a model on rows that the caller has, labels included, exactly and for nothing. Loss,
    set and ridge are those of `spec`, as the model's job had them."""
    schema = model.schema
    x = encode_features(schema, columns_from_rows(schema, rows))
    y = encode_label(schema, np.array([row[schema.label.name] for row in rows], dtype=object))
    weights = weights_of(model.card)
    if weights is None:
        raise TypeError("only a model with coefficients has a gradient")
    w = np.array(weights)
    centres = [w]
    if radius > 0:
        public = Randomness(bytes(32), "certify").stream(Use.DIRECTIONS, 0)
        centres = list(w + ball(public, points, w.size, radius))
    gradient = np.mean([mean_gradient(spec, x, y, v) for v in centres], axis=0) + spec.ridge * w
    return {"rows": len(x), "radius": radius, **measures(gradient, w, spec.set, step)}


def mean_gradient(spec: JobSpec, x: Floats, y: Floats, w: Floats) -> Floats:
    """Of a loss of margins over encoded rows."""
    vectors = VECTOR_KERNELS.get(spec.loss.kind)
    if vectors is not None:
        if vectors.mean_gradient is None:
            raise TypeError(f"{spec.loss.kind} is no loss of margins")
        return vectors.mean_gradient(x, y, w)
    slopes = slopes_at(exact_slope(spec.loss), x @ w, y)
    return np.asarray(slopes @ x / len(x))
