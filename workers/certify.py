"""The measures of a model on rows that the caller has: for the command line, never for a worker."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.datasets.encode import columns_from_rows, encode_features, encode_label
from service.datasets.schema import Schema
from service.jobs.card import weights_of
from service.planning.certificate import measures
from service.planning.spec import JobSpec
from workers.directions import ball
from workers.kernels.losses import exact_slope, slopes_at
from workers.losses import VECTOR_KERNELS
from workers.randomness import Randomness, Use

Floats = NDArray[np.float64]


def certify(
    card: dict[str, Any],
    rows: Sequence[Mapping[str, object]],
    spec: JobSpec,
    radius: float = 0.0,
    points: int = 64,
    step: float = 1.0,
) -> dict[str, Any]:
    """A model's certificate on rows with labels, exactly and for nothing. Loss, set and ridge are
    those of `spec`, as the model's job had them."""
    schema = Schema.model_validate(card["encoder"])
    x = encode_features(schema, columns_from_rows(schema, rows))
    y = encode_label(schema, np.array([row[schema.label.name] for row in rows], dtype=object))
    weights = weights_of(card)
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
