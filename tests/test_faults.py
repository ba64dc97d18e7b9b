"""What goes away comes back: workers, the database and the broker fail, and jobs go on."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from sqlalchemy import delete, insert

from service.db import Database, new_id, now_ms
from service.jobs.hints import QUEUE, TASK, CeleryHints, celery_app
from service.jobs.maintenance import HEARTBEAT_TIMEOUT_MS
from service.tables import processes
from tests.harness import ENGINES, Service, fresh_database, job, running, server, until
from tests.proxy import Proxy

LONG = {"steps": 3000}


def children(pid):
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return {int(line) for line in found.stdout.split()}


def working(service):
    """The processes that run jobs."""
    return children(service.processes["worker" if service.engine == "celery" else "api"].pid)


def workers_listed(service):
    return [p for p in service.admin.operations()["processes"] if p["role"] == "worker"]


def messages(service):
    with redis.Redis.from_url(server("EPSILOND_TEST_REDIS_URL")) as broker:
        return broker.llen(f"{service.settings.broker_prefix}{QUEUE}")


def healthy(service):
    command = [sys.executable, "-c", "from service.cli import main; main()", "health"]
    environment = os.environ | service.environment
    return subprocess.run(command, env=environment, check=False).returncode == 0


def succeed(scene, count=1, **changes):
    spec = job(scene.dataset, 0.01, **changes)
    submitted = [scene.analyst.submit(spec)["id"] for _ in range(count)]
    return all(scene.analyst.wait(each)["state"] == "succeeded" for each in submitted)


def test_a_worker_that_starts_without_its_database_works_when_that_is_back(tmp_path):
    with running("celery", tmp_path) as service, Proxy(service.settings.url) as proxy:
        service.kill("worker")
        direct = service.environment["EPSILOND_DATABASE_URL"]
        service.environment["EPSILOND_DATABASE_URL"] = proxy.url
        service.spawn("worker", "worker", "--concurrency", "1")
        service.environment["EPSILOND_DATABASE_URL"] = direct
        scene = service.scene()
        assert succeed(scene)
        until(lambda: healthy(service), "the worker's heartbeat")

        proxy.refuse()
        (old,) = working(service)
        os.kill(old, signal.SIGKILL)
        until(lambda: working(service) - {old}, "another child")
        until(lambda: "cannot work yet" in service.log.read_text(), "its failure to start")
        with service.db.write() as connection:  # as if the dead one had been silent for a minute
            connection.execute(delete(processes).where(processes.c.role == "worker"))
        waiting = scene.analyst.submit(job(scene.dataset))["id"]
        until(lambda: not messages(service), "the taking of its hint")
        assert not workers_listed(service) and not healthy(service)

        proxy.heal()
        assert scene.analyst.wait(waiting)["state"] == "succeeded"
        until(lambda: workers_listed(service) and healthy(service), "the worker's heartbeat")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_killed_workers_job_goes_on_long_before_its_lease_ends(engine, tmp_path):
    with running(engine, tmp_path, lease_seconds=3600) as service:
        scene = service.scene(rows=300_000)
        submitted = scene.analyst.submit(job(scene.dataset, 0.5, parameters=LONG))["id"]
        until(lambda: scene.analyst.job(submitted)["progress"]["steps_done"], "its first steps")
        for pid in working(service):
            os.kill(pid, signal.SIGKILL)
        assert scene.analyst.wait(submitted)["state"] == "succeeded"
        assert service.fact("SELECT fence FROM jobs") == 2


@pytest.mark.parametrize("engine", ENGINES)
def test_a_stopped_service_leaves_no_job_to_its_lease(engine, tmp_path):
    """A Celery worker ends the job at hand and takes no other; an embedded one gives it back."""
    with running(engine, tmp_path, lease_seconds=3600) as service:
        scene = service.scene(rows=50_000)
        spec = job(scene.dataset, 0.5, parameters=LONG)
        submitted = [scene.analyst.submit(spec)["id"] for _ in range(3)]
        until(lambda: scene.analyst.job(submitted[0])["data_opened"], "the first one's start")
        name = "worker" if engine == "celery" else "api"
        service.processes[name].send_signal(signal.SIGTERM)
        service.processes.pop(name).wait(60)
        states = {"celery": ["succeeded", "queued", "queued"], "embedded": ["queued"] * 3}
        with service.db.read() as connection:
            found = connection.exec_driver_sql("SELECT state FROM jobs ORDER BY created_ms, id")
            assert sorted(found.scalars(), reverse=True) == states[engine]


def test_hints_wait_for_workers_and_not_for_jobs(tmp_path):
    with running("celery", tmp_path) as service:
        scene = service.scene(epsilon=20.0)
        service.kill("worker")
        spec = job(scene.dataset, 0.01)
        submitted = [scene.analyst.submit(spec)["id"] for _ in range(60)]
        assert messages(service) <= 1
        service.spawn("worker", "worker", "--concurrency", "2")
        assert all(scene.analyst.wait(each)["state"] == "succeeded" for each in submitted)
        until(lambda: not messages(service), "an empty queue")


def test_a_message_of_an_older_version_that_names_a_job_is_a_hint_like_any_other(tmp_path):
    with running("celery", tmp_path, loop_seconds=3600) as service:  # so only hints wake anybody
        scene = service.scene()
        assert succeed(scene)
        app = celery_app(service.settings)
        for named in ("job_of_long_ago", scene.analyst.jobs()[0]["id"]):
            app.send_task(TASK, args=[named])
        app.close()
        until(lambda: not messages(service), "their reading")
        assert succeed(scene)
        assert "Traceback" not in service.log.read_text()


@pytest.mark.parametrize("fault", ["refuse", "hang"])
def test_jobs_are_accepted_and_run_while_the_broker_is_away(fault, tmp_path):
    with Proxy(server("EPSILOND_TEST_REDIS_URL")) as proxy, running("celery", tmp_path) as service:
        service.kill("api")
        service.kill("worker")
        service.environment["EPSILOND_BROKER_URL"] = proxy.url
        service.start()
        scene = service.scene(epsilon=20.0)
        assert succeed(scene)
        getattr(proxy, fault)()
        with ThreadPoolExecutor(16) as pool:
            assert all(pool.map(lambda _: succeed(scene), range(32)))
        proxy.heal()
        assert succeed(scene)


@pytest.mark.parametrize("fault", ["refuse", "hang"])
def test_whoever_hints_never_talks_to_the_broker_and_one_thread_does(fault, tmp_path):
    with (
        fresh_database("sqlite", tmp_path) as url,
        Proxy(server("EPSILOND_TEST_REDIS_URL")) as proxy,
    ):
        service = Service("celery", tmp_path, url, broker_url=proxy.url)
        service.settings.broker_url = proxy.url
        getattr(proxy, fault)()
        with service.db.write() as connection:
            for _ in range(3):
                connection.execute(insert(processes).values(a_worker()))
            connection.execute(
                insert(processes).values(a_worker(seen_ms=now_ms() - HEARTBEAT_TIMEOUT_MS))
            )
        hints = CeleryHints(service.settings, Database(url, pool_size=2))
        hints.start()
        before = threading.active_count()
        for _ in range(1000):
            hints.hint()
        assert threading.active_count() == before and proxy.accepted <= 1
        proxy.heal()

        def arrived():
            hints.hint()
            return messages(service) >= 3

        until(arrived, "hints after the fault")
        for _ in range(100):
            hints.hint()
        hints.stop()
        assert messages(service) == 3
        service.stop()


def a_worker(**changes):
    return {
        "id": new_id("proc"),
        "role": "worker",
        "host": "elsewhere",
        "pid": 1,
        "started_ms": now_ms(),
        "seen_ms": now_ms(),
        **changes,
    }
