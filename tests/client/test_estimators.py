"""Estimators behave as scikit-learn's do, wherever rows are not for them to have.

scikit-learn's own checks bring rows to fit(). Ours takes none, so the checks run on subclasses whose
fit() carries them to a stand-in for the service, and then fits as always (standin.py). PrivateMLP is
not among them, since the stand-in does not train networks. What else is left out, and why: NOT_HERE.
"""

import pickle
import subprocess
import sys

import numpy as np
import pandas
import polars
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.metrics import accuracy_score, r2_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import epsilond
from epsilond import Model, PrivateLinearRegression, PrivateLogisticRegression, PrivateMean
from service.datasets.schema import DeclaredSchema
from tests.client.standin import Standin, taking_rows
from tests.client.tables import LABELS, card

NOT_HERE = {
    "check_fit2d_1sample": "one sample is one class, and no schema declares a label with one",
    "check_classifier_not_supporting_multiclass": "refused by the label's kind, in our own words",
}
LEFT_OUT = {
    "PrivateLogisticRegression": {"check_fit2d_1sample"},
    "PrivateSVM": set(NOT_HERE),
}
SKIPPED = {"check_array_api_input"}  # scikit-learn skips it itself, unless SCIPY_ARRAY_API is set
CLASSIFIERS = ("PrivateLogisticRegression", "PrivateSVM", "PrivateMLP")
REGRESSORS = ("PrivateLinearRegression", "PrivateQuantileRegression", "PrivateLasso")


@pytest.mark.parametrize("name", ["PrivateLogisticRegression", "PrivateSVM", *REGRESSORS])
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_checks_pass(name):
    found = check_estimator(taking_rows(name)(), on_fail=None, on_skip=None)
    by_status = {}
    for one in found:
        by_status.setdefault(one["status"], set()).add(one["check_name"])
    assert by_status.get("failed", set()) == LEFT_OUT.get(name, set())
    assert by_status.get("skipped", set()) <= SKIPPED
    assert len(by_status["passed"]) > 40


X = np.random.default_rng(3).normal(size=(200, 3))
TARGETS = {"classifier": (X[:, 0] > 0).astype(int), "regressor": X @ [1.0, -2.0, 0.5] + 3}
FRAME = pandas.DataFrame(X, columns=["a", "b", "c"])


def fitted(name, **parameters):
    made = taking_rows(name)(client=Standin(), **parameters)
    return made.fit(FRAME, TARGETS.get(made.kind, TARGETS["classifier"]))


SPECS = {
    "PrivateLogisticRegression": ({}, {"loss": {"kind": "logistic"}, "algorithm": "auto"}),
    "PrivateSVM": ({"loss": "smoothed_hinge"}, {"loss": {"kind": "smoothed_hinge"}}),
    "PrivateMLP": ({"width": 7}, {"model": {"kind": "relu_network", "width": 7}}),
    "PrivateLinearRegression": (
        {"loss": "huber", "threshold": 0.2, "ridge": 0.1},
        {"loss": {"kind": "huber", "threshold": 0.2}, "ridge": 0.1},
    ),
    "PrivateQuantileRegression": (
        {"quantile": 0.9, "delta": 0.0},
        {"loss": {"kind": "pinball", "quantile": 0.9}, "privacy": {"epsilon": 1.0, "delta": 0.0}},
    ),
    "PrivateLasso": (
        {"radius": 3.0},
        {"set": {"kind": "l1_ball", "radius": 3.0}, "algorithm": "frank-wolfe"},
    ),
    "PrivateMean": (
        {"parameters": {"steps": 5}, "set": "all"},
        {"loss": {"kind": "geometric_median"}, "parameters": {"steps": 5}, "set": "all"},
    ),
}


@pytest.mark.parametrize("name", SPECS)
def test_an_estimator_says_what_it_is_in_a_job_spec(name):
    parameters, expected = SPECS[name]
    made = fitted(name, **parameters)
    (spec,) = made._client().specs
    assert spec["dataset"] == "ds_1"
    assert {field: spec[field] for field in expected} == expected
    assert made.quote("numbers").spec == spec
    assert made.certificate_.job == "job_1" and made.guarantee_["epsilon"] == 0.5


@pytest.mark.parametrize("name", [*CLASSIFIERS, *REGRESSORS])
def test_a_fitted_estimator_predicts_on_tables_in_a_pipeline_and_from_a_pickle(name):
    made = fitted(name)
    predicted = made.predict(FRAME)
    assert list(made.feature_names_in_) == ["a", "b", "c"] and made.n_features_in_ == 3
    for rows in (polars.from_pandas(FRAME), X, FRAME.to_dict("records"), FRAME[["c", "a", "b"]]):
        assert np.array_equal(made.predict(rows), predicted)
    as_it_is = make_pipeline(FunctionTransformer(), made).set_output(transform="pandas")
    assert np.array_equal(as_it_is.predict(FRAME), predicted)
    read = type(made).__mro__[1].from_model(pickle.loads(pickle.dumps(made.model_)))
    assert np.array_equal(read.predict(FRAME), predicted)
    y = TARGETS[made.kind]
    metric = accuracy_score if made.kind == "classifier" else r2_score
    weights = np.arange(len(y))
    assert made.score(FRAME, y) == pytest.approx(metric(y, predicted))
    assert made.score(FRAME, y, weights) == pytest.approx(
        metric(y, predicted, sample_weight=weights)
    )
    assert is_classifier(made) == (made.kind == "classifier") != is_regressor(made)


def test_probabilities_are_those_of_the_classes():
    made = fitted("PrivateLogisticRegression")
    chances = made.predict_proba(FRAME)
    assert list(made.classes_) == [0, 1] and made.predict(FRAME).dtype.kind == "i"
    assert chances[:, 1] == pytest.approx(1 / (1 + np.exp(-made.decision_function(FRAME))))
    assert np.exp(made.predict_log_proba(FRAME)) == pytest.approx(chances)
    assert made.coef_.shape == (1, 3) and made.intercept_.shape == (1,)
    assert not hasattr(fitted("PrivateSVM"), "predict_proba")


def test_a_mean_has_a_location_and_predicts_nothing():
    made = fitted("PrivateMean")
    assert made.location_.shape == (3,) and list(made.coef_names_) == ["a", "b", "c"]
    assert not hasattr(made, "predict")


def test_a_clone_has_the_parameters_and_the_client_and_no_model():
    made = fitted("PrivateQuantileRegression", quantile=0.25)
    twin = clone(made)
    assert twin.get_params() == made.get_params() and twin.client is made.client
    assert not twin.__sklearn_is_fitted__()
    assert twin.set_params(quantile=0.75).quantile == 0.75
    with pytest.raises(ValueError, match="Invalid parameter 'quantil'"):
        twin.set_params(quantil=0.5)


@pytest.mark.parametrize(
    ("made", "label", "says"),
    [
        (PrivateLinearRegression, "binary", "needs a label that is numeric or unbounded; 'y' of"),
        (PrivateLogisticRegression, "numeric", "needs a label that is binary or categorical"),
    ],
)
def test_a_label_that_does_not_suit_is_refused_before_anything_is_charged(made, label, says):
    client = Standin()
    client.find = lambda name: epsilond.estimators.Dataset(
        id="ds_1", name=name, schema={"label": {"name": "y", "kind": label, **LABELS[label]}}
    )
    with pytest.raises(ValueError, match=says):
        made(client, "visits").fit()
    assert client.specs == []


def test_rows_are_not_taken_and_it_says_where_they_go():
    with pytest.raises(TypeError, match=r"rows stay with the service: client\.upload"):
        PrivateMean(Standin(), "visits").fit(X, None)
    with pytest.raises(ValueError, match="which dataset"):
        PrivateMean(Standin()).fit()


def test_a_job_without_a_model_is_an_error_that_says_how_it_ended():
    client = Standin()
    client.declare(["a"], X[:, :1], TARGETS["classifier"], "binary")
    ended = {"id": "job_1", "state": "failed", "error": {"message": "started too often"}}
    client.wait = lambda job, progress: epsilond.estimators.Job(ended)
    with pytest.raises(epsilond.JobFailedError, match="job_1 failed: started too often") as failed:
        PrivateLogisticRegression(client, "numbers").fit()
    assert failed.value.job == ended


def test_a_notebook_shows_names_escaped():
    html = PrivateMean(dataset="<b>&")._repr_html_()
    assert "&lt;b&gt;&amp;" in html and "<b>" not in html


def test_nothing_of_scikit_learn_is_needed():
    code = """
import sys
from epsilond import NotFittedError, PrivateMLP
try:
    PrivateMLP().predict([[1]])
except NotFittedError as error:
    print(error, "sklearn" in sys.modules, "pandas" in sys.modules, "service" in sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "this PrivateMLP is not fitted yet; call fit() False False False"


def test_a_card_of_another_kind_is_no_model_of_this_kind():
    with pytest.raises(ValueError, match="it is a regression's"):
        PrivateLogisticRegression.from_model(card(declared("numeric"), "squared"))
    with pytest.raises(ValueError, match="it is a classifier's"):
        PrivateLinearRegression.from_model(Model(card(declared("binary"))))


def declared(label):
    column = {"name": "a", "kind": "numeric", "lower": 0, "upper": 1}
    return DeclaredSchema.model_validate(
        {"columns": [column], "label": {"name": "y", "kind": label, **LABELS[label]}}
    )
