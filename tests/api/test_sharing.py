"""An analyst sees their own entries and records; others' only where the owner shares the ledger."""

import csv
import io

import httpx
import pytest

from epsilond import ApiError
from service.audit.verify import verify_chain
from tests.harness import job, numbers, numeric_schema


@pytest.fixture(scope="module")
def scene(service):
    """Two analysts on one dataset, each with jobs between those of the other, and a sibling dataset of
    the same people that only the second may use."""
    scene = service.scene(epsilon=4.0)
    scene.other, scene.auditor = service.person("analyst"), service.person("auditor")
    scene.owner.grant(scene.dataset, scene.other.id)
    sibling = scene.owner.declare_dataset("more", numeric_schema(), scene.dataset)["id"]
    scene.owner.upload(sibling, numbers(service.folder, 300, 4))
    scene.owner.grant(sibling, scene.other.id)
    scene.sibling, scene.jobs = sibling, []
    for who, where in (
        (scene.other, scene.dataset),
        (scene.analyst, scene.dataset),
        (scene.other, sibling),
        (scene.other, scene.dataset),
        (scene.analyst, scene.dataset),
    ):
        scene.jobs.append(who.wait(who.submit(job(where))["id"])["id"])
    scene.owner.freeze(scene.dataset, "a pause")
    scene.owner.unfreeze(scene.dataset, "it is over")
    return scene


@pytest.fixture(params=[False, True], ids=["private", "shared"])
def shared(request, scene):
    view = scene.owner.share_ledger(scene.dataset, request.param)
    assert view["shared_ledger"] == request.param
    yield request.param
    scene.owner.share_ledger(scene.dataset, False)


def entries_by_csv(service, client, dataset):
    text = httpx.get(
        f"{service.url}/v1/datasets/{dataset}/ledger.csv",
        headers={"Authorization": f"Bearer {client.key}"},
    ).text
    return [int(row["seq"]) for row in csv.DictReader(io.StringIO(text))]


def test_a_ledger_is_private_unless_its_owner_says_otherwise(service, scene):
    assert scene.owner.dataset(scene.dataset)["shared_ledger"] is False
    named = scene.owner.declare_dataset("open", numeric_schema(), shared_ledger=True)
    assert named["shared_ledger"]


def test_the_ledger_shows_an_analyst_their_own_entries_and_the_owners(service, scene, shared):
    everything = scene.owner.ledger(scene.dataset)
    mine = [
        e
        for e in everything
        if e["job"] is None
        or e["principal"] == scene.analyst.id
        or (shared and e["dataset"] == scene.dataset)
    ]
    assert len(mine) == (11 if shared else 7) < len(everything) == 13
    assert scene.analyst.ledger(scene.dataset) == mine
    assert entries_by_csv(service, scene.analyst, scene.dataset) == [e["seq"] for e in mine]
    assert scene.auditor.ledger(scene.dataset) == everything
    filtered = scene.analyst.request(
        "GET", f"/v1/datasets/{scene.dataset}/ledger", params={"principal": scene.other.id}
    )
    assert len(filtered["data"]) == (4 if shared else 0)
    for client in (scene.analyst, scene.other):  # what admission goes by, everyone sees
        assert client.budget(scene.dataset)["units_spent"] == everything[-1]["units_spent"]


def test_the_chain_shows_an_analyst_their_own_records_and_verifies(scene, shared):
    chain, key = scene.owner.chain(scene.dataset), scene.owner.public_key()
    mine = scene.analyst.chain(scene.dataset)
    assert [r["body"]["seq"] for r in mine] == ([1, 2, 3, 4] if shared else [2, 4])
    assert all(record in chain for record in mine)
    assert verify_chain(mine, key, partial=True) == []
    assert (verify_chain(mine, key) == []) == shared
    swapped = [mine[1], mine[0], *mine[2:]]
    assert verify_chain(swapped, key, partial=True) != []
    whole = scene.analyst.verify(scene.dataset)
    assert (whole["verified"], whole["records"]) == (True, 4)
    assert scene.analyst.verify(scene.dataset, seq=2)["verified"]
    if shared:
        assert scene.analyst.verify(scene.dataset, seq=3)["verified"]
    else:
        with pytest.raises(ApiError) as refusal:
            scene.analyst.verify(scene.dataset, seq=3)
        assert refusal.value.status == 404


def test_events_tell_an_analyst_what_the_ledger_shows_them(service, scene, shared):
    ids = {}
    for client in (scene.analyst, scene.owner):
        with httpx.stream(
            "GET",
            f"{service.url}/v1/events",
            headers={"Authorization": f"Bearer {client.key}"},
            timeout=30,
        ) as response:
            lines = response.iter_lines()
            ids[client] = next(x for x in lines if x.startswith("id: ")).removeprefix("id: ")
    theirs = scene.other.wait(scene.other.submit(job(scene.dataset))["id"])["id"]
    own = scene.analyst.wait(scene.analyst.submit(job(scene.dataset))["id"])["id"]
    by_seq = {e["seq"]: e for e in scene.owner.ledger(scene.dataset)}
    for client, jobs in (
        (scene.owner, [theirs, theirs, own, own]),
        (scene.analyst, [theirs] * 2 * shared + [own, own]),
    ):
        seen = []
        for event in client.stream(last_event_id=ids[client]):
            data = event["data"]
            if event["event"] == "budget" and data["dataset"] == scene.dataset:
                seen.append(by_seq[data["entry"]]["job"])
            if seen[-2:] == [own, own]:
                break
        assert seen == jobs
