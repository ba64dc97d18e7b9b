"""Fit models on data you may not see, within a privacy budget nobody can overspend.

from epsilond import Client, PrivateLogisticRegression

client = Client("http://127.0.0.1:8000", key)
model = PrivateLogisticRegression(client, dataset="visits", epsilon=0.5).fit()
model.predict(frame)
"""

__version__ = "0.1.0"

from epsilond.aio import AsyncClient
from epsilond.client import Client
from epsilond.encode import EncodeError
from epsilond.estimators import (
    NotFittedError,
    PrivateLasso,
    PrivateLinearRegression,
    PrivateLogisticRegression,
    PrivateMean,
    PrivateMLP,
    PrivateQuantileRegression,
    PrivateSVM,
)
from epsilond.http import ApiError, JobFailedError
from epsilond.model import Model
from epsilond.upload import UploadError, draft_schema

__all__ = [
    "ApiError",
    "AsyncClient",
    "Client",
    "EncodeError",
    "JobFailedError",
    "Model",
    "NotFittedError",
    "PrivateLasso",
    "PrivateLinearRegression",
    "PrivateLogisticRegression",
    "PrivateMLP",
    "PrivateMean",
    "PrivateQuantileRegression",
    "PrivateSVM",
    "UploadError",
    "draft_schema",
]
