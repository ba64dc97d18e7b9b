"""Released models on the rows that were held out, over HTTP: what is told, and of whom it is not."""

import asyncio
import csv
import json

import numpy as np
import pytest

from epsilond import AsyncClient
from service.audit.verify import verify_chain
from tests.harness import job
from tests.test_cli import epsilond

WARDS = ["A", "B"]
SCHEMA = {
    "columns": [
        {"name": "age", "kind": "numeric", "lower": 0, "upper": 100},
        {"name": "ward", "kind": "categorical", "categories": WARDS},
    ],
    "label": {"name": "y", "kind": "binary", "positive": "1", "negative": "0"},
    "holdout": 0.25,
}
ROWS = 8000
RATES = ("accuracy", "balanced_accuracy", "precision", "recall", "f1")


@pytest.fixture(scope="module")
def scene(service):
    """A dataset in which ward B is harder, and two models of it."""
    owner = service.person("owner")
    dataset = owner.declare_dataset("visits", SCHEMA)["id"]
    rng = np.random.default_rng(3)
    age, ward = rng.uniform(0, 100, ROWS), rng.choice(WARDS, ROWS)
    slope = np.where(ward == "A", 12.0, 2.0)
    y = (rng.logistic(size=ROWS) < slope * (age / 100 - 0.5)).astype(int)
    with (service.folder / "visits.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["age", "ward", "y"], *zip(age, ward, y, strict=True)])
    owner.upload(dataset, service.folder / "visits.csv")
    owner.set_budget(dataset, 40.0, 1e-6)
    spec = job(dataset, 4.0, "sufficient-statistics", loss="squared", parameters={})
    fits = [
        owner.wait(owner.submit(job(dataset, 4.0, parameters={"steps": 40}))["id"])["id"],
        owner.wait(owner.submit(job(dataset, 1.0, parameters={"steps": 10}))["id"])["id"],
    ]
    odd = owner.wait(owner.submit(spec)["id"])["id"]
    return {"owner": owner, "dataset": dataset, "fits": fits, "odd": odd}


def ask(scene, of, epsilon=1.0, **more):
    return {
        "dataset": scene["dataset"],
        "algorithm": "model-evaluation",
        "of": of,
        "privacy": {"epsilon": epsilon},
        **more,
    }


def done(scene, spec):
    owner = scene["owner"]
    return owner.wait(owner.submit(spec)["id"])


def test_a_model_is_evaluated_on_the_rows_that_were_held_out(scene):
    owner, fit = scene["owner"], scene["fits"][0]
    spec = ask(scene, fit, 4.0, evaluate={"by": "ward"})
    quote = owner.quote(spec)
    (release,) = quote["releases"]
    assert (release["rows"], release["mechanism"]) == (2000, "Gaussian")
    finished = done(scene, spec)
    assert finished["state"] == "succeeded"
    told = owner.evaluation(finished["id"])
    assert (told["rows"], told["loss"], told["job"]) == (2000, {"kind": "logistic"}, finished["id"])
    (model,) = told["data"]
    named = owner.plan(finished["id"])["spec"]["of"]
    assert (model["of"], model["model_digest"]) == (fit, named["digest"])
    assert set(model["metrics"]) == {*RATES, "auc", "brier", "log_loss"}
    for metric in model["metrics"].values():
        assert metric["low"] <= metric["value"] <= metric["high"]
        assert metric["confidence"] == 0.95
    assert model["metrics"]["accuracy"]["low"] > 0.6
    assert model["metrics"]["auc"]["low"] > 0.6
    assert len(model["curve"]) == 23
    assert len(model["calibration"]) == 10
    by = {group["name"]: group for group in model["groups"]}
    assert list(by) == ["A", "B", "<other>"]
    assert by["A"]["gaps"]["accuracy"]["low"] > 0 > by["B"]["gaps"]["accuracy"]["high"]
    card = owner.model(finished["id"])
    assert (card.card["object"], card.evaluation) == ("evaluation", told["data"])


def test_several_models_share_one_release(scene):
    owner = scene["owner"]
    finished = done(
        scene, ask(scene, scene["fits"], 2.0, evaluate={"metrics": ["accuracy", "auc"]})
    )
    told = owner.evaluation(finished["id"])
    assert [model["of"] for model in told["data"]] == scene["fits"]
    assert all(model["calibration"] for model in told["data"])
    assert all("brier" not in model["metrics"] for model in told["data"])
    assert len(owner.plan(finished["id"])["schedule"]["counts"]["tables"]) == 4


def test_the_command_line_and_the_client_without_waiting_say_the_same(service, scene):
    owner = scene["owner"]
    finished = done(scene, ask(scene, scene["fits"][0], 0.5, evaluate={"metrics": ["accuracy"]}))
    env = {"EPSILOND_URL": service.url, "EPSILOND_KEY": owner.key}
    said = json.loads(epsilond("jobs", "evaluation", finished["id"], env=env))
    assert said == owner.evaluation(finished["id"])

    async def asked():
        async with AsyncClient(service.url, owner.key) as client:
            return await client.evaluation(finished["id"])

    assert asyncio.run(asked()) == said


def test_what_is_told_is_in_the_chain_and_in_the_ledger(scene):
    owner = scene["owner"]
    before = owner.budget(scene["dataset"])["units_spent"]
    finished = done(scene, ask(scene, scene["fits"][1], 0.5))
    plan = owner.plan(finished["id"])
    assert owner.budget(scene["dataset"])["units_spent"] - before == plan["price"]["units"] > 0
    chain = owner.chain(scene["dataset"])
    assert verify_chain(chain, owner.public_key()) == []


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"evaluate": {"metrics": ["mae"]}}, "mae cannot be told for a binary label"),
        ({"evaluate": {"by": "age"}}, "no categorical column in use is called 'age'"),
        ({"evaluate": {"by": "nobody"}}, "no categorical column in use is called 'nobody'"),
        ({"of": None}, 'set "of"'),
        ({"algorithm": "gradient-descent", "of": None, "loss": "logistic", "evaluate": {}},
         'leave "evaluate" out'),
        ({"algorithm": "stationarity-certificate"}, 'name one job in "of"'),
    ],
)  # fmt: skip
def test_what_cannot_be_told_is_refused_with_what_works(scene, changes, says):
    with pytest.raises(Exception, match=says) as refused:
        scene["owner"].quote(ask(scene, scene["fits"]) | changes)
    assert refused.value.status == 422


def test_models_of_different_losses_are_not_evaluated_together(scene):
    with pytest.raises(Exception, match="different losses"):
        scene["owner"].quote(ask(scene, [scene["fits"][0], scene["odd"]]))


def test_a_loss_without_chances_tells_what_needs_none(scene):
    owner = scene["owner"]
    (model,) = owner.evaluation(done(scene, ask(scene, scene["odd"]))["id"])["data"]
    assert set(model["metrics"]) == {*RATES, "auc"}
    assert model.get("calibration") is None
    with pytest.raises(Exception, match="calibration cannot be told"):
        owner.quote(ask(scene, scene["odd"], evaluate={"metrics": ["calibration"]}))


def test_a_dataset_that_holds_out_nothing_has_no_evaluations(service):
    scene = service.scene()
    fit = scene.analyst.wait(scene.analyst.submit(job(scene.dataset, 0.1))["id"])["id"]
    spec = {"dataset": scene.dataset, "algorithm": "model-evaluation", "of": fit}
    with pytest.raises(Exception, match="holds out no rows"):
        scene.analyst.quote(spec | {"privacy": {"epsilon": 0.1}})
    with pytest.raises(Exception, match="evaluates no model"):
        scene.analyst.evaluation(fit)
