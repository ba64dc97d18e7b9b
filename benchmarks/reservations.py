"""How many jobs one hot dataset admits: reservations per second, all against one account.

    make bench-reservations

Clients with connections of their own, each an analyst of its own, submit the same cheap job to one
dataset as fast as they are answered: to two API processes on PostgreSQL and Celery without a worker,
and to the embedded service on SQLite, whose worker is stopped meanwhile. Nothing runs, so what is
timed is HTTP, planning, the reservation and the hint. Then the ledger alone, from one process.
"""

import argparse
import json
import os
import signal
import sqlite3
import tempfile
import time
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path

import httpx
import numpy as np

from benchmarks.cpu import Meter, backends
from benchmarks.load import post, repeat
from service.db import Database, new_id
from service.ledger.reserve import Wanted, reserve
from tests.harness import DATABASES, Service, free_port, fresh_database, job, until
from tests.ledger.test_race import open_ledger

EPSILON = 0.01  # about ten million of these fit
WARM_SECONDS = 2.0  # connections, the cache of plans
# as patient as shipped
SETTINGS = {"loop_seconds": 1.0, "lease_seconds": 15.0}


def workers_of(pid):
    """The embedded engine's worker processes, as Linux lists them."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    pids = {int(child) for path in children for child in path.read_text().split()}
    return [p for p in pids if b"workers.local" in Path(f"/proc/{p}/cmdline").read_bytes()]


@contextmanager
def stopped_workers(pid, database):
    """Stopped at a moment when none of them holds the database's write lock."""

    def free():
        with sqlite3.connect(database, timeout=1) as connection, suppress(sqlite3.OperationalError):
            connection.execute("BEGIN IMMEDIATE")
            return True
        return False

    def stop():
        for worker in workers_of(pid):
            os.kill(worker, signal.SIGSTOP)
        if free():
            return True
        for worker in workers_of(pid):
            os.kill(worker, signal.SIGCONT)
        return False

    until(lambda: workers_of(pid), "the worker's start")
    until(stop, "a moment without a writer")
    try:
        yield
    finally:
        for worker in workers_of(pid):
            os.kill(worker, signal.SIGCONT)


@contextmanager
def services(kind, folder):
    """(a service without workers, the URLs of its API processes)"""
    engine = "embedded" if kind == "sqlite" else "celery"
    with fresh_database(kind, folder) as url:
        service = Service(engine, folder, url, **SETTINGS)
        try:
            service.start(workers=False)
            urls = [service.url]
            if engine == "celery":
                urls.append(f"http://127.0.0.1:{free_port()}")
                service.spawn("api 2", "api", "--port", urls[1].rpartition(":")[2])
                until(lambda: answers(urls[1]), "the second API's start")
                yield service, urls
            else:
                with stopped_workers(service.processes["api"].pid, folder / "test.db"):
                    yield service, urls
        finally:
            service.stop()


def answers(url):
    with suppress(httpx.TransportError):
        return httpx.get(f"{url}/readyz").status_code == 200
    return False


def through_http(kind, clients, seconds):
    """Times of the admissions that were answered within the measured seconds, refusals, and the
    processor time of each admission."""
    with tempfile.TemporaryDirectory() as folder, services(kind, Path(folder)) as (service, urls):
        scene = service.scene(epsilon=50.0, rows=500)
        analysts = [service.person("analyst") for _ in range(clients)]
        for analyst in analysts:
            scene.owner.grant(scene.dataset, analyst.id)
        body = json.dumps(job(scene.dataset, EPSILON)).encode()
        requests = [
            (url, post(url, "/v1/jobs", analyst.key, body))
            for analyst, url in zip(analysts, cycle(urls), strict=False)
        ]
        meter = Meter(
            client=lambda: [os.getpid()],
            api=lambda: [p.pid for p in service.processes.values()],
            database=lambda: backends(service.db),
        )
        times, refused = repeat(requests, WARM_SECONDS, seconds, meter.begin, meter.end)
    return times, sum(refused.values()), meter.per(len(times))


def ledger_alone(kind, seconds):
    """Times of reservations by one process, each in a transaction of its own."""
    with tempfile.TemporaryDirectory() as folder, fresh_database(kind, folder) as url:
        db = Database(url, pool_size=1)
        owner, account, _ = open_ledger(db)
        times, end = [], time.perf_counter() + seconds
        while (start := time.perf_counter()) < end:
            with db.write() as connection:
                wanted = Wanted(lambda terms: 1, 0.1, 1e-6, owner, None, new_id("job"))
                reserve(connection, account.id, [wanted])
            times.append(time.perf_counter() - start)
        db.dispose()
    return times


def row(label, times, seconds, refused=0, cpu=None):
    p50, p99 = (1000 * float(np.percentile(times, share)) for share in (50, 99))
    spent = "".join(f"{ms:10.2f}" for ms in (cpu or {}).values())
    print(f"{label:44}{len(times) / seconds:8.1f}{p50:8.1f}{p99:8.1f}{refused:8}{spent}")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args(arguments)
    figures = f"{'/s':>8}{'p50 ms':>8}{'p99 ms':>8}{'refused':>8}"
    print(f"{'reservations on one dataset':44}{figures}{'client':>10}{'API':>10}{'database':>10}")
    print(f"{'':76}{'processor time of each, ms':>30}")
    processes = {"postgresql": "2 API processes", "sqlite": "embedded"}
    for kind in reversed(DATABASES):
        times, refused, cpu = through_http(kind, options.clients, options.seconds)
        label = f"{kind}, {processes[kind]}, {options.clients} clients"
        row(label, times, options.seconds, refused, cpu)
    for kind in reversed(DATABASES):
        row(f"{kind}, the ledger alone", ledger_alone(kind, options.seconds), options.seconds)


if __name__ == "__main__":
    main()
