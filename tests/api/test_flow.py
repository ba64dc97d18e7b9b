"""From HTTP to a private model, on both engines."""

import numpy as np
import pytest

from epsilond import ApiError
from service.audit.verify import verify_chain
from tests.harness import job, numbers, until


@pytest.fixture(scope="module")
def scene(service):
    return service.scene(epsilon=30.0, rows=20_000)


@pytest.mark.parametrize(
    ("algorithm", "changes"),
    [
        ("gradient-descent", {"parameters": {"steps": 200}}),
        ("clipped-sgd", {"ridge": 0.01, "parameters": {"steps": 200}}),
    ],
)
def test_a_job_becomes_a_useful_model(service, scene, algorithm, changes):
    analyst = scene.analyst
    spec = job(scene.dataset, 10.0, algorithm, **changes)
    quote = analyst.quote(spec)
    assert quote["fits"] and quote["plan"]["guarantee"]["relation"] == "replace-one"

    submitted = analyst.submit(spec)
    assert submitted["state"] == "queued"
    assert submitted["plan_digest"] == quote["plan_digest"]
    done = analyst.wait(submitted["id"])
    assert done["state"] == "succeeded"
    assert done["progress"] == {"steps_done": 200, "steps_total": 200}
    assert [e["type"] for e in analyst.events(done["id"])] == ["queued", "running", "succeeded"]

    model = analyst.model(done["id"])
    x = np.random.default_rng(1).uniform(-1, 1, (2000, 4))
    rows = [{f"x{j}": value for j, value in enumerate(row)} for row in x]
    accuracy = np.mean(np.array(model.predict(rows)) == np.where(x[:, 0] > 0, "1", "0"))
    assert accuracy > 0.9
    assert analyst.plan(done["id"]) == quote["plan"]


def test_the_chain_verifies_and_the_ledger_agrees(service, scene):
    done = scene.analyst.wait(scene.analyst.submit(job(scene.dataset, 0.05))["id"])
    chain = scene.analyst.chain(scene.dataset)
    assert scene.analyst.record(done["id"]) == chain[-1]
    key = scene.analyst.public_key()
    assert verify_chain(chain, key, head=scene.analyst.dataset(scene.dataset)["audit_head"]) == []
    posted = sum(e["units"] for e in scene.analyst.ledger(scene.dataset) if e["kind"] == "post")
    budget = scene.analyst.budget(scene.dataset)
    assert posted == budget["units_spent"] == chain[-1]["body"]["account"]["posted_units"]
    assert budget["units_reserved"] == 0


def test_a_job_at_the_full_budget_fits_exactly_once(service):
    scene = service.scene(epsilon=0.3, delta=1e-7)
    done = scene.analyst.wait(scene.analyst.submit(job(scene.dataset, 0.3))["id"])
    assert done["state"] == "succeeded"
    with pytest.raises(ApiError) as refusal:
        scene.analyst.submit(job(scene.dataset, 0.1))
    assert refusal.value.code == "budget_exceeded"


def test_a_refusal_says_what_fits_and_that_fits(service):
    scene = service.scene(epsilon=1.0)
    scene.analyst.wait(scene.analyst.submit(job(scene.dataset, 0.6))["id"])
    before = scene.analyst.budget(scene.dataset)
    with pytest.raises(ApiError) as refusal:
        scene.analyst.submit(job(scene.dataset, 0.99))
    problem = refusal.value.problem
    assert problem["status"] == 409 and problem["requested_units"] > problem["remaining_units"]
    assert problem["remaining_units"] == before["units_remaining"]
    assert problem["spent_units"] == before["units_spent"] and problem["reserved_units"] == 0
    assert scene.analyst.budget(scene.dataset) == before
    fitting = scene.analyst.submit(job(scene.dataset, problem["largest_epsilon"]))
    assert scene.analyst.wait(fitting["id"])["state"] == "succeeded"


def test_a_pure_account_runs_laplace_jobs_and_refuses_delta(service):
    scene = service.scene(epsilon=4.0, delta=0.0)
    done = scene.analyst.wait(scene.analyst.submit(job(scene.dataset, 1.5))["id"])
    assert done["state"] == "succeeded"
    plan = scene.analyst.plan(done["id"])
    assert plan["lattice"]["noise"] == "laplace" and plan["price"]["units"] <= 1.5e12
    with pytest.raises(ApiError) as refusal:
        scene.analyst.quote(job(scene.dataset, privacy={"epsilon": 1, "delta": 1e-6}))
    assert refusal.value.code == "plan_refused" and "pure" in refusal.value.problem["detail"]


def test_unbounded_columns_get_a_private_clip_and_take_one_that_is_given(service):
    scene = service.scene(kind="unbounded", epsilon=2.0)
    for clip, chosen in ({}, True), ({"clip": 1.0}, False):
        spec = job(scene.dataset, 0.5, parameters={"steps": 5, **clip})
        done = scene.analyst.wait(scene.analyst.submit(spec)["id"])
        assert done["state"] == "succeeded"
        assert (scene.analyst.plan(done["id"])["private_clip"] is not None) == chosen
    with pytest.raises(ApiError, match=r"small to pay for a private clip.*parameters\.clip"):
        scene.analyst.submit(job(scene.dataset, 1e-6))


def test_an_unbounded_label_is_predicted_in_its_own_units(service):
    scene = service.scene(rows=2000, epsilon=9.0, label="unbounded")
    spec = job(scene.dataset, 8.0, "accelerated-sgd", loss="squared", set={"radius": 300})
    assert scene.analyst.quote(spec)["plan"]["private_clip"] is not None
    with pytest.raises(ApiError, match="rests on a bound on every label"):
        scene.analyst.submit(spec | {"algorithm": "phased-sgd", "parameters": {}})
    clipped = spec | {"parameters": {"steps": 500, "clip": 10.0}}
    done = scene.analyst.wait(scene.analyst.submit(clipped)["id"])
    rows = [{f"x{j}": value if j == 0 else 0.0 for j in range(4)} for value in (-0.8, 0.0, 0.8)]
    predicted = scene.analyst.model(done["id"]).predict(rows)
    assert predicted == pytest.approx([-0.1, 0.5, 1.1], abs=0.25)  # y is 1 where x0 > 0, else 0


def test_the_same_idempotency_key_gets_the_same_job(service):
    scene = service.scene()
    spec = job(scene.dataset)
    first = scene.analyst.submit(spec, idempotency_key="once")
    assert scene.analyst.submit(spec, idempotency_key="once") == first
    assert [e["kind"] for e in scene.analyst.ledger(scene.dataset)].count("reserve") == 1
    with pytest.raises(ApiError) as refusal:
        scene.analyst.submit(job(scene.dataset, 0.2), idempotency_key="once")
    assert refusal.value.code == "idempotency_conflict"


def test_identical_content_shares_one_account(service):
    owner = service.person("owner")
    scene = service.scene()
    path = numbers(service.folder, 100, 4, seed=7)
    schema = scene.owner.dataset(scene.dataset)["schema"]
    first, second = (owner.declare_dataset(name, schema)["id"] for name in ("a", "b"))
    owner.upload(first, path)
    owner.set_budget(first, 1.0, 1e-6)
    owner.upload(second, path)
    assert owner.budget(second) == owner.budget(first)
    with pytest.raises(ApiError) as refusal:
        owner.set_budget(second, 1.0, 1e-6)
    assert refusal.value.code == "budget_already_set"

    stranger = service.person("owner")
    third = stranger.declare_dataset("c", schema)["id"]
    assert "same_content_as" not in {
        k for k, v in stranger.upload(third, path).items() if v is not None
    }
    stranger.set_budget(third, 1.0, 1e-6)
    assert service.admin.dataset(third)["same_content_as"] == [first, second] or set(
        service.admin.dataset(third)["same_content_as"]
    ) == {first, second}


def test_deleting_data_keeps_the_ledger(service):
    scene = service.scene()
    done = scene.analyst.wait(scene.analyst.submit(job(scene.dataset))["id"])
    ledger, chain = scene.owner.ledger(scene.dataset), scene.owner.chain(scene.dataset)
    scene.owner.delete_data(scene.dataset)
    assert scene.owner.dataset(scene.dataset)["state"] == "deleted"
    assert scene.owner.ledger(scene.dataset) == ledger
    assert scene.owner.chain(scene.dataset) == chain
    assert scene.analyst.model(done["id"]).coef_.shape == (4,)
    with pytest.raises(ApiError) as refusal:
        scene.analyst.submit(job(scene.dataset))
    assert refusal.value.code == "dataset_not_ready"


def test_an_analysts_share_is_enforced_beside_the_cap(service):
    scene = service.scene(epsilon=2.0)
    scene.owner.grant(scene.dataset, scene.analyst.id, epsilon_cap=0.3)
    scene.analyst.submit(job(scene.dataset, 0.25))
    with pytest.raises(ApiError) as refusal:
        scene.analyst.submit(job(scene.dataset, 0.25))
    assert refusal.value.code == "analyst_cap_exceeded"
    fits = refusal.value.problem["largest_epsilon"]
    assert scene.analyst.submit(job(scene.dataset, fits))["state"] == "queued"
    assert scene.owner.submit(job(scene.dataset, 0.5))["state"] == "queued"


def test_progress_is_seen_while_a_job_runs(service):
    scene = service.scene(rows=50_000)
    submitted = scene.analyst.submit(job(scene.dataset, parameters={"steps": 3000}))
    until(lambda: scene.analyst.job(submitted["id"])["data_opened"], "the job's start")
    seen = scene.analyst.job(submitted["id"])
    assert seen["state"] == "running" and seen["progress"]["steps_total"] == 3000
    assert scene.analyst.cancel(submitted["id"])["state"] in ("cancelling", "cancelled")
    assert scene.analyst.wait(submitted["id"])["state"] == "cancelled"
    budget = scene.analyst.budget(scene.dataset)
    assert budget["units_spent"] == submitted["price_units"] and budget["units_reserved"] == 0
