"""Events as they happen, waiting instead of polling, and answers that did not change."""

import asyncio
import json
import threading
import time
from types import SimpleNamespace

import httpx
import pytest

from epsilond import ApiError, Client
from service.api.auth import Caller
from service.api.feed import Feed
from service.api.jobs import get_job
from tests.harness import free_port, job, numbers, numeric_schema, running, until
from tests.jobs.harness import JobHarness


class Stream:
    """An open event stream, read by a thread of its own."""

    def __init__(self, client, *arguments):
        self.events, self.ended, self.error = [], threading.Event(), None
        self._thread = threading.Thread(target=self._read, args=(client, arguments), daemon=True)
        self._thread.start()

    def _read(self, client, arguments):
        try:
            for event in client.stream(*arguments):
                self.events.append(event)
        except (ApiError, httpx.HTTPError) as error:
            self.error = error
        self.ended.set()

    def types(self, job_id):
        return [
            e["data"]["type"]
            for e in list(self.events)
            if e["event"] == "job" and e["data"]["job"] == job_id
        ]

    def budgets(self, dataset):
        return [
            e["data"]["kind"]
            for e in list(self.events)
            if e["event"] == "budget" and e["data"]["dataset"] == dataset
        ]

    def until(self, condition, what):
        return until(lambda: condition(self), what)


def follow(service, client, *arguments):
    """A stream that is known to be open."""
    before = service.admin.operations()["streams"]
    stream = Stream(client, *arguments)
    until(lambda: service.admin.operations()["streams"] > before, "the stream's start")
    return stream


def whole(history):
    return history[:2] == ["queued", "running"] and history[-1] == "succeeded"


def test_a_jobs_stream_tells_its_story_and_ends(service):
    scene = service.scene()
    submitted = scene.analyst.submit(job(scene.dataset))["id"]
    story = list(scene.analyst.stream(submitted))
    steps = [e for e in story if e["event"] == "job"]
    assert [e["data"]["type"] for e in steps] == ["queued", "running", "succeeded"]
    assert [e["id"] for e in steps] == ["1", "2", "3"]
    assert [e["data"]["type"] for e in scene.analyst.stream(submitted, "1")] == [
        "running",
        "succeeded",
    ]
    assert list(scene.analyst.stream(submitted, "3")) == []
    assert raw(service, scene.analyst, f"/v1/jobs/{submitted}/events", "3").status_code == 204
    listed = scene.analyst.events(submitted)
    assert [e["type"] for e in listed] == ["queued", "running", "succeeded"]
    page = scene.analyst.request(
        "GET", f"/v1/jobs/{submitted}/events", params={"limit": 1, "starting_after": 1}
    )
    assert [e["type"] for e in page["data"]] == ["running"] and page["has_more"]


def test_a_stream_shows_what_its_reader_may_see_and_nothing_else(service):
    scene, other = service.scene(), service.scene()
    auditor = service.person("auditor")
    mine, owners = follow(service, scene.analyst), follow(service, scene.owner)
    foreign, all_ = follow(service, other.analyst), follow(service, auditor)
    ours = scene.analyst.wait(scene.analyst.submit(job(scene.dataset))["id"])["id"]
    owned = scene.owner.wait(scene.owner.submit(job(scene.dataset))["id"])["id"]
    theirs = other.analyst.wait(other.analyst.submit(job(other.dataset))["id"])["id"]
    all_.until(lambda s: whole(s.types(theirs)), "the last event")
    foreign.until(lambda s: s.budgets(other.dataset) == ["reserve", "post"], "their budget")
    assert whole(all_.types(ours)) and whole(owners.types(ours)) and whole(mine.types(ours))
    assert whole(owners.types(owned)) and mine.types(owned) == [] == mine.types(theirs)
    assert owners.budgets(scene.dataset) == ["reserve", "post"] * 2
    assert mine.budgets(scene.dataset) == ["reserve", "post"]  # their own: the ledger is private
    for stream in (mine, owners):
        assert other.dataset not in str(stream.events) and theirs not in str(stream.events)
    assert scene.dataset not in str(foreign.events) and ours not in str(foreign.events)


def test_a_stream_resumes_after_the_last_event_without_loss_or_repetition(service):
    scene = service.scene()
    stream = follow(service, scene.analyst)
    jobs = [scene.analyst.submit(job(scene.dataset, 0.02))["id"] for _ in range(4)]
    stream.until(lambda s: all(whole(s.types(j)) for j in jobs), "all events")
    stream.until(lambda s: s.budgets(scene.dataset).count("post") == 4, "all charges")
    said = [e for e in stream.events if e["event"] != "progress"]
    assert len({e["id"] for e in said}) == len(said)
    for place in (0, len(said) // 2, len(said) - 2):
        again = Stream(scene.analyst, None, said[place]["id"])
        missed = said[place + 1 :]
        until(
            lambda again=again, missed=missed: (
                [e for e in list(again.events) if e["event"] != "progress"][: len(missed)] == missed
            ),
            "what was missed",
        )


def test_event_ids_of_others_make_and_of_no_stream_are_refused(service):
    analyst = service.scene().analyst
    for bad in ("1", "zz", "00" * 16, "é"):
        response = raw(service, analyst, "/v1/events", bad)
        assert (response.status_code, response.json()["code"]) == (422, "invalid_request")


def test_a_forgotten_past_is_said_to_be_forgotten(service):
    scene = service.scene()
    stream = follow(service, scene.analyst)
    scene.analyst.wait(scene.analyst.submit(job(scene.dataset))["id"])
    stream.until(lambda s: s.budgets(scene.dataset)[-1:] == ["post"], "the charge")
    first = stream.events[0]["id"]
    with service.db.write() as connection:
        newest = connection.exec_driver_sql("SELECT max(position) FROM changes").scalar()
        connection.exec_driver_sql(f"DELETE FROM changes WHERE position < {newest}")
    again = Stream(scene.analyst, None, first)
    again.until(lambda s: s.events, "an answer")
    assert again.events[0]["event"] == "reset"


def test_a_top_up_and_a_freeze_are_events_of_every_dataset_of_the_account(service):
    scene = service.scene()
    sibling = scene.owner.declare_dataset("v2", numeric_schema(), same_people_as=scene.dataset)
    scene.owner.upload(sibling["id"], numbers(service.folder, 100, 4))
    owners, analysts = follow(service, scene.owner), follow(service, scene.analyst)
    scene.owner.freeze(scene.dataset, "looking into it")
    # a stream that begins may still hear what was entered just before: here, that the account opened
    opened = ["open"], []
    owners.until(lambda s: s.budgets(sibling["id"])[-1:] == ["freeze"], "the sibling's event")
    analysts.until(lambda s: s.budgets(scene.dataset)[-1:] == ["freeze"], "the event")
    for heard in (owners.budgets(sibling["id"]), owners.budgets(scene.dataset)):
        assert heard[:-1] in opened and heard[-1] == "freeze"
    assert sibling["id"] not in str(analysts.events)
    scene.owner.unfreeze(scene.dataset, "all is well")
    owners.until(lambda s: s.budgets(sibling["id"])[-1:] == ["unfreeze"], "the second event")
    assert owners.budgets(sibling["id"])[-2:] == ["freeze", "unfreeze"]
    again = Stream(scene.owner, None, owners.events[0]["id"])
    again.until(lambda s: s.budgets(sibling["id"])[-1:] == ["unfreeze"], "the resumed event")


def test_progress_arrives_while_a_job_runs(service):
    scene = service.scene(rows=100_000)
    stream = follow(service, scene.analyst)
    submitted = scene.analyst.submit(job(scene.dataset, parameters={"steps": 5000}))["id"]
    stream.until(
        lambda s: any(
            e["event"] == "progress" and e["data"]["progress"]["steps_done"] > 0 for e in s.events
        ),
        "progress",
    )
    scene.analyst.cancel(submitted)
    stream.until(lambda s: s.types(submitted)[-1:] == ["cancelled"], "the end")


@pytest.mark.parametrize("ending", ["revoked", "expired"])
def test_a_stream_ends_with_its_key(service, ending):
    person = service.person("analyst")
    extra = person.add_key(expires_days=1)
    stream = follow(service, service.client(extra["key"]))
    if ending == "revoked":
        person.revoke_key(extra["id"])
    else:
        with service.db.write() as connection:
            connection.exec_driver_sql(
                f"UPDATE api_keys SET expires_ms = 1 WHERE id = '{extra['id']}'"
            )
    assert stream.ended.wait(20) and stream.error is None


def test_streams_end_when_the_service_stops(tmp_path):
    with running("embedded", tmp_path) as service:
        scene = service.scene()
        stream = follow(service, scene.analyst)
        start = time.monotonic()
        service.processes["api"].terminate()
        assert stream.ended.wait(20) and stream.error is None
        service.processes["api"].wait(20)
        assert time.monotonic() - start < 10
        assert "Traceback" not in service.log.read_text()


def test_two_apis_on_one_database_tell_the_same_story(service):
    scene, port = service.scene(), free_port()
    second = service.spawn("second api", "api", "--port", str(port))
    try:
        url = f"http://127.0.0.1:{port}"
        until(lambda: answers(f"{url}/readyz"), "the second API's start")
        there, admin = Client(url, scene.analyst.key), Client(url, service.init_key())
        service.clients += [there, admin]
        here, elsewhere = follow(service, scene.analyst), Stream(there)
        until(lambda: admin.operations()["streams"], "the second stream")
        jobs = [scene.analyst.submit(job(scene.dataset, 0.02))["id"] for _ in range(3)]
        for stream in (here, elsewhere):
            stream.until(lambda s: all(whole(s.types(j)) for j in jobs), "all events")
        ids = [[e["id"] for e in s.events if e["event"] == "job"] for s in (here, elsewhere)]
        assert ids[0] == ids[1]
        crossed = Stream(there, None, ids[0][0])
        crossed.until(lambda s: all(s.types(j)[-1:] == ["succeeded"] for j in jobs), "the rest")
    finally:
        del service.processes["second api"]
        second.terminate()
        second.wait(20)


def test_a_client_that_leaves_is_forgotten(service):
    before = service.admin.operations()["streams"]
    with httpx.stream(
        "GET",
        f"{service.url}/v1/events",
        headers={"Authorization": f"Bearer {service.person('analyst').key}"},
    ) as response:
        lines = response.iter_lines()
        assert next(lines).startswith("retry:")
        assert service.admin.operations()["streams"] > before
    until(lambda: service.admin.operations()["streams"] <= before, "its end")


def answers(url):
    try:
        return httpx.get(url).status_code == 200
    except httpx.TransportError:
        return False


def raw(service, client, path, last_event_id=None, **headers):
    headers = {"Authorization": f"Bearer {client.key}", "Accept": "text/event-stream", **headers}
    if last_event_id is not None:
        headers["Last-Event-ID"] = last_event_id.encode()
    return httpx.get(f"{service.url}{path}", headers=headers, timeout=90)


def get(service, client, path, **headers):
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.get(
        f"{service.url}{path}",
        headers={"Authorization": f"Bearer {client.key}", **headers},
        timeout=90,
    )


def test_unchanged_answers_are_empty(service):
    scene = service.scene()
    done = scene.analyst.wait(scene.analyst.submit(job(scene.dataset))["id"])["id"]
    paths = (
        f"/v1/jobs/{done}",
        f"/v1/datasets/{scene.dataset}/budget",
        f"/v1/datasets/{scene.dataset}/ledger",
        "/v1/datasets",
        "/v1/algorithms",
    )
    tags = {}
    for path in paths:
        first = get(service, scene.analyst, path)
        tags[path] = first.headers["etag"]
        again = get(service, scene.analyst, path, If_None_Match=f'"x", W/{tags[path]}')
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == tags[path] and again.headers["x-request-id"]
        other = get(service, scene.analyst, path, If_None_Match='"x"')
        assert other.status_code == 200 and other.json() == first.json()
    scene.analyst.wait(scene.analyst.submit(job(scene.dataset))["id"])
    for path in paths[1:3]:
        changed = get(service, scene.analyst, path, If_None_Match=tags[path])
        assert changed.status_code == 200 and changed.headers["etag"] != tags[path]


def test_a_waiting_request_is_answered_when_the_job_changes(service):
    scene = service.scene(rows=100_000)
    submitted = scene.analyst.submit(job(scene.dataset, parameters={"steps": 20_000}))["id"]
    until(lambda: scene.analyst.job(submitted)["data_opened"], "the job's start")
    path, seen = f"/v1/jobs/{submitted}", []
    tag = get(service, scene.analyst, path).headers["etag"]
    start = time.monotonic()
    while scene.analyst.job(submitted)["state"] == "running":
        answer = get(service, scene.analyst, path, Prefer="wait=30", If_None_Match=tag)
        assert answer.status_code == 200 and answer.headers["etag"] != tag
        assert answer.headers["preference-applied"] == "wait=30"
        tag = answer.headers["etag"]
        seen.append(answer.json()["state"])
        if len(seen) == 2:
            scene.analyst.cancel(submitted)
    assert time.monotonic() - start < 30 and len(seen) >= 2
    scene.analyst.wait(submitted)
    ended = get(service, scene.analyst, path, Prefer="wait=500")
    assert ended.headers["preference-applied"] == "wait=60"
    assert ended.json()["state"] == "cancelled"
    tag = ended.headers["etag"]
    assert get(service, scene.analyst, path, Prefer="wait=60", If_None_Match=tag).status_code == 304


def test_a_waiting_request_gives_up_in_time(service):
    scene = service.scene()
    done = scene.analyst.wait(scene.analyst.submit(job(scene.dataset))["id"])["id"]
    with service.db.write() as connection:
        connection.exec_driver_sql(
            f"UPDATE jobs SET state = 'cancelling', lease_ms = 99999999999999 WHERE id = '{done}'"
        )
    try:
        path = f"/v1/jobs/{done}"
        tag = get(service, scene.analyst, path).headers["etag"]
        start = time.monotonic()
        waited = get(service, scene.analyst, path, Prefer="wait=1", If_None_Match=tag)
        assert waited.status_code == 304 and 0.9 < time.monotonic() - start < 15
        waited = get(service, scene.analyst, path, Prefer="respond-async, wait=1")
        assert waited.status_code == 200 and waited.headers["etag"] == tag
    finally:
        with service.db.write() as connection:
            connection.exec_driver_sql(
                f"UPDATE jobs SET state = 'succeeded', lease_ms = NULL WHERE id = '{done}'"
            )


def test_streams_and_waiting_need_a_right_to_look(service):
    scene, other = service.scene(), service.scene()
    submitted = other.analyst.submit(job(other.dataset))["id"]
    for path in (f"/v1/jobs/{submitted}/events", f"/v1/jobs/{submitted}"):
        response = raw(service, scene.analyst, path, Prefer="wait=5")
        assert (response.status_code, response.json()["code"]) == (404, "not_found")
    response = httpx.get(f"{service.url}/v1/events")
    assert (response.status_code, response.json()["code"]) == (401, "unauthenticated")


def test_waiting_ends_in_time_even_if_the_feed_does_not_begin(db, tmp_path):
    harness = JobHarness(db, tmp_path)
    queued = harness.submit()
    me = Caller(harness.owner, "owner", "owner", None, credential="key")

    async def ask():
        feed = Feed(db, harness.settings.keys, 10, 10)  # that nobody runs: it never looks
        ctx = SimpleNamespace(db=db, feed=feed)
        answer = await asyncio.wait_for(get_job(ctx, me, queued, "wait=1", None), 60)
        return answer, feed.open_streams()

    answer, left = asyncio.run(ask())
    assert json.loads(answer.body)["state"] == "queued"
    assert answer.headers["Preference-Applied"] == "wait=1" and left == 0
