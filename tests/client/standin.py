"""A stand-in for the service that fits without privacy, and estimators whose fit() takes rows there:
then scikit-learn's checks, which bring their own rows, reach everything but the service."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

import epsilond
from epsilond import Model
from epsilond.results import Dataset, Job, Quote, Result
from service.datasets.encode import encode_features, encode_label
from service.datasets.schema import DeclaredSchema
from tests.client.tables import card


class Standin:
    """The methods of a client that an estimator calls."""

    def __init__(self):
        self.tables, self.jobs, self.specs = {}, {}, []

    def __deepcopy__(self, memo):
        return self

    def declare(self, names, X, y, kind):
        """A table with one column per feature, numeric without bounds, and this kind of label."""
        classes = [str(one) for one in np.unique(y)]
        label = {
            "binary": lambda: {"positive": classes[-1], "negative": classes[0]},
            "categorical": lambda: {"classes": classes},
            "unbounded": dict,
        }[kind]()
        schema = {
            "columns": [{"name": name, "kind": "unbounded", "fill": 0.0} for name in names],
            "label": {"name": "(label)", "kind": kind, **label},
        }
        self.tables["ds_1"] = DeclaredSchema.model_validate(schema), X, y

    def find(self, name):
        schema, _, _ = self.tables["ds_1"]
        made = {"object": "dataset", "id": "ds_1", "name": name}
        return Dataset(made, schema=schema.model_dump(mode="json"))

    def quote(self, spec):
        return Quote(spec=spec)

    def submit(self, spec):
        self.specs.append(spec)
        schema, X, y = self.tables["ds_1"]
        x = encode_features(schema, dict(zip((c.name for c in schema.columns), X.T, strict=True)))
        made = card(schema, spec["loss"]["kind"], spec.get("model", {}).get("width", 0))
        if made["classes_"] is None:
            fitted = LinearRegression().fit(x[:, 1:], encode_label(schema, y))
            made |= {"coef_": fitted.coef_.tolist(), "intercept_": float(fitted.intercept_)}
        elif made["network"] is None:
            fitted = LogisticRegression(C=10, max_iter=500).fit(x[:, 1:], encode_label(schema, y))
            many = len(made["classes_"]) > 2
            coef, intercept = fitted.coef_.tolist(), fitted.intercept_.tolist()
            made["coef_"], made["intercept_"] = (
                (coef, intercept) if many else (coef[0], intercept[0])
            )
        if spec["loss"]["kind"] == "geometric_median":
            made |= {"coef_": None, "intercept_": None, "location": np.median(X, axis=0).tolist()}
        self.jobs["job_1"] = made
        return Job(object="job", id="job_1", state="queued")

    def wait(self, job, progress=None):
        return Job(object="job", id=job, state="succeeded")

    def record(self, job):
        return Result(object="record", job=job)

    def model(self, job):
        return Model(self.jobs[job])


@cache
def taking_rows(name):
    """The estimator of this name, with a fit() that carries rows to the stand-in first."""
    parent = getattr(epsilond, name)

    @dataclass(eq=False, repr=False)
    class TakesRows(parent):
        def fit(self, X, y=None):
            names = getattr(X, "columns", None)
            numeric, nan = self.kind == "regressor", "allow-nan"
            X, y = validate_data(self, X, y, y_numeric=numeric, ensure_all_finite=nan)
            if self.kind == "classifier":
                check_classification_targets(y)
            names = [f"x{j}" for j in range(X.shape[1])] if names is None else list(map(str, names))
            self._service = self.client or Standin()
            self._service.declare(names, X.astype(float), y, self.kind_of(y))
            return super().fit("numbers")

        def _client(self):
            return self._service

        def kind_of(self, y):
            if self.kind != "classifier":
                return "unbounded"
            return "binary" if len(np.unique(y)) == 2 else "categorical"

    TakesRows.__name__ = TakesRows.__qualname__ = name
    globals()[name] = TakesRows  # where pickle looks for it
    return TakesRows
