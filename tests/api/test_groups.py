"""Several jobs at once: priced together, reserved all or none. And budgets that say what is true."""

import pytest

from epsilond import ApiError
from service.ledger.check import check_ledger
from tests.harness import job, numbers, numeric_schema


def refused(action):
    with pytest.raises(ApiError) as refusal:
        action()
    return refusal.value


def test_a_batch_says_which_jobs_fit_in_the_given_order(service):
    scene = service.scene(epsilon=1.0)
    asked = [job(scene.dataset, e) for e in (0.6, 0.9, 0.4, 0.05)]
    batch = scene.analyst.quote_batch(asked)
    assert [row["fits"] for row in batch["data"]] == [True, False, True, True]
    assert (batch["all_fit"], batch["fitting"]) == (False, 3)
    assert "still fits" in batch["data"][1]["refusal"]
    fitting = [row["price_units"] for row in batch["data"] if row["fits"]]
    (after,) = batch["after"]
    assert after["limits"][0]["units_reserved"] == sum(fitting)
    assert scene.analyst.budget(scene.dataset)["units_reserved"] == 0  # free: nothing is reserved
    assert scene.analyst.quote_batch(asked[:1] + asked[2:])["all_fit"]


def test_a_batch_names_what_cannot_be_planned(service):
    scene = service.scene()
    asked = [job(scene.dataset), job(scene.dataset, algorithm="nonsense"), job(scene.dataset)]
    batch = scene.analyst.quote_batch(asked)
    assert [row["fits"] for row in batch["data"]] == [True, False, True]
    assert batch["data"][1]["price_units"] is None and batch["data"][1]["refusal"]


def test_a_group_is_admitted_whole_and_each_job_runs_by_itself(service):
    scene = service.scene(epsilon=1.0)
    group = scene.analyst.submit_group([job(scene.dataset, e) for e in (0.3, 0.2)])
    assert [view["spec"]["privacy"]["epsilon"] for view in group["data"]] == [0.3, 0.2]
    for view in group["data"]:
        assert view["group"] == group["id"]
        assert scene.analyst.wait(view["id"])["state"] == "succeeded"
    now = scene.analyst.group(group["id"])
    assert [view["state"] for view in now["data"]] == ["succeeded"] * 2
    assert refused(lambda: service.person("analyst").group(group["id"])).code == "not_found"
    with service.db.read() as connection:
        assert check_ledger(connection) == []


def test_a_group_that_does_not_fit_reserves_nothing(service):
    scene = service.scene(epsilon=1.0)
    asked = [job(scene.dataset, e) for e in (0.6, 0.9, 0.1)]
    problem = refused(lambda: scene.analyst.submit_group(asked))
    assert (problem.code, problem.problem["index"]) == ("budget_exceeded", 1)
    assert "job 2 of 3, and so none of them" in problem.problem["detail"]
    assert scene.analyst.jobs(scene.dataset) == []
    assert scene.analyst.budget(scene.dataset)["units_reserved"] == 0
    unplannable = [job(scene.dataset, 0.1), job(scene.dataset, algorithm="nonsense")]
    problem = refused(lambda: scene.analyst.submit_group(unplannable))
    assert (problem.code, problem.problem["index"]) == ("plan_refused", 1)


def test_a_group_may_span_datasets_and_is_refused_for_a_foreign_one(service):
    one, other = service.scene(epsilon=1.0), service.scene(epsilon=0.2)
    other.owner.grant(other.dataset, one.analyst.id)
    asked = [job(other.dataset, 0.15), job(one.dataset, 0.5)]
    assert len(one.analyst.submit_group(asked)["data"]) == 2
    problem = refused(lambda: one.analyst.submit_group([job(one.dataset, 0.1), *asked]))
    assert (problem.code, problem.problem["index"]) == ("budget_exceeded", 1)
    assert one.analyst.budget(one.dataset)["entries"] <= 3  # the first of them left no trace
    assert refused(lambda: other.analyst.submit_group(asked)).code == "not_found"


def test_a_repeated_group_is_replayed(service):
    scene = service.scene(epsilon=1.0)
    asked = [job(scene.dataset, 0.1), job(scene.dataset, 0.2)]
    first = scene.analyst.submit_group(asked, "a key")
    assert scene.analyst.submit_group(asked, "a key")["id"] == first["id"]
    assert len(scene.analyst.jobs(scene.dataset)) == 2
    assert refused(lambda: scene.analyst.submit_group(asked[:1], "a key")).status == 422
    assert refused(lambda: scene.analyst.submit(asked[0], "a key")).status == 422


@pytest.mark.parametrize(
    ("kind", "delta"), [("pure", 1e-6), ("renyi", 0.0), ("gaussian", 0.0), ("other", 1e-6)]
)
def test_a_kind_of_account_that_its_delta_excludes_is_refused(service, kind, delta):
    owner = service.person("owner")
    dataset = owner.declare_dataset("d", numeric_schema())["id"]
    owner.upload(dataset, numbers(service.folder, 100, 4))
    assert refused(lambda: owner.set_budget(dataset, 1.0, delta, kind=kind)).status == 422
    assert refused(lambda: owner.budget(dataset)).code == "budget_not_set"


@pytest.mark.parametrize("kind", ["renyi", "gaussian"])
def test_what_a_budget_says_adds_up_and_is_a_bound(service, kind):
    owner, analyst = service.person("owner"), service.person("analyst")
    dataset = owner.declare_dataset("d", numeric_schema())["id"]
    owner.upload(dataset, numbers(service.folder, 500, 4))
    assert owner.set_budget(dataset, 3.0, 1e-6, kind=kind)["kind"] == kind
    owner.grant(dataset, analyst.id)
    drawn = {"parameters": {"steps": 5, "batch": 20}}
    pure = {"privacy": {"epsilon": 0.3, "delta": 0}}
    for asked in (job(dataset, 1.0), job(dataset, 0.5, **drawn), job(dataset, **pure)):
        assert analyst.wait(analyst.submit(asked)["id"])["state"] == "succeeded"
    budget = analyst.budget(dataset)
    for amounts in (budget, *budget["limits"]):
        parts = [amounts[f"fraction_{part}"] for part in ("spent", "reserved", "remaining")]
        assert sum(parts) == pytest.approx(1.0, abs=1e-12)
    assert 1.0 <= budget["epsilon_spent"] <= budget["epsilon_summed"] == pytest.approx(1.8)
    assert budget["epsilon_spent_by"] in budget["words"]
    assert analyst.quote(job(dataset, budget["epsilon_remaining"]))["fits"]
    assert owner.verify(dataset)["verified"]
    with service.db.read() as connection:
        assert check_ledger(connection) == []
