"""A request with an Idempotency-Key may be sent again, whatever it changes."""

import secrets

import httpx
import pytest
import yaml

from service.db import now_ms
from service.jobs.maintenance import purge
from service.tables import answers
from tests.api.at_once import at_once
from tests.api.test_authorisation import ROOT
from tests.harness import job, numeric_schema

CHANGING = {
    "/v1/principals",
    "/v1/keys",
    "/v1/keys/{key_id}/rotate",
    "/v1/datasets",
    "/v1/datasets/{dataset_id}/budget/top-ups",
    "/v1/datasets/{dataset_id}/budget/freeze",
    "/v1/datasets/{dataset_id}/budget/unfreeze",
    "/v1/groups",
    "/v1/jobs",
    "/v1/jobs/{job_id}/cancel",
}
FREE = {"/v1/session", *(f"/v1/quotes{part}" for part in ("", "/comparison", "/noise", "/batch"))}


def test_every_post_that_changes_something_takes_a_key():
    paths = yaml.safe_load((ROOT / "openapi.yaml").read_text())["paths"]
    posts = {path: found["post"] for path, found in paths.items() if "post" in found}
    taking = {
        path
        for path, post in posts.items()
        if "idempotency-key" in {p["name"].lower() for p in post.get("parameters", ())}
    }
    assert taking == CHANGING and posts.keys() == CHANGING | FREE


def send(service, person, path, body, key):
    headers = {"Authorization": f"Bearer {person.key}", "Idempotency-Key": key}
    return httpx.post(f"{service.url}{path}", json=body, headers=headers, timeout=60)


@pytest.fixture(scope="module")
def requests(service):
    """(who, path, body) of everything that changes something, in an order that works."""
    scene = service.scene(rows=100_000)
    admin = service.person("admin")
    owned = f"/v1/datasets/{scene.dataset}/budget"
    waits = scene.analyst.submit(job(scene.dataset, parameters={"steps": 20_000}))["id"]
    return [
        (scene.analyst, f"/v1/jobs/{waits}/cancel", None),  # first, while it runs
        (admin, "/v1/principals", {"name": secrets.token_hex(8), "role": "analyst"}),
        (admin, "/v1/keys", {"principal": scene.analyst.id}),
        (admin, f"/v1/keys/{admin.add_key()['id']}/rotate", {}),
        (scene.owner, "/v1/datasets", {"name": "twice", "schema": numeric_schema()}),
        (scene.owner, f"{owned}/freeze", {"reason": "a test"}),
        (scene.owner, f"{owned}/unfreeze", {"reason": "a test"}),
    ]


def test_the_same_request_gets_the_same_answer_and_changes_nothing_more(service, requests):
    for person, path, body in requests:
        key = secrets.token_hex(8)
        first = send(service, person, path, body, key)
        again = send(service, person, path, body, key)
        assert first.status_code < 300, first.text
        assert (again.status_code, again.content) == (first.status_code, first.content), path
        assert again.headers["idempotent-replayed"] == "true"
        assert "idempotent-replayed" not in first.headers
        other = send(service, person, path, {"reason": "another"}, key)
        assert (other.status_code, other.json()["code"]) in {
            (422, "idempotency_conflict"),
            (422, "invalid_request"),
        }
        secret = first.json().get("key")
        with service.db.read() as connection:
            kept = b"".join(row.response for row in connection.execute(answers.select()))
        assert secret is None or secret.encode() not in kept


def test_many_at_once_make_one(service):
    owner = service.person("owner")
    body = {"name": "once", "schema": numeric_schema()}
    found = at_once(6, lambda: send(service, owner, "/v1/datasets", body, "the same"))
    assert {answer.status_code for answer in found} == {201}
    assert len({answer.content for answer in found}) == 1
    assert [one["name"] for one in owner.datasets()] == ["once"]


def test_a_refusal_is_not_kept_and_another_person_has_keys_of_their_own(service):
    first, second = service.person("owner"), service.person("owner")
    body = {"name": "taken", "schema": numeric_schema()}
    taken = first.declare_dataset("taken", numeric_schema())["id"]
    assert send(service, first, "/v1/datasets", body, "k").status_code == 409
    assert send(service, second, "/v1/datasets", body, "k").status_code == 201
    first.delete_dataset(taken)
    made = send(service, first, "/v1/datasets", body, "k")
    assert made.status_code == 201 and "idempotent-replayed" not in made.headers


def test_answers_are_kept_for_a_week(service):
    owner = service.person("owner")
    body = {"name": "week", "schema": numeric_schema()}
    send(service, owner, "/v1/datasets", body, "k")
    mine = answers.c.principal_id == owner.id
    for days, left in ((6, 1), (8, 0)):
        with service.db.write() as connection:
            aged = answers.update().where(mine).values(created_ms=now_ms() - days * 86_400_000)
            connection.execute(aged)
        purge(service.db)
        with service.db.read() as connection:
            assert len(connection.execute(answers.select().where(mine)).all()) == left
