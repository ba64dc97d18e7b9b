"""What the exporters share: a model's weights over encoded rows, the constant among them."""

import numpy as np

from epsilond.encode import Floats
from epsilond.model import Model


def predicting(model: Model) -> Model:
    if not model.predicts:
        raise TypeError(
            "only what predicts can be written so; json, markdown and html hold any card"
        )
    return model


def linear(model: Model) -> Floats:
    """[margins, d]: a margin is a row times the encoded row, whose first entry is the constant."""
    intercept = np.atleast_1d(model.intercept_) / model.encoder.constant
    return np.column_stack([intercept, np.atleast_2d(model.coef_)])
