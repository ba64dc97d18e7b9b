"""Who submits the same again is admitted on the strength of what a process remembers, if it is still
so: whatever has changed since is found by the transaction that admits."""

import httpx
import pytest
from sqlalchemy import update

from epsilond import ApiError
from service.db import now_ms
from service.tables import api_keys
from tests.harness import job

SPEC = {"parameters": {"steps": 2}}


def submitted(scene):
    """Often enough that it is remembered, by whichever process was asked."""
    for _ in range(3):
        scene.analyst.submit(job(scene.dataset, **SPEC))


def refusal(scene, spec=None):
    with pytest.raises(ApiError) as refused:
        scene.analyst.submit(spec or job(scene.dataset, **SPEC))
    return refused.value.status, refused.value.code


@pytest.mark.parametrize("how", ["revoked", "expired"])
@pytest.mark.parametrize("request_is", ["well-formed", "malformed"])
def test_a_key_that_is_no_longer_good_admits_nothing_and_is_told_nothing(service, how, request_is):
    scene = service.scene()
    submitted(scene)
    (key,) = scene.analyst.keys()
    if how == "revoked":
        service.admin.revoke_key(key["id"])
    else:
        with service.db.write() as connection:
            of = api_keys.c.id == key["id"]
            connection.execute(update(api_keys).where(of).values(expires_ms=now_ms()))
    spec = job(scene.dataset, **SPEC) if request_is == "well-formed" else {"dataset": 1}
    assert refusal(scene, spec) == (401, "unauthenticated")
    assert len(scene.owner.jobs(scene.dataset)) == 3


def test_a_revoked_grant_ends_what_was_remembered(service):
    scene = service.scene()
    submitted(scene)
    scene.owner.revoke_grant(scene.dataset, scene.analyst.id)
    assert refusal(scene) == (404, "not_found")
    scene.owner.grant(scene.dataset, scene.analyst.id)
    submitted(scene)


def test_so_do_a_freeze_and_the_end_of_the_data(service):
    scene = service.scene()
    submitted(scene)
    scene.owner.freeze(scene.dataset, "an incident")
    assert refusal(scene) == (409, "budget_frozen")
    scene.owner.unfreeze(scene.dataset, "over")
    submitted(scene)
    scene.owner.delete_data(scene.dataset)
    assert refusal(scene) == (409, "dataset_not_ready")


def test_a_limit_that_is_set_later_is_planned_for(service):
    scene = service.scene(epsilon=8.0)
    submitted(scene)

    def limits():
        made = scene.analyst.submit(job(scene.dataset, **SPEC))["id"]
        return scene.analyst.plan(made)["facts"].get("limits", [])

    assert limits() == []
    scene.owner.grant(scene.dataset, scene.analyst.id, epsilon_cap=0.7)
    (share,) = limits()
    assert limits() == [share]  # remembered anew
    scene.owner.grant(scene.dataset, scene.analyst.id, epsilon_cap=None)
    assert limits() == []


def test_what_is_left_is_counted_to_the_last_job(service):
    """Until the budget is full, from memory and not."""
    scene = service.scene(epsilon=0.5)
    admitted = 0
    while True:
        try:
            scene.analyst.submit(job(scene.dataset, 0.2, **SPEC))
        except ApiError as refused:
            assert refused.code == "budget_exceeded"
            break
        admitted += 1
    budget = scene.owner.budget(scene.dataset)
    assert 1 < admitted == len(scene.owner.jobs(scene.dataset))
    assert (
        budget["units_remaining"] * admitted < budget["units_ceiling"] - budget["units_remaining"]
    )


def test_a_repeated_key_gets_the_first_answer_and_another_request_is_refused(service):
    scene = service.scene()
    submitted(scene)
    spec = job(scene.dataset, **SPEC)
    first = scene.analyst.submit(spec, idempotency_key="once")
    assert scene.analyst.submit(spec, idempotency_key="once") == first
    with pytest.raises(ApiError) as refused:
        scene.analyst.submit({**spec, "metadata": {"a": "b"}}, idempotency_key="once")
    assert refused.value.code == "idempotency_conflict"
    headers = {"Authorization": f"Bearer {scene.analyst.key}", "Idempotency-Key": "once"}
    again = httpx.post(f"{service.url}/v1/jobs", json=spec, headers=headers)
    assert again.headers["Idempotent-Replayed"] == "true"
