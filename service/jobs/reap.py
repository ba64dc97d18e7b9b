"""The loop that every api and worker process runs: send due hints, take back stale leases, say that
the process is there.

Any number of processes may run it at once (SKIP LOCKED; on SQLite one writer at a time).
"""

import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy import Select, delete, insert, select, update

from service.changes import forget_changes
from service.config import Settings
from service.db import Database, new_id, now_ms
from service.jobs.record import end_job, move
from service.tables import idempotency, jobs, processes, sessions

log = logging.getLogger("epsilond.jobs")
Hint = Callable[[str], None]
_BATCH = 100
_IDEMPOTENCY_KEPT_MS = 7 * 24 * 3600 * 1000
PRESENT_MS = 60_000  # a process that was not seen for this long is gone
_SEEN_EVERY_MS = 10_000


class HintError(RuntimeError):
    """The broker did not take a hint. The job is safe; its hint stays due."""


def relay(db: Database, settings: Settings, hint: Hint) -> int:
    """Send the hints that are due. Each is first moved on to its next time, so one that is lost, by
    us or by the broker, is sent again."""
    due = select(jobs.c.id).where(jobs.c.state == "queued", jobs.c.hint_ms <= now_ms())
    ids = _look(db, due)
    if ids:
        with db.write() as connection:
            ids = list(
                connection.execute(
                    update(jobs)
                    .where(jobs.c.id.in_(ids), jobs.c.state == "queued", jobs.c.hint_ms <= now_ms())
                    .values(hint_ms=now_ms() + int(settings.hint_retry_seconds * 1000))
                    .returning(jobs.c.id)
                ).scalars()
            )
    for job_id in ids:
        hint(job_id)
    return len(ids)


def reap(db: Database, settings: Settings) -> int:
    """Queue again, or end, the jobs whose worker stopped renewing its lease; one transaction each."""
    stale = jobs.c.state.in_(("running", "cancelling")) & (jobs.c.lease_ms < now_ms())
    reaped = 0
    for job_id in _look(db, select(jobs.c.id).where(stale)):
        with db.write() as connection:
            query = select(jobs).where(jobs.c.id == job_id, stale)
            job = connection.execute(
                query.with_for_update(skip_locked=True, key_share=True)
            ).first()
            if job is None:
                continue
            if job.state == "cancelling":
                end_job(connection, job, "cancelled")
            elif job.attempts >= settings.attempts_max:
                end_job(connection, job, "failed", "attempts_exhausted")
            else:
                move(connection, job.id, "queued", lease_ms=None, hint_ms=now_ms())
        reaped += 1
    return reaped


def forget(db: Database) -> None:
    """Delete what has served: old idempotency keys, ended sessions, old changes, gone processes."""
    with db.write() as connection:
        connection.execute(
            delete(idempotency).where(idempotency.c.created_ms < now_ms() - _IDEMPOTENCY_KEPT_MS)
        )
        connection.execute(delete(sessions).where(sessions.c.expires_ms < now_ms()))
        connection.execute(delete(processes).where(processes.c.seen_ms < now_ms() - PRESENT_MS))
    forget_changes(db)


class Loop(threading.Thread):
    """relay + reap every `loop_seconds`, through database and broker failures, until stopped."""

    def __init__(self, db: Database, settings: Settings, hint: Hint, role: str = "worker") -> None:
        super().__init__(name="epsilond-loop", daemon=True)
        self._db, self._settings, self._hint, self._role = db, settings, hint, role
        self._id = new_id("proc")
        self._stopped = threading.Event()

    def run(self) -> None:
        rounds = 0
        while not self._stopped.wait(self._settings.loop_seconds):
            try:
                reap(self._db, self._settings)
                relay(self._db, self._settings, self._hint)
                if rounds % 3600 == 0:
                    forget(self._db)
                if rounds % self._seen_every == 0:
                    self._sign()
            except Exception as error:
                log.warning("the loop will try again: %s", type(error).__name__)
            rounds += 1

    @property
    def _seen_every(self) -> int:
        return max(1, int(_SEEN_EVERY_MS / 1000 / self._settings.loop_seconds))

    def _sign(self) -> None:
        mine = processes.c.id == self._id
        with self._db.write() as connection:
            seen = connection.execute(update(processes).where(mine).values(seen_ms=now_ms()))
            if seen.rowcount == 0:
                connection.execute(
                    insert(processes).values(
                        id=self._id,
                        role=self._role,
                        host=socket.gethostname()[:200],
                        pid=os.getpid(),
                        started_ms=now_ms(),
                        seen_ms=now_ms(),
                    )
                )

    def stop(self) -> None:
        self._stopped.set()
        self.join()
        try:
            with self._db.write() as connection:
                connection.execute(delete(processes).where(processes.c.id == self._id))
        except Exception as error:
            log.warning("still listed as running: %s", type(error).__name__)


def _look(db: Database, query: Select[Any]) -> list[str]:
    """Ids to look at, read without any lock: the common answer is none."""
    with db.read() as connection:
        ordered = query.order_by(jobs.c.created_ms, jobs.c.id).limit(_BATCH)
        return list(connection.execute(ordered).scalars())
