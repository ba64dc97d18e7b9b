"""How many jobs one hot dataset admits: reservations per second, all against one account.

    make bench-reservations

Clients with connections of their own, each an analyst of its own, submit the same cheap job to one
dataset as fast as they are answered: to two API processes on PostgreSQL and Celery without a worker,
and to the embedded service on SQLite, whose worker is stopped meanwhile. Nothing runs, so what is
timed is HTTP, planning, the reservation and the hint. Then the ledger alone, from one process.
"""

import argparse
import asyncio
import os
import signal
import sqlite3
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import numpy as np

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


async def submit(url, key, spec, until_time, times, refusals):
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=120) as http:
        while (start := time.perf_counter()) < until_time:
            status = (await http.post("/v1/jobs", json=spec)).status_code
            if status == 202:
                times.append((start, time.perf_counter()))
            else:
                refusals.append(status)


def through_http(kind, clients, seconds):
    """Times of the admissions that were answered within the measured seconds, and refusals."""
    with tempfile.TemporaryDirectory() as folder, services(kind, Path(folder)) as (service, urls):
        scene = service.scene(epsilon=50.0, rows=500)
        analysts = [service.person("analyst") for _ in range(clients)]
        for analyst in analysts:
            scene.owner.grant(scene.dataset, analyst.id)
        spec, times, refusals = job(scene.dataset, EPSILON), [], []

        async def run():
            begin = time.perf_counter() + WARM_SECONDS
            tasks = (
                submit(urls[i % len(urls)], a.key, spec, begin + seconds, times, refusals)
                for i, a in enumerate(analysts)
            )
            await asyncio.gather(*tasks)
            return begin

        begin = asyncio.run(run())
    within = [end - start for start, end in times if begin <= end < begin + seconds]
    return within, len(refusals)


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


def row(label, times, seconds, refused=0):
    p50, p99 = (1000 * float(np.percentile(times, share)) for share in (50, 99))
    print(f"{label:46}{len(times) / seconds:10.1f}{p50:10.1f}{p99:10.1f}{refused:10}")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=20)
    options = parser.parse_args(arguments)
    print(
        f"{'reservations on one dataset':46}{'/s':>10}{'p50 ms':>10}{'p99 ms':>10}{'refused':>10}"
    )
    processes = {"postgresql": "2 API processes", "sqlite": "embedded"}
    for kind in reversed(DATABASES):
        times, refused = through_http(kind, options.clients, options.seconds)
        label = f"{kind}, {processes[kind]}, {options.clients} clients"
        row(label, times, options.seconds, refused)
    for kind in reversed(DATABASES):
        row(f"{kind}, the ledger alone", ledger_alone(kind, options.seconds), options.seconds)


if __name__ == "__main__":
    main()
