"""Estimators in the manner of scikit-learn, which they do not need.

model = PrivateLogisticRegression(client, dataset="visits", epsilon=0.5)
model.quote()        # free: what it would cost and add
model.fit()          # charged to the dataset's budget
model.predict(frame)

The rows stay where they are: fit() takes no data, but the name or id of a dataset. All else is as in
scikit-learn: parameters are attributes, what was learned ends in an underscore, estimators are cloned,
and predict inside a Pipeline. `coef_` has a number per encoded column; `coef_names_` says which.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from epsilond.client import Client
from epsilond.encode import JSON, Floats
from epsilond.html import as_html
from epsilond.http import JobFailedError
from epsilond.model import Model
from epsilond.results import Comparison, Dataset, Job, Quote, Result
from epsilond.tags import tags


class NotFittedError(ValueError, AttributeError):
    """There is no model yet."""


@dataclass(eq=False, repr=False)
class PrivateEstimator:
    """Common to all. `client` defaults to one at EPSILOND_URL with EPSILOND_KEY; `dataset` is a name
    or an id; `delta` defaults to the account's; `algorithm`, `set`, `ridge` and `parameters` are those
    of the job spec, and `progress` shows a bar."""

    client: Client | None = None
    dataset: str | None = None
    epsilon: float = 1.0
    delta: float | None = None
    algorithm: str = "auto"
    ridge: float = 0.0
    set: str | Mapping[str, Any] | None = None
    parameters: Mapping[str, Any] | None = None
    progress: bool | None = None

    kind: ClassVar[str | None] = None
    labels: ClassVar[tuple[str, ...]] = ()
    model_: Model = field(init=False)
    job_: Job = field(init=False)

    # what is asked

    def loss_of(self, dataset: Dataset) -> JSON:
        """The loss that suits the dataset's label, as a job spec has it."""
        raise NotImplementedError

    def more_of_spec(self) -> JSON:
        """What this estimator says in a job spec besides."""
        return {}

    def spec(self, dataset: str | None = None) -> JSON:
        """The job that fit() would submit."""
        name = dataset or self.dataset
        if name is None:
            raise ValueError("which dataset? give `dataset`, its name or id")
        found = self._client().find(name)
        label = found.schema["label"]
        if self.labels and label["kind"] not in self.labels:
            raise ValueError(
                f"{type(self).__name__} needs a label that is {' or '.join(self.labels)}; "
                f"{label['name']!r} of {found.name!r} is {label['kind']}"
            )
        privacy = {"epsilon": self.epsilon} | ({} if self.delta is None else {"delta": self.delta})
        own = {"set": self.set, "parameters": self.parameters and dict(self.parameters)}
        return {
            "dataset": found.id,
            "algorithm": self.algorithm,
            "loss": self.loss_of(found),
            "privacy": privacy,
            "ridge": self.ridge,
            **{name: value for name, value in own.items() if value is not None},
            **self.more_of_spec(),
        }

    def quote(self, dataset: str | None = None) -> Quote:
        """The plan and its price, whether it fits, and what would: free."""
        return self._client().quote(self.spec(dataset))

    def compare(self, dataset: str | None = None) -> Comparison:
        """The same job by every algorithm, best first: free."""
        return self._client().compare(self.spec(dataset))

    def fit(self, X: str | None = None, y: None = None) -> Self:
        """Submit, wait, fetch. `X` may be the name or id of a dataset, instead of `dataset`."""
        if (X is not None and not isinstance(X, str)) or y is not None:
            raise TypeError(
                "rows stay with the service: client.upload(name, table, schema=...) takes them there, "
                "and fit(name) fits a model on a dataset by its name"
            )
        client = self._client()
        job = client.wait(client.submit(self.spec(X)).id, progress=self.progress)
        if job.state != "succeeded":
            raise JobFailedError(job)
        self.job_ = job
        self.certificate_: Result = client.record(job.id)
        return self._adopt(client.model(job.id))

    def evaluate(self, epsilon: float, delta: float | None = None) -> Result:
        """How good the model is on the rows that the dataset holds out, with intervals: a job of its
        own, which charges `epsilon`."""
        client, job = self._client(), self._fitted().card["job"]
        privacy = {"epsilon": epsilon} | ({} if delta is None else {"delta": delta})
        dataset = client.job(job).dataset
        asked = {"dataset": dataset, "algorithm": "model-evaluation", "of": job, "privacy": privacy}
        done = client.wait(client.submit(asked).id, progress=self.progress)
        if done.state != "succeeded":
            raise JobFailedError(done)
        return client.evaluation(done.id)

    @classmethod
    def from_model(cls, model: Model | Mapping[str, Any], **parameters: Any) -> Self:
        """A fitted estimator of a published model or its card."""
        return cls(**parameters)._adopt(model if isinstance(model, Model) else Model(dict(model)))

    def _client(self) -> Client:
        return Client() if self.client is None else self.client

    # what was learned

    def _adopt(self, model: Model) -> Self:
        self.model_ = model
        self.guarantee_: JSON = model.card["guarantee"]
        self.feature_names_in_ = np.array(model.encoder.names, dtype=object)
        self.n_features_in_ = len(model.encoder.names)
        self.coef_names_ = np.array(model.feature_names_in_, dtype=object)
        return self

    def _fitted(self) -> Model:
        if not self.__sklearn_is_fitted__():
            known = sys.modules.get("sklearn.exceptions")  # whose own is what its tools catch
            kind = NotFittedError if known is None else known.NotFittedError
            raise kind(f"this {type(self).__name__} is not fitted yet; call fit()")
        return self.model_

    # what scikit-learn asks

    @classmethod
    def _names(cls) -> list[str]:
        return [each.name for each in fields(cls) if each.init]

    def get_params(self, deep: bool = True) -> JSON:
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **parameters: Any) -> Self:
        for name, value in parameters.items():
            if name not in self._names():
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {self}. "
                    f"Valid parameters are: {self._names()!r}."
                )
            setattr(self, name, value)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        return tags(self.kind, multi_class="categorical" in self.labels)

    def __repr__(self) -> str:
        changed = (
            f"{each.name}={getattr(self, each.name)!r}"
            for each in fields(self)
            if each.init and getattr(self, each.name) is not each.default
        )
        return f"{type(self).__name__}({', '.join(changed)})"

    def _repr_html_(self) -> str:
        facts = {name: value for name, value in self.get_params().items() if value is not None}
        if self.__sklearn_is_fitted__():
            facts |= {"job": self.model_.card["job"], "by": self.model_.card["algorithm"]}
        return as_html(type(self).__name__, facts)


@dataclass(eq=False, repr=False)
class PrivateClassifier(PrivateEstimator):
    """Predicts the declared values of a label: as numbers where all of them spell whole numbers."""

    kind: ClassVar[str | None] = "classifier"
    labels: ClassVar[tuple[str, ...]] = ("binary",)
    classes_: NDArray[Any] = field(init=False)

    def _adopt(self, model: Model) -> Self:
        super()._adopt(model)
        if (classes := model.encoder.classes) is None:
            raise ValueError("the model predicts a number; it is a regression's")
        self.classes_ = _native(classes)
        if model.network is None:
            self.coef_ = np.atleast_2d(model.coef_)
            self.intercept_ = np.atleast_1d(model.intercept_)
        return self

    def decision_function(self, X: Any) -> Floats:
        return self._fitted().decision_function(X)

    def predict(self, X: Any) -> NDArray[Any]:
        scores = self.decision_function(X)
        return np.asarray(self.classes_[Model.chosen(scores)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows that are predicted right, values compared as the schema says."""
        scores, key = self.decision_function(X), self.model_.encoder.key
        told = {key(value): i for i, value in enumerate(self.classes_)}
        right = [told.get(key(value)) for value in np.asarray(y).tolist()]
        hits = np.array(right, dtype=object) == Model.chosen(scores)
        return float(np.average(hits.astype(float), weights=sample_weight))


@dataclass(eq=False, repr=False)
class PrivateRegressor(PrivateEstimator):
    """Predicts a number in the label's own units."""

    kind: ClassVar[str | None] = "regressor"
    labels: ClassVar[tuple[str, ...]] = ("numeric", "unbounded")

    def _adopt(self, model: Model) -> Self:
        super()._adopt(model)
        if model.encoder.classes is not None:
            raise ValueError("the model predicts a class; it is a classifier's")
        if model.network is None:
            self.coef_, self.intercept_ = model.coef_, model.intercept_
        return self

    def predict(self, X: Any) -> Floats:
        return self._fitted().predict(X)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R^2: 1 less the squared error over that of the mean."""
        y = np.asarray(y, dtype=np.float64)
        weights = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight, float)
        error = weights @ (y - self.predict(X)) ** 2
        return float(1 - error / (weights @ (y - np.average(y, weights=weights)) ** 2))


@dataclass(eq=False, repr=False)
class PrivateLogisticRegression(PrivateClassifier):
    """The logistic loss, or softmax where the label has more than two classes."""

    labels: ClassVar[tuple[str, ...]] = ("binary", "categorical")

    def loss_of(self, dataset: Dataset) -> JSON:
        many = dataset.schema["label"]["kind"] == "categorical"
        return {"kind": "softmax" if many else "logistic"}

    def predict_proba(self, X: Any) -> Floats:
        return self._fitted().predict_proba(X)

    def predict_log_proba(self, X: Any) -> Floats:
        return np.asarray(np.log(self.predict_proba(X)))


@dataclass(eq=False, repr=False)
class PrivateSVM(PrivateClassifier):
    """A linear support vector machine. `loss`: hinge, or smoothed_hinge where it must be smooth."""

    loss: str = "hinge"

    def loss_of(self, dataset: Dataset) -> JSON:
        return {"kind": self.loss}


@dataclass(eq=False, repr=False)
class PrivateMLP(PrivateClassifier):
    """A network of one layer of `width` ReLU units, with the logistic loss."""

    algorithm: str = "gradient-descent"
    width: int = 16

    def loss_of(self, dataset: Dataset) -> JSON:
        return {"kind": "logistic"}

    def more_of_spec(self) -> JSON:
        return {"model": {"kind": "relu_network", "width": self.width}}

    def predict_proba(self, X: Any) -> Floats:
        return self._fitted().predict_proba(X)


@dataclass(eq=False, repr=False)
class PrivateLinearRegression(PrivateRegressor):
    """`loss`: squared, absolute, or huber with its `threshold` in units of the scaled label."""

    loss: str = "squared"
    threshold: float | None = None

    def loss_of(self, dataset: Dataset) -> JSON:
        width = {} if self.threshold is None else {"threshold": self.threshold}
        return {"kind": self.loss, **width}


@dataclass(eq=False, repr=False)
class PrivateQuantileRegression(PrivateRegressor):
    """A quantile of the label."""

    quantile: float = 0.5

    def loss_of(self, dataset: Dataset) -> JSON:
        return {"kind": "pinball", "quantile": self.quantile}


@dataclass(eq=False, repr=False)
class PrivateLasso(PrivateRegressor):
    """Least squares over an l1 ball: few columns with large weights. `radius` defaults to what the
    planner takes; weights are of encoded columns."""

    algorithm: str = "frank-wolfe"
    radius: float | None = None

    def loss_of(self, dataset: Dataset) -> JSON:
        return {"kind": "squared"}

    def more_of_spec(self) -> JSON:
        return {} if self.radius is None else {"set": {"kind": "l1_ball", "radius": self.radius}}


@dataclass(eq=False, repr=False)
class PrivateMean(PrivateEstimator):
    """A robust centre of the rows, the geometric median: `location_` has a number per name in
    `coef_names_`, in the column's own units; for a category it is a share. The label is not used."""

    def loss_of(self, dataset: Dataset) -> JSON:
        return {"kind": "geometric_median"}

    def _adopt(self, model: Model) -> Self:
        self.location_ = np.asarray(model.location)
        return super()._adopt(model)


def _native(classes: list[str]) -> NDArray[Any]:
    """Classes as numbers, if every one is a whole number as Python spells it."""
    whole = all(text.lstrip("-").isdecimal() and str(int(text)) == text for text in classes)
    return np.array([int(text) for text in classes] if whole else classes)
