"""Attacks by many requests at once, and by changes during one, kept so that they keep failing."""

import contextlib
import secrets
import threading

import anyio
import httpx
import pytest

from epsilond import ApiError
from service.api.concurrency import AT_ONCE_EACH, WAITING_MAX_EACH, ConcurrencyLimiter
from service.errors import TooManyRequests
from service.jobs.submit import Asked, submit
from service.keys import read_or_create
from tests.api.at_once import at_once
from tests.harness import (
    numbers,
    numeric_schema,
    running,
)
from tests.jobs.harness import JobHarness


def test_rotating_one_key_many_times_at_once_leaves_one_heir(service):
    person = service.person("analyst")
    extra = person.add_key()["id"]
    outcomes = at_once(6, lambda: person.rotate_key(extra)["id"])
    assert sorted(map(type, outcomes), key=str) == sorted([str] + [ApiError] * 5, key=str)


def test_granting_at_once_grants_once(service):
    scene = service.scene()
    analyst = service.person("analyst")
    outcomes = at_once(6, lambda: scene.owner.grant(scene.dataset, analyst.id)["principal"])
    assert outcomes == [analyst.id] * 6


def test_a_grant_revoked_during_submission_stops_it(db, tmp_path):
    harness = JobHarness(db, tmp_path)
    asked = []

    def authorise(connection, dataset):
        asked.append(connection)
        if len(asked) == 2:
            raise PermissionError
        return harness.authorise(connection, dataset)

    with pytest.raises(PermissionError):
        submit(
            harness.db,
            harness.settings,
            authorise=authorise,
            principal_id=harness.analyst(),  # whose grant is not there when it is looked for again
            asked=[Asked(harness.spec())],
        )
    assert harness.balance() == (0, 0)


def test_those_who_start_at_once_agree_on_what_one_of_them_wrote(tmp_path):
    """Nobody may read the file between its making and its writing."""
    for attempt in range(50):
        path = tmp_path / f"id-{attempt}"
        said = at_once(4, lambda path=path: read_or_create(path, secrets.token_hex(16)))
        assert len(set(said)) == 1 and len(said[0]) == 32
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(f"id-{i}" for i in range(50))


def test_one_callers_flood_is_refused_and_nobody_waits_behind_it():
    """Planning and verifying are free, so they could keep a processor busy."""
    limiter, hold = ConcurrencyLimiter(), threading.Event()
    outcomes = []

    async def flood():
        try:
            outcomes.append(await limiter.run("greedy", hold.wait))
        except TooManyRequests as refusal:
            outcomes.append(refusal)

    async def main():
        async with anyio.create_task_group() as tasks:
            for _ in range(AT_ONCE_EACH + WAITING_MAX_EACH + 5):
                tasks.start_soon(flood)
            await anyio.wait_all_tasks_blocked()
            assert [type(outcome) for outcome in outcomes] == [TooManyRequests] * 5
            # both threads for what is free are taken by this caller, and yet:
            assert await limiter.run("greedy but patient", lambda: 1, charged=True) == 1
            hold.set()
            assert await limiter.run("modest", lambda: 2) == 2
        assert outcomes[5:] == [True] * (AT_ONCE_EACH + WAITING_MAX_EACH)
        assert await limiter.run("greedy", lambda: 3) == 3

    anyio.run(main)


def test_nobody_takes_all_streams(tmp_path):
    with running("embedded", tmp_path, streams_max_each=3) as service:
        greedy, modest = service.person("analyst"), service.person("analyst")
        with contextlib.ExitStack() as stack:
            client = stack.enter_context(httpx.Client(base_url=service.url, timeout=20))

            def open_(person):
                headers = {"Authorization": f"Bearer {person.key}"}
                return stack.enter_context(client.stream("GET", "/v1/events", headers=headers))

            assert [open_(greedy).status_code for _ in range(4)] == [200, 200, 200, 429]
            assert open_(modest).status_code == 200


def test_topping_up_and_freezing_at_once_happens_once(service):
    scene = service.scene()
    dataset = scene.owner.declare_dataset("capped", numeric_schema())["id"]
    scene.owner.upload(dataset, numbers(service.folder, 100, 4))
    budget = {"epsilon": 2.0, "delta": 1e-6, "epsilon_cap": 0.5}
    scene.owner.request("PUT", f"/v1/datasets/{dataset}/budget", json=budget)
    raised = at_once(6, lambda: scene.owner.top_up(dataset, 1.5, "approved")["epsilon_cap"])
    assert sorted(map(str, map(type, raised))) == sorted(map(str, [float] + [ApiError] * 5))
    frozen = at_once(6, lambda: scene.owner.freeze(dataset, "look into it")["frozen"])
    assert sorted(map(str, map(type, frozen))) == sorted(map(str, [bool] + [ApiError] * 5))
    kinds = [entry["kind"] for entry in scene.owner.ledger(dataset)]
    assert kinds == ["open", "top_up", "freeze"]
