"""A fitted estimator by skops, which saves what scikit-learn's tools take and runs no code to load it.

    skops.io.load("job_1.skops", trusted=TRUSTED)

Whoever loads it needs this package too, and needs to trust what is named below.
"""

from importlib import import_module
from typing import Any

from epsilond import estimators
from epsilond.cells import KEYS
from epsilond.encode import Encoder
from epsilond.model import Model

OF_LOSS: dict[str | None, type[estimators.PrivateEstimator]] = {
    "logistic": estimators.PrivateLogisticRegression,
    "softmax": estimators.PrivateLogisticRegression,
    "hinge": estimators.PrivateSVM,
    "smoothed_hinge": estimators.PrivateSVM,
    "geometric_median": estimators.PrivateMean,
    "pinball": estimators.PrivateQuantileRegression,
}
_OTHERS = (estimators.PrivateClassifier, estimators.PrivateRegressor)
_PARTS: tuple[Any, ...] = (Model, Encoder, *KEYS.values(), *OF_LOSS.values(), *_OTHERS)
TRUSTED = sorted({f"{one.__module__}.{one.__qualname__}" for one in _PARTS})


def of_model(model: Model) -> estimators.PrivateEstimator:
    """The estimator that would have fitted it, or one that predicts alike."""
    usual = _OTHERS[model.encoder.classes is None]
    return OF_LOSS.get(model.loss, usual).from_model(model)


def write(model: Model) -> bytes:
    try:
        io = import_module("skops.io")
    except ImportError:
        raise TypeError("skops is not installed: pip install epsilond-client[skops]") from None
    data: bytes = io.dumps(of_model(model))
    return data
