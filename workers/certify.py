"""The measures of a model on rows that the caller has: for the command line, never for a worker."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.datasets.encode import columns_from_rows, encode_features, encode_label
from service.jobs.card import weights_of
from service.model import Model
from service.planning.losses import scalar
from service.planning.spec import JobSpec
from workers.directions import ball
from workers.kernels.losses import as_slope, slopes_at
from workers.measures import measures
from workers.randomness import Randomness, Use

Floats = NDArray[np.float64]


def certify(
    model: Model,
    rows: Sequence[Mapping[str, object]],
    spec: JobSpec,
    radius: float = 0.0,
    points: int = 64,
    step: float = 1.0,
) -> dict[str, Any]:
    """A model's certificate on rows with labels, exactly and for nothing. Loss, set and ridge are
    those of `spec`, as the model's job had them."""
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
    if spec.loss.kind == "softmax":
        margins = x @ w.reshape(-1, x.shape[1]).T
        chances = np.exp(margins - margins.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        chances[np.arange(len(y)), y.astype(int)] -= 1
        return np.asarray((chances.T @ x).ravel() / len(x))
    slopes = slopes_at(as_slope(scalar(spec.loss)), x @ w, y)
    return np.asarray(slopes @ x / len(x))
