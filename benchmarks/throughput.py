"""Jobs per second through the workers, beside Celery's own no-op in the same run.

    make bench-throughput

For each engine with two workers: jobs of three steps on a small table are queued while the workers
are stopped (SIGSTOP); the time is from the first one's start to the last one's end, by the database's
clock. The raw figure is that of a Celery worker with two processes and Celery's defaults, whose task
does nothing, on the same Redis: no database, no data, no privacy.
"""

import argparse
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from itertools import cycle, product
from pathlib import Path

import redis
from celery import Celery
from sqlalchemy import func, select

from benchmarks.cpu import Meter, backends
from service.tables import jobs
from tests.harness import ENGINES, job, running, server, until

WORKERS = 2
DATASETS = (1, 4)  # charges and audit records of one dataset follow each other, one at a time


def raw(count):
    """No-ops per second of a bare Celery worker, from its first to its last."""
    prefix = f"epsilond-bench-{secrets.token_hex(4)}:"
    environment = os.environ | {
        "EPSILOND_BROKER_URL": server("EPSILOND_TEST_REDIS_URL"),
        "EPSILOND_BROKER_PREFIX": prefix,
    }
    app = noop_app(environment["EPSILOND_BROKER_URL"], prefix)
    broker = redis.Redis.from_url(environment["EPSILOND_BROKER_URL"])
    with app.connection_for_write() as connection:
        for _ in range(count):
            app.send_task("noop", connection=connection)
    command = [sys.executable, "-m", "celery", "-A", "benchmarks.throughput:worker", "worker"]
    options = [
        f"--concurrency={WORKERS}",
        "--loglevel=ERROR",
        "--without-gossip",
        "--without-mingle",
    ]
    worker = subprocess.Popen([*command, *options], env=environment, stderr=subprocess.DEVNULL)
    queue, unacked = f"{prefix}celery", f"{prefix}unacked"
    try:
        begun = until(
            lambda: broker.llen(queue) < count and (broker.llen(queue), time.perf_counter()),
            "its start",
        )
        until(lambda: not broker.llen(queue) and not broker.hlen(unacked), "the last no-op", 300)
        return begun[0] / (time.perf_counter() - begun[1])
    finally:
        worker.terminate()
        worker.wait()
        broker.delete(*broker.scan_iter(f"{prefix}*"), "none")
        broker.close()


def noop_app(url, prefix):
    app = Celery("raw", broker=url)
    app.conf.update(
        broker_transport_options={"global_keyprefix": prefix},
        task_ignore_result=True,
        broker_connection_retry_on_startup=True,
    )
    app.task(nothing, name="noop")
    return app


def nothing():
    pass


def jobs_per_second(engine, count, datasets):
    """Of jobs that waited while the workers were stopped, by the database's clock."""
    with (
        tempfile.TemporaryDirectory() as folder,
        running(engine, Path(folder), workers=WORKERS, lease_seconds=600) as service,
    ):
        if engine == "celery":
            service.kill("worker")
            service.spawn("worker", "worker", "--concurrency", str(WORKERS))
        scenes = [service.scene(epsilon=50.0, rows=500) for _ in range(datasets)]
        pids = until(lambda: ready_workers(service), "all workers", 120)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        submitted = [
            scene.analyst.submit(job(scene.dataset, 0.001))["id"]
            for scene, _ in zip(cycle(scenes), range(count), strict=False)
        ]
        meter = Meter(
            workers=lambda: pids, database=lambda: backends(service.db), rest=lambda: rest(service)
        )
        meter.begin()
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        ours, open_ones = jobs.c.id.in_(submitted), jobs.c.finished_ms.is_(None)

        def left():
            with service.db.read() as connection:
                query = select(func.count()).select_from(jobs).where(open_ones)
                return connection.execute(query).scalar_one()

        while left():  # asked rarely: the processors are the workers'
            time.sleep(0.5)
        meter.end()
        with service.db.read() as connection:
            times = select(func.min(jobs.c.started_ms), func.max(jobs.c.finished_ms)).where(ours)
            first, last = connection.execute(times).one()
            states = select(jobs.c.state).where(ours)
            assert set(connection.execute(states).scalars()) == {"succeeded"}
    return 1000 * count / (last - first), meter.per(count)


def rest(service):
    """The API, and whoever started the workers."""
    return [process.pid for process in service.processes.values()]


def ready_workers(service):
    """The processes that run jobs, once all are listed."""
    parent = service.processes["worker" if service.engine == "celery" else "api"].pid
    found = subprocess.run(["pgrep", "-P", str(parent)], capture_output=True, check=False)
    pids = {int(line) for line in found.stdout.split()}
    listed = {process["pid"] for process in service.admin.operations()["processes"]}
    return len(pids) == WORKERS and pids <= listed and pids


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=600)
    options = parser.parse_args()
    print(f"{WORKERS} workers, {options.jobs} jobs of 3 steps; no-ops of bare Celery beside them")
    noops = raw(10 * options.jobs)
    heads = "".join(f"{name:>10}" for name in ("workers", "database", "rest"))
    print(f"{'processor time of each, ms':>79}\n{'':49}{heads}")
    print(f"{'bare celery, no-op':24}{noops:8.0f} /s")
    for engine, datasets in product(ENGINES, DATASETS):
        rate, cpu = jobs_per_second(engine, options.jobs, datasets)
        what = f"{engine}, {datasets} dataset{'s' if datasets > 1 else ''}"
        spent = "".join(f"{ms:10.2f}" for ms in cpu.values())
        print(f"{what:24}{rate:8.0f} /s   {rate / noops:.2f} of the no-op{spent}")


worker = noop_app(
    os.environ.get("EPSILOND_BROKER_URL", ""), os.environ.get("EPSILOND_BROKER_PREFIX", "")
)

if __name__ == "__main__":
    main()
