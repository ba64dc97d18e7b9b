"""Faults. Each lasts for a while, and when it returns, nothing is broken by us any more."""

import signal
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

import psycopg
import redis

from tests.chaos.cluster import LEASE_SECONDS
from tests.chaos.programs import send

PATIENCE_SECONDS = 5.0  # EPSILOND_DATABASE_SECONDS as shipped


@dataclass
class Fault:
    """`make(cluster, rng)` lasts as long as the fault does and returns how many kill -9 it took."""

    name: str
    make: Any
    weight: float = 1.0
    needs: str | None = None  # `disks` or `network`


def _down(program, seconds, kill=None):
    """Killed, away for a while, and started again."""
    (kill or program.kill)()
    time.sleep(seconds)
    program.start()
    return 1


def _chosen(programs, rng):
    return programs[rng.randrange(len(programs))]


def _burst(rng, once, most=5):
    """The same several times, as in a crash loop."""
    killed = 0
    for _ in range(rng.randint(1, most)):
        killed += once()
        time.sleep(rng.uniform(0.1, 1.0))
    return killed


def _kill_some(found, rng):
    targets = rng.sample(found, min(len(found), rng.randint(1, 2)))
    send(signal.SIGKILL, targets)
    return len(targets)


def _lasts(context, seconds):
    with context:
        time.sleep(seconds)
    return 0


def _all_at_once(cluster, rng):
    """Power fails; then everything comes back in any order."""
    programs = list(cluster.programs)
    for program in programs:
        program.kill()
    rng.shuffle(programs)
    for program in programs:
        time.sleep(rng.uniform(0, 1))
        program.start()
    return len(programs)


def _kill_ingestion(cluster, rng):
    """Whichever comes next: there is an upload every few seconds."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if found := cluster.ingestions():
            send(signal.SIGKILL, found[:1])
            return 1
        time.sleep(0.02)
    return 0


# PostgreSQL, Redis, APIs and Celery workers


def _kill_child(cluster, rng):
    found = cluster.workers_children()
    return _kill_some([pid for _, pid in found], rng) if found else 0


def _kill_parent(cluster, rng):
    worker = _chosen(cluster.named("worker"), rng)
    return _down(worker, rng.uniform(0, 1), worker.kill_parent)


def _stop_worker(cluster, rng):
    return _lasts(
        _chosen(cluster.named("worker"), rng).stopped(), LEASE_SECONDS + rng.uniform(1, 4)
    )


def _stop_child(cluster, rng):
    found = cluster.workers_children()
    if not found:
        return 0
    worker, pid = found[rng.randrange(len(found))]
    return _lasts(worker.stopped([pid]), LEASE_SECONDS + rng.uniform(1, 4))


def _cut_database(cluster, rng):
    def once():
        with suppress(psycopg.Error):
            cluster.cut_database_connections()
        return 0

    return _burst(rng, once)


def _cut_broker(cluster, rng):
    def once():
        with suppress(redis.RedisError), cluster.broker() as broker:
            for kind in ("normal", "pubsub"):
                broker.client_kill_filter(_type=kind, skipme=True)
        return 0

    return _burst(rng, once)


def _flush(cluster, rng):
    def once():
        with suppress(redis.RedisError), cluster.broker() as broker:
            broker.flushall()
        return 0

    return _burst(rng, once)


def _cut_network(how):
    def make(cluster, rng):
        network, seconds = cluster.ground.network, rng.uniform(0.5, 12)
        places = rng.choice([["apis"], ["workers"], ["apis", "workers"]])
        with ExitStack() as stack:
            for place in places:
                stack.enter_context(getattr(network, how)(place))
            time.sleep(seconds)
        return 0

    return make


def _fill(disk):
    return lambda cluster, rng: _lasts(cluster.ground.disks[disk].full(), rng.uniform(2, 6))


CELERY = (
    Fault(
        "PostgreSQL killed",
        lambda c, r: _burst(r, lambda: _down(c.postgres, r.uniform(0, 3))),
        6,
    ),
    Fault(
        "a backend of PostgreSQL killed",
        lambda c, r: _burst(r, lambda: _kill_some(c.backends(), r), 8),
        6,
    ),
    Fault("Redis killed", lambda c, r: _burst(r, lambda: _down(c.redis, r.uniform(0, 1.5)), 8), 6),
    Fault(
        "an API killed",
        lambda c, r: _burst(r, lambda: _down(_chosen(c.named("api"), r), r.uniform(0, 1))),
        6,
    ),
    Fault(
        "a worker killed with its children",
        lambda c, r: _burst(r, lambda: _down(_chosen(c.named("worker"), r), r.uniform(0, 1))),
        6,
    ),
    Fault(
        "a worker's parent killed",
        lambda c, r: _burst(r, lambda: _kill_parent(c, r)),
        4,
    ),
    Fault("a worker's child killed", lambda c, r: _burst(r, lambda: _kill_child(c, r), 8), 10),
    Fault("an ingestion killed", _kill_ingestion, 2),
    Fault("everything killed at once", _all_at_once, 2),
    Fault("a worker stopped past its lease", _stop_worker),
    Fault("a worker's child stopped past its lease", _stop_child),
    Fault(
        "an API stopped",
        lambda c, r: _lasts(_chosen(c.named("api"), r).stopped(), r.uniform(1, 8)),
    ),
    Fault(
        "PostgreSQL stopped",
        lambda c, r: _lasts(c.postgres.stopped(), PATIENCE_SECONDS + r.uniform(1, 5)),
    ),
    Fault("Redis stopped", lambda c, r: _lasts(c.redis.stopped(), r.uniform(1, 8))),
    Fault("Redis flushed", _flush),
    Fault("connections to PostgreSQL cut", _cut_database),
    Fault("connections to Redis cut", _cut_broker),
    Fault("a network unplugged", _cut_network("unplugged"), 2, "network"),
    Fault("a network that loses answers", _cut_network("deaf"), 2, "network"),
    Fault("the data folder's disk full", _fill("data"), 1, "disks"),
    Fault("PostgreSQL's disk full", _fill("servers"), 1, "disks"),
)

# `epsilond serve`


def _stop_embedded_worker(cluster, rng):
    found = cluster.workers()
    if not found:
        return 0
    pid = found[rng.randrange(len(found))]
    return _lasts(cluster.service.stopped([pid]), LEASE_SECONDS + rng.uniform(1, 4))


EMBEDDED = (
    Fault(
        "the service killed with its workers",
        lambda c, r: _burst(r, lambda: _down(c.service, r.uniform(0, 1))),
        3,
    ),
    Fault(
        "the service killed, not its workers",
        lambda c, r: _burst(r, lambda: _down(c.service, r.uniform(0, 1), c.service.kill_parent)),
        3,
    ),
    Fault(
        "an embedded worker killed",
        lambda c, r: _burst(r, lambda: _kill_some(c.workers(), r), 8),
        6,
    ),
    Fault("an ingestion killed", _kill_ingestion),
    Fault(
        "the service stopped",
        lambda c, r: _lasts(c.service.stopped(), LEASE_SECONDS + r.uniform(1, 4)),
    ),
    Fault("an embedded worker stopped past its lease", _stop_embedded_worker),
    Fault(
        "SQLite locked by another program",
        lambda c, r: _lasts(c.locked(), PATIENCE_SECONDS + r.uniform(-3, 4)),
    ),
    Fault("SQLite's disk full", _fill("data"), 1, "disks"),
)

FAULTS = {"celery": CELERY, "embedded": EMBEDDED}
