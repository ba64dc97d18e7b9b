"""What owners do with a budget once it is set, and what administrators see of the service."""

import csv
import io

import httpx
import pytest

from epsilond import ApiError
from service.audit.verify import verify_chain
from service.ledger.check import check_ledger
from service.planning.conversion import best_order, budget_units
from tests.api.at_once import at_once
from tests.harness import job, numbers, numeric_schema, until


def capped(service, epsilon=2.0, cap=0.5):
    """An owner, an analyst, and a dataset whose cap is below its ceiling."""
    owner, analyst = service.person("owner"), service.person("analyst")
    dataset = owner.declare_dataset("capped", numeric_schema())["id"]
    owner.upload(dataset, numbers(service.folder, 500, 4))
    owner.set_budget(dataset, epsilon, 1e-6, cap)
    owner.grant(dataset, analyst.id)
    return owner, analyst, dataset


def refused(action, status, code):
    with pytest.raises(ApiError) as refusal:
        action()
    assert (refusal.value.status, refusal.value.code) == (status, code)
    return refusal.value.problem


def test_a_top_up_makes_room_up_to_the_ceiling_and_no_further(service):
    owner, analyst, dataset = capped(service)
    refused(lambda: analyst.submit(job(dataset, 0.6)), 409, "budget_exceeded")
    budget = owner.top_up(dataset, 1.0, "a second study was approved")
    assert budget["epsilon_cap"] == 1.0 and budget["epsilon"] == 2.0
    ceiling, cap = budget["limits"]
    assert cap["units"] == budget_units(1.0, 1e-6) and ceiling["units"] == budget["units_ceiling"]
    assert (cap["order"], cap["in_advance"]) == (best_order(1.0, 1e-6), True)
    assert analyst.wait(analyst.submit(job(dataset, 0.6))["id"])["state"] == "succeeded"
    problem = refused(lambda: owner.top_up(dataset, 2.5, "more"), 409, "ceiling_exceeded")
    assert problem["epsilon"] == 2.0 and "2.0" in problem["detail"]
    refused(lambda: owner.top_up(dataset, 1.0, "again"), 422, "invalid_request")
    refused(lambda: owner.top_up(dataset, 0.7, "less"), 422, "invalid_request")
    refused(lambda: owner.top_up(dataset, 1.5, " "), 422, "invalid_request")
    everything = owner.top_up(dataset, 2.0, "all of it")
    assert [limit["limit"] for limit in everything["limits"]] == ["ceiling"]
    assert everything["epsilon_cap"] == 2.0
    entries = owner.ledger(dataset)
    assert [e["reason"] for e in entries if e["kind"] == "top_up"] == [
        "a second study was approved",
        "all of it",
    ]
    raised = [e["epsilon"] for e in entries if e["kind"] in ("open", "top_up")]
    assert raised == [2.0, 1.0, 2.0]
    with service.db.read() as connection:
        assert check_ledger(connection) == []
    analyst.wait(analyst.submit(job(dataset, 0.5))["id"])
    chain = owner.chain(dataset)
    assert verify_chain(chain, owner.public_key()) == []
    first, second = (record["body"]["account"]["cap"] for record in chain)
    assert (first["units"], second) == (budget_units(1.0, 1e-6), None)


def test_a_frozen_budget_admits_nothing_and_says_why(service):
    owner, analyst, dataset = capped(service)
    running = analyst.submit(job(dataset, 0.1))["id"]
    assert owner.freeze(dataset, "an incident")["frozen"]
    for person in (analyst, owner):
        problem = refused(
            lambda person=person: person.submit(job(dataset, 0.1)), 409, "budget_frozen"
        )
        assert "an incident" in problem["detail"]
    quote = analyst.quote(job(dataset, 0.1))
    assert not quote["fits"] and "an incident" in quote["refusal"]
    assert analyst.wait(running)["state"] == "succeeded"  # admitted before
    refused(lambda: owner.freeze(dataset, "twice"), 409, "budget_frozen")
    assert not owner.unfreeze(dataset, "it was nothing")["frozen"]
    refused(lambda: owner.unfreeze(dataset, "twice"), 409, "budget_not_frozen")
    assert analyst.wait(analyst.submit(job(dataset, 0.1))["id"])["state"] == "succeeded"
    kinds = [e["kind"] for e in owner.ledger(dataset) if e["units"] == 0]
    assert kinds == ["freeze", "unfreeze"]
    assert owner.verify(dataset)["verified"]


def test_only_the_owner_changes_a_budget(service):
    owner, analyst, dataset = capped(service)
    stranger, auditor = service.person("owner"), service.person("auditor")
    for person, status, code in (
        (analyst, 403, "forbidden"),
        (auditor, 403, "forbidden"),
        (service.admin, 403, "forbidden"),
        (stranger, 404, "not_found"),
    ):
        refused(lambda person=person: person.top_up(dataset, 1.0, "mine"), status, code)
        refused(lambda person=person: person.freeze(dataset, "mine"), status, code)
        refused(lambda person=person: person.unfreeze(dataset, "mine"), status, code)
    assert [e["kind"] for e in owner.ledger(dataset)] == ["open"]


def test_a_budget_shows_the_callers_share_and_what_adding_up_would_read(service):
    owner, analyst, dataset = capped(service, cap=2.0)
    owner.grant(dataset, analyst.id, epsilon_cap=0.4)
    assert [limit["limit"] for limit in owner.budget(dataset)["limits"]] == ["ceiling"]
    share = analyst.budget(dataset)["limits"][1]
    assert share["epsilon"] == 0.4 and share["fraction_remaining"] == 1.0
    for _ in range(4):
        analyst.wait(analyst.submit(job(dataset, 0.1))["id"])
    budget = analyst.budget(dataset)
    assert budget["epsilon_summed"] == pytest.approx(0.4, rel=1e-3)
    assert budget["epsilon_spent"] < budget["epsilon_summed"] * 0.7
    assert budget["epsilon_spent_by"].startswith("Gaussian differential privacy")
    assert "add up" in budget["words"] and "bounded by the share" in budget["words"]
    given = owner.grants(dataset)[0]
    assert given["epsilon_cap"] == given["share"]["epsilon"] == 0.4
    assert given["units_committed"] == budget["units_spent"]
    assert given["share"]["units_spent"] == budget["limits"][1]["units_spent"]
    quote = analyst.quote(job(dataset, 0.39))
    assert not quote["fits"] and "your share" in quote["refusal"]
    assert quote["largest_epsilon"] < 0.39
    assert owner.quote(job(dataset, 0.39))["fits"]


def test_of_many_submissions_at_once_only_those_within_the_share_are_admitted(service):
    owner, analyst, dataset = capped(service, cap=2.0)
    price = analyst.quote(job(dataset, 0.1))["plan"]["price"]["units"]
    owner.grant(dataset, analyst.id, epsilon_cap=0.25)
    fit = analyst.budget(dataset)["limits"][1]["units"] // price
    outcomes = at_once(12, lambda: analyst.submit(job(dataset, 0.1))["state"])
    assert outcomes.count("queued") == fit < 12
    refusals = {o.code for o in outcomes if isinstance(o, ApiError)}
    assert refusals == {"analyst_cap_exceeded"}


def test_nothing_is_admitted_after_a_freeze_or_a_revocation_has_answered(service):
    for stop in ("freeze", "revoke"):
        owner, analyst, dataset = capped(service, cap=2.0)
        answered = []

        def act(owner=owner, dataset=dataset, analyst=analyst, stop=stop, answered=answered):
            if not answered:
                answered.append(1)
                if stop == "freeze":
                    owner.freeze(dataset, "now")
                else:
                    owner.revoke_grant(dataset, analyst.id)
                return len(owner.jobs(dataset))
            return analyst.submit(job(dataset, 0.01))["id"]

        outcomes = at_once(8, act)
        counted = next(o for o in outcomes if isinstance(o, int))
        assert len(owner.jobs(dataset)) == counted
        assert {o.code for o in outcomes if isinstance(o, ApiError)} <= {
            "budget_frozen",
            "not_found",
            "forbidden",
        }


def test_the_ledger_is_filtered_and_exported(service):
    owner, analyst, dataset = capped(service)
    done = [analyst.wait(analyst.submit(job(dataset, 0.05))["id"])["id"] for _ in range(2)]
    owner.freeze(dataset, "=HYPERLINK(1)")
    path = f"/v1/datasets/{dataset}/ledger"
    for params, kinds in (
        ({"kind": "post"}, ["post", "post"]),
        ({"job": done[1]}, ["reserve", "post"]),
        ({"principal": owner.id}, ["open", "freeze"]),
        ({"principal": owner.id, "kind": "post"}, []),
    ):
        page = analyst.request("GET", path, params=params)
        assert [e["kind"] for e in page["data"]] == kinds
    export = httpx.get(
        f"{service.url}{path}.csv", headers={"Authorization": f"Bearer {analyst.key}"}
    )
    assert export.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(export.text)))
    assert [(int(r["seq"]), r["kind"], int(r["units"])) for r in rows] == [
        (e["seq"], e["kind"], e["units"]) for e in analyst.ledger(dataset)
    ]
    assert rows[-1]["reason"] == "'=HYPERLINK(1)"


def test_lists_of_grants_and_algorithms_have_cursors(service):
    owner, analyst, dataset = capped(service)
    others = [service.person("analyst") for _ in range(3)]
    for other in others:
        owner.grant(dataset, other.id)
    everyone = [analyst.id, *(other.id for other in others)]
    assert [g["principal"] for g in owner.grants(dataset)] == everyone
    for path, cursor, whole in (
        (f"/v1/datasets/{dataset}/grants", "principal", everyone),
        ("/v1/algorithms", "name", [a["name"] for a in owner.algorithms()]),
    ):
        assert [i[cursor] for i in owner.pages(path, cursor=cursor, limit=1)] == whole
        refused(
            lambda path=path: owner.request("GET", path, params={"starting_after": "nobody"}),
            404,
            "not_found",
        )


def test_the_chain_is_verified_whole_and_record_by_record(service):
    scene = service.scene()
    path = f"/v1/datasets/{scene.dataset}/audit/head"
    assert scene.analyst.request("GET", path)["hash"] is None
    for _ in range(3):
        scene.analyst.wait(scene.analyst.submit(job(scene.dataset))["id"])
    head = scene.analyst.request("GET", path)
    chain = scene.analyst.chain(scene.dataset)
    assert (head["length"], head["hash"]) == (3, chain[-1]["hash"])
    assert head["public_key"] == scene.analyst.public_key()
    whole = scene.analyst.verify(scene.dataset)
    assert (whole["verified"], whole["records"], whole["findings"]) == (True, 3, [])
    for seq in (1, 2, 3):
        one = scene.analyst.verify(scene.dataset, seq)
        assert one["verified"] and one["seq"] == seq
    refused(lambda: scene.analyst.verify(scene.dataset, 4), 404, "not_found")
    refused(lambda: service.person("analyst").verify(scene.dataset), 404, "not_found")


def test_administrators_see_queue_leases_failures_and_processes(service):
    scene = service.scene(rows=100_000)
    submitted = scene.analyst.submit(job(scene.dataset, parameters={"steps": 20_000}))["id"]
    until(lambda: scene.analyst.job(submitted)["data_opened"], "the job's start")
    seen = service.admin.operations()
    lease = next(lease for lease in seen["leases"] if lease["job"] == submitted)
    assert lease["attempt"] == 1 and lease["seconds_left"] <= 3
    assert seen["jobs"]["running"] >= 1 and seen["engine"] == service.engine
    until(
        lambda: {"api", "worker"} <= {p["role"] for p in service.admin.operations()["processes"]},
        "both kinds of process",
    )
    scene.analyst.cancel(submitted)
    scene.analyst.wait(submitted)
    seen = service.admin.operations()
    assert submitted not in {lease["job"] for lease in seen["leases"]}
    assert seen["ended_last_day"]["cancelled"] >= 1
    for person in (scene.analyst, scene.owner, service.person("auditor")):
        refused(person.operations, 403, "forbidden")
