"""A database that refuses, hangs or is locked: answers come, nothing is half-done, and it heals."""

import secrets
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from sqlalchemy import select

from service.db import Database
from service.ledger.check import check_ledger
from service.tables import accounts
from tests.harness import Service, fresh_database, job, until
from tests.proxy import Proxy

WATCHDOG = 30  # s without an answer is a request that hangs
AWAY = ("hang", "refuse")


@pytest.fixture(scope="module")
def away(tmp_path_factory):
    """A service on PostgreSQL behind a proxy; the test's own look at the database goes past it."""
    folder = tmp_path_factory.mktemp("away")
    with fresh_database("postgresql", folder) as url, Proxy(url) as proxy:
        service = Service("celery", folder, proxy.url, database_seconds=2)
        service.db = Database(url, pool_size=2)
        service.proxy = proxy
        try:
            yield service.start()
        finally:
            proxy.heal()
            service.stop()


def send(service, method, path, client=None, **kwargs):
    headers = kwargs.pop("headers", {})
    if client is not None:
        headers = headers | {"Authorization": f"Bearer {client.key}"}
    return httpx.request(
        method, f"{service.url}{path}", headers=headers, timeout=WATCHDOG, **kwargs
    )


def healed(service):
    service.proxy.heal()
    until(lambda: send(service, "GET", "/readyz").status_code == 200, "readiness")


def is_unavailable(response):
    assert response.status_code == 503, response.text
    assert response.headers["content-type"] == "application/problem+json"
    assert int(response.headers["retry-after"]) >= 1
    assert response.json()["code"] == "unavailable"
    return response.json()["detail"]


@pytest.mark.parametrize("how", AWAY)
def test_every_request_is_answered_while_the_database_is_away(how, away):
    """More of them than there are threads, again and again; the process is alive, and not ready."""
    scene = away.scene()
    getattr(away.proxy, how)()
    try:
        for _ in range(2):
            paths = ["/v1/datasets"] * 60 + ["/readyz", "/healthz"] * 5
            with ThreadPoolExecutor(len(paths)) as pool:
                answers = list(pool.map(lambda path: send(away, "GET", path, scene.owner), paths))
            for path, answer in zip(paths, answers, strict=True):
                if path == "/healthz":
                    assert answer.status_code == 200
                else:
                    is_unavailable(answer)
    finally:
        healed(away)
    assert send(away, "GET", "/v1/datasets", scene.owner).status_code == 200


@pytest.mark.parametrize("how", AWAY)
def test_a_submission_that_met_no_database_is_made_once_however_often_it_is_sent(how, away):
    scene = away.scene()
    once = {"Idempotency-Key": secrets.token_hex(8)}

    def submit():
        return send(away, "POST", "/v1/jobs", scene.analyst, json=job(scene.dataset), headers=once)

    getattr(away.proxy, how)()
    try:
        assert "Idempotency-Key" in is_unavailable(submit())
    finally:
        healed(away)
    first, second = submit(), submit()
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json()["id"] == second.json()["id"]
    assert scene.analyst.wait(first.json()["id"])["state"] == "succeeded"
    assert away.fact("SELECT count(*) FROM jobs WHERE dataset_id = %s", scene.dataset) == 1
    with away.db.read() as connection:
        assert check_ledger(connection) == []


@pytest.mark.parametrize("how", AWAY)
def test_a_job_that_runs_while_the_database_is_away_is_published_once(how, away):
    scene = away.scene()
    submitted = scene.analyst.submit(job(scene.dataset, parameters={"steps": 3000}))["id"]
    opened = "SELECT opened_ms FROM jobs WHERE id = %s"
    until(lambda: away.fact(opened, submitted) is not None, "the data's opening")
    getattr(away.proxy, how)()
    try:
        is_unavailable(send(away, "GET", f"/v1/jobs/{submitted}", scene.analyst))
    finally:
        healed(away)
    assert scene.analyst.wait(submitted)["state"] == "succeeded"
    posted = "SELECT count(*) FROM entries WHERE job_id = %s AND kind = 'post'"
    assert away.fact(posted, submitted) == 1


def test_a_stream_does_not_begin_while_the_database_is_away(away):
    """The caller was known when the database went away."""
    scene = away.scene()
    away.proxy.hang()
    try:
        is_unavailable(send(away, "GET", "/v1/events", scene.owner))
    finally:
        healed(away)


def test_a_locked_account_delays_its_own_jobs_and_no_others(away):
    scene, other = away.scene(), away.scene()
    account = scene.owner.budget(scene.dataset)["account"]
    with away.db.write() as connection:
        connection.execute(select(accounts).where(accounts.c.id == account).with_for_update())
        is_unavailable(send(away, "POST", "/v1/jobs", scene.analyst, json=job(scene.dataset)))
        assert other.analyst.submit(job(other.dataset))["state"] == "queued"
    assert scene.analyst.submit(job(scene.dataset))["state"] == "queued"


def test_a_transaction_that_its_process_forgot_is_ended_by_the_server(tmp_path):
    """A stopped process holds its locks for a while, not for ever."""
    with fresh_database("postgresql", tmp_path) as url:
        db = Database(url, pool_size=1, patience=0.5)
        with pytest.raises(Exception, match="idle-in-transaction") as ended, db.write() as held:
            sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            held.exec_driver_sql("SELECT 1")
            watching = Database(url, pool_size=1)
            with watching.engine.connect().execution_options(
                isolation_level="AUTOCOMMIT"
            ) as watcher:
                alone = lambda: watcher.exec_driver_sql(sessions).scalar() == 1  # noqa: E731
                until(alone, "the end of the forgotten transaction")
            watching.dispose()
            held.exec_driver_sql("SELECT 1")
        assert ended.value.connection_invalidated
        with db.write() as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar() == 1
        db.dispose()


def test_a_locked_sqlite_database_answers_readers_and_refuses_writers(tmp_path):
    with fresh_database("sqlite", tmp_path) as url:
        service = Service("embedded", tmp_path, url, database_seconds=1)
        try:
            scene = service.start().scene()
            locked = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
            locked.execute("BEGIN IMMEDIATE")
            freeze = f"/v1/datasets/{scene.dataset}/budget/freeze"
            is_unavailable(send(service, "POST", freeze, scene.owner, json={"reason": "a test"}))
            assert send(service, "GET", "/v1/datasets", scene.owner).status_code == 200
            locked.execute("ROLLBACK")
            locked.close()
            assert scene.owner.freeze(scene.dataset, "a test")["frozen"]
        finally:
            service.stop()
