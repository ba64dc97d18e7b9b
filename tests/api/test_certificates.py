"""Certificates over HTTP, on both engines: priced, published and audited like any other job."""

import numpy as np
import pytest

from epsilond import ApiError
from service.api.auth import Caller
from service.api.released import resolved
from service.errors import PlanRefused
from service.jobs.claim import open_data
from service.planning.plan import canonical_json, sha256
from service.planning.spec import JobSpec
from tests.harness import job
from tests.jobs.harness import JobHarness
from workers.certify import certify

NAME = "stationarity-certificate"


@pytest.fixture(scope="module")
def scene(service):
    scene = service.scene(epsilon=20.0, rows=20_000)
    spec = job(scene.dataset, 5.0, set={"radius": 3.0}, parameters={"steps": 100})
    scene.model = scene.analyst.wait(scene.analyst.submit(spec)["id"])["id"]
    return scene


def asked(scene, epsilon=2.0, **changes):
    more = {"set": {"radius": 3.0}, "parameters": {}, "of": scene.model}
    return job(scene.dataset, epsilon, NAME, **more) | changes


def drawn_rows(count):
    """Rows from the distribution that the scene's file was drawn from."""
    x = np.random.default_rng(1).uniform(-1, 1, (count, 4))
    return [{**{f"x{j}": v for j, v in enumerate(row)}, "y": str(int(row[0] > 0))} for row in x]


@pytest.mark.parametrize("parameters", [{}, {"radius": 0.05, "points": 4}])
def test_a_model_is_certified_for_the_quoted_price(scene, parameters):
    analyst = scene.analyst
    spec = asked(scene, parameters=parameters)
    quote, before = analyst.quote(spec), analyst.budget(scene.dataset)
    done = analyst.wait(analyst.submit(spec)["id"])
    assert done["state"] == "succeeded" and done["progress"]["steps_total"] == 1
    assert done["plan_digest"] == quote["plan_digest"]
    spent = analyst.budget(scene.dataset)["units_spent"] - before["units_spent"]
    assert spent == quote["plan"]["price"]["units"] > 0

    card = analyst.model(done["id"]).card
    found = card["certificate"]
    assert card["object"] == "certificate" and card["coef_"] is None
    assert found["of"] == scene.model and found["radius"] == parameters.get("radius", 0)
    assert found["model_digest"] == analyst.record(scene.model)["body"]["model_digest"]
    for each in (scene.model, done["id"]):  # what is served is what was published, to the byte
        digest = analyst.record(each)["body"]["model_digest"]
        assert sha256(canonical_json(analyst.model(each).card)) == digest
    assert len(found["gradient"]) == 5
    # the same on public rows of the same kind, for nothing
    model = analyst.model(scene.model)
    own = certify(model.card, drawn_rows(20_000), JobSpec.model_validate(spec))
    assert abs(own["gradient_norm"] - found["gradient_norm"]) <= found["noise_norm"] + 0.03
    assert analyst.verify(scene.dataset)["verified"]


def test_refusals_charge_nothing(service, scene):
    analyst, stranger = scene.analyst, service.scene(rows=100)
    foreign = stranger.analyst.submit(job(stranger.dataset, 0.1))["id"]
    elsewhere = service.scene(rows=100)
    elsewhere.owner.grant(elsewhere.dataset, analyst.id)
    other = analyst.wait(analyst.submit(job(elsewhere.dataset, 0.1))["id"])["id"]
    certificate = analyst.wait(analyst.submit(asked(scene, 0.1))["id"])["id"]
    centre = job(scene.dataset, 0.1, loss="geometric_median", set={"radius": 1.0})
    median = analyst.wait(analyst.submit(centre)["id"])["id"]
    before = analyst.budget(scene.dataset)
    digest = "0" * 64
    cases = [
        ({"of": foreign}, "not_found"),
        ({"of": "job_of_nobody"}, "not_found"),
        ({"of": other}, "plan_refused"),
        ({"of": certificate}, "plan_refused"),
        ({"of": median}, "plan_refused"),
        ({"of": {"job": scene.model, "digest": digest}}, "plan_refused"),
        ({"of": None}, "plan_refused"),
        ({"algorithm": "gradient-descent"}, "plan_refused"),
    ]
    for changes, code in cases:
        for ask in (analyst.quote, analyst.submit):
            with pytest.raises(ApiError) as refusal:
                ask(asked(scene, 0.1, **changes))
            assert refusal.value.code == code, changes
    assert analyst.budget(scene.dataset) == before


@pytest.mark.parametrize("weight", [1.01e100, -1e200, 1e308])
def test_a_model_that_diverged_is_refused_before_anything_is_charged(db, tmp_path, weight):
    harness = JobHarness(db, tmp_path)
    me = Caller(harness.owner, "owner", "owner", None, "key_1")
    asked = {"dataset": harness.dataset, "algorithm": NAME, "loss": "logistic"}
    for coefficients, refused in (([1.0, -1e100, 0.0], False), ([1.0, weight, 0.0], True)):
        held = harness.claim(harness.submit(0.1))
        harness.do(open_data, held.id, held.fence)
        harness.publish(held.id, held.fence, (0.5, *coefficients))
        spec = JobSpec.model_validate(asked | {"of": held.id, "privacy": {"epsilon": 0.1}})
        with db.read() as connection:
            if not refused:
                assert resolved(connection, me, spec).of.digest
                continue
            with pytest.raises(PlanRefused) as refusal:
                resolved(connection, me, spec)
        assert "over the set l2_ball" in refusal.value.detail


def test_another_analyst_may_not_certify_a_model_that_they_may_not_see(service, scene):
    other = service.person("analyst")
    scene.owner.grant(scene.dataset, other.id)
    with pytest.raises(ApiError) as refusal:
        other.submit(asked(scene, 0.1))
    assert refusal.value.code == "not_found"
    assert scene.owner.quote(asked(scene, 0.1))["fits"]


def test_a_model_that_is_not_there_yet_is_refused(service):
    scene = service.scene(rows=2000)
    failed = scene.analyst.submit(job(scene.dataset, 0.1, parameters={"steps": 200_000}))["id"]
    scene.analyst.cancel(failed)
    scene.analyst.wait(failed)
    scene.model = failed
    with pytest.raises(ApiError) as refusal:
        scene.analyst.submit(asked(scene, 0.1))
    assert refusal.value.code == "job_not_finished"


def test_the_same_key_gets_the_same_certificate(scene):
    first = scene.analyst.submit(asked(scene, 0.1), idempotency_key="certify once")
    assert scene.analyst.submit(asked(scene, 0.1), idempotency_key="certify once") == first
