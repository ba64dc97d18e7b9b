"""What error a Plan says to expect, and that `auto` goes by it."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.lab import fits, problems
from service.planning import expected
from service.planning.catalog import CATALOG, plan
from service.planning.choose import choose, compare
from service.planning.expected import Curve, curves
from service.planning.losses import LOSSES
from service.planning.plan import Plan
from service.planning.price import AccountTerms
from service.planning.spec import Facts, JobSpec

CALIBRATED = sorted(curves())


def facts(rows=20_000, columns=20, loss="logistic", delta=1e-6, **more):
    labels = {
        "softmax": "categorical",
        "logistic": "binary",
        "hinge": "binary",
        "smoothed_hinge": "binary",
    }
    label = labels.get(loss, "numeric")
    given = {
        "rows": rows,
        "columns": columns,
        "storage": "fixed",
        "feature_step": columns**-0.5 / 4095,
        "linf_units": 4095,
        "l2_units": int(columns**0.5 * 4095),
        "label": label,
        "classes": 4 if label == "categorical" else None,
        "account": AccountTerms.for_ceiling(1.0, delta),
    }
    return Facts.model_validate({**given, **more})


def spec(algorithm, loss="logistic", epsilon=1.0, **more):
    asked = {"dataset": "ds_e", "algorithm": algorithm, "loss": loss}
    return JobSpec.model_validate({**asked, "privacy": {"epsilon": epsilon}, **more})


@pytest.fixture
def lines(monkeypatch):
    """Two algorithms that are known, the first of them ten times better than the other."""

    def use(better, other, loss="logistic"):
        flat = Curve(-3.0, (0.0,) * len(expected.pieces(0.1)), -1.0, 1.0)
        known = {(better, loss): flat, (other, loss): replace(flat, intercept=-0.7)}
        monkeypatch.setattr(expected, "curves", lambda pure=False: {} if pure else known)

    return use


@pytest.mark.parametrize(("algorithm", "loss"), CALIBRATED)
def test_a_default_job_says_what_to_expect_and_more_rows_or_budget_never_make_it_worse(
    algorithm, loss
):
    assert algorithm in CATALOG and loss in {each.name() for each in LOSSES}
    medians = []
    for rows, epsilon in ((20_000, 1.0), (80_000, 1.0), (80_000, 4.0)):
        given = facts(rows, loss=loss, account=AccountTerms.for_ceiling(epsilon, 1e-6))
        said = plan(spec(algorithm, loss, epsilon), given).expected
        assert 0 < said.low < said.median < said.high and said.constant > 0
        medians.append(said.median)
    assert medians == sorted(medians, reverse=True)


def test_of_a_job_that_chooses_for_itself_nothing_is_expected(lines):
    lines("gradient-descent", "accelerated-sgd")
    assert plan(spec("gradient-descent"), facts()).expected is not None
    for given in ({"parameters": {"steps": 7}}, {"set": {"radius": 3.25}}, {"ridge": 0.5}):
        assert plan(spec("gradient-descent", **given), facts()).expected is None
    assert plan(spec("gradient-descent"), facts(delta=0)).expected is None
    open_rows = {"storage": "float64", "feature_step": None, "linf_units": None, "l2_units": None}
    clipped = spec("gradient-descent", parameters={"clip": 1.0})
    assert plan(clipped, facts(**open_rows)).expected is None


def test_a_plan_without_an_expectation_has_the_text_that_it_had(lines):
    lines("gradient-descent", "accelerated-sgd")
    without = plan(spec("gradient-descent", ridge=0.5), facts())
    assert '"expected"' not in without.canonical()
    told = plan(spec("gradient-descent"), facts())
    assert Plan.model_validate_json(told.canonical()) == told


def test_auto_takes_the_smallest_expected_error_and_those_without_one_come_last(lines):
    for better, other in (
        ("gradient-descent", "accelerated-sgd"),
        ("accelerated-sgd", "gradient-descent"),
    ):
        lines(better, other)
        candidates = compare(spec("auto"), facts(), 10**12)
        assert [c.algorithm.name for c in candidates[:2]] == [better, other]
        made, choice = choose(candidates)
        assert made.algorithm == better and "expected to have the smallest" in choice.reason
        assert all(c.plan is None or c.plan.expected is None for c in candidates[2:])


@pytest.mark.parametrize(
    ("delta", "first"),
    [
        (1e-6, ["preconditioned-descent", "objective-perturbation"]),
        (0.0, ["objective-perturbation", "preconditioned-descent"]),
    ],
)
def test_where_nothing_is_expected_what_did_well_comes_before_bounds(delta, first):
    candidates = compare(spec("auto", ridge=0.1), facts(delta=delta), 10**12)
    able = [c for c in candidates if c.plan is not None]
    assert [c.algorithm.name for c in able[:2]] == first
    bounds = [c.plan.prediction.excess_risk for c in able[2:]]
    assert bounds == sorted(bounds) and len(bounds) > 2
    assert "has done well on jobs of its kind" in choose(candidates)[1].reason


def test_auto_goes_by_bounds_where_nothing_else_is_known():
    candidates = compare(spec("auto", ridge=0.1, loss="geometric_median"), facts(), 10**12)
    bounds = [c.plan.prediction.excess_risk for c in candidates if c.plan is not None]
    assert bounds == sorted(bounds) and len(bounds) > 1
    assert "predicts the smallest excess risk" in choose(candidates)[1].reason


@pytest.mark.parametrize("loss", ["logistic", "hinge", "absolute", "huber", "squared", "pinball"])
def test_no_best_constant_is_worse_than_is_said(loss):
    chosen = next(each for each in LOSSES if each.name() == loss)(kind=loss)
    values = fits.losses.of_margins(chosen)
    labels = np.array([-1.0, 1.0])
    assert values(np.zeros(2), labels)[0].max() == pytest.approx(chosen.idle(None), rel=1e-6)


@pytest.mark.parametrize("name", ["few", "linear-few"])
def test_actual_errors_are_as_often_within_the_band_as_it_says(name, tmp_path, monkeypatch):
    monkeypatch.setattr(problems, "HOME", tmp_path)
    results, inside = fits.Results(), []
    for cell in fits.cells((name,), (0.5, 2.0, 8.0), others=False):
        planned = fits.planned(cell)
        said = planned.plans[planned.auto].expected
        for seed in range(4):
            best, _ = fits.anchors(results, cell, seed)
            actual = (
                fits.fit(results, cell, planned.plans[planned.auto], seed)["loss"] - best["loss"]
            )
            inside.append(said.low <= actual <= said.high)
    assert np.mean(inside) >= 0.75


def test_auto_takes_a_categorical_label_and_says_who_has_no_loss_for_it():
    candidates = compare(spec("auto", "softmax"), facts(loss="softmax"), 10**12)
    assert choose(candidates)[0].algorithm
    refusals = [c.refusal for c in candidates if c.plan is None]
    assert any("a categorical label has none" in refusal for refusal in refusals)
