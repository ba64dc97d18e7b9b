"""The loop that every api and worker process runs: send due hints, take back stale leases.

Any number of processes may run it at once (SKIP LOCKED; on SQLite one writer at a time).
"""

import logging
import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, select, update
from sqlalchemy.exc import SQLAlchemyError

from service.config import Settings
from service.db import Database, now_ms
from service.jobs.record import end_job, move
from service.tables import idempotency, jobs

log = logging.getLogger("epsilond.jobs")
Hint = Callable[[str], None]
_BATCH = 100
_IDEMPOTENCY_KEPT_MS = 7 * 24 * 3600 * 1000


class HintError(RuntimeError):
    """The broker did not take a hint. The job is safe; its hint stays due."""


def relay(db: Database, settings: Settings, hint: Hint) -> int:
    """Send the hints that are due. Sent before the commit: one may go twice, none is lost."""
    due = select(jobs).where(jobs.c.state == "queued", jobs.c.hint_ms <= now_ms())
    if not _any(db, due):
        return 0
    with db.write() as connection:
        rows = _take(connection, due)
        for row in rows:
            hint(row.id)
        connection.execute(
            update(jobs)
            .where(jobs.c.id.in_([row.id for row in rows]))
            .values(hint_ms=now_ms() + int(settings.hint_retry_seconds * 1000))
        )
    return len(rows)


def reap(db: Database, settings: Settings) -> int:
    """Queue again, or end, the jobs whose worker stopped renewing its lease."""
    stale = select(jobs).where(
        jobs.c.state.in_(("running", "cancelling")), jobs.c.lease_ms < now_ms()
    )
    if not _any(db, stale):
        return 0
    with db.write() as connection:
        rows = _take(connection, stale)
        for job in rows:
            if job.state == "cancelling":
                end_job(connection, job, "cancelled")
            elif job.attempts >= settings.attempts_max:
                end_job(connection, job, "failed", "attempts_exhausted")
            else:
                move(connection, job.id, "queued", lease_ms=None, hint_ms=now_ms())
    return len(rows)


def forget_idempotency_keys(db: Database) -> None:
    with db.write() as connection:
        connection.execute(
            delete(idempotency).where(idempotency.c.created_ms < now_ms() - _IDEMPOTENCY_KEPT_MS)
        )


class Loop(threading.Thread):
    """relay + reap every `loop_seconds`, through database and broker failures, until stopped."""

    def __init__(self, db: Database, settings: Settings, hint: Hint) -> None:
        super().__init__(name="epsilond-loop", daemon=True)
        self._db, self._settings, self._hint = db, settings, hint
        self._stopped = threading.Event()

    def run(self) -> None:
        rounds = 0
        while not self._stopped.wait(self._settings.loop_seconds):
            try:
                reap(self._db, self._settings)
                relay(self._db, self._settings, self._hint)
                if rounds % 3600 == 0:
                    forget_idempotency_keys(self._db)
            except (SQLAlchemyError, HintError) as error:
                log.warning("the loop will try again: %s", type(error).__name__)
            rounds += 1

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def _any(db: Database, query: Select[Any]) -> bool:
    """A look without any lock: the common answer is no."""
    with db.read() as connection:
        return connection.execute(query.limit(1)).first() is not None


def _take(connection: Connection, query: Select[Any]) -> list[Row[Any]]:
    ordered = query.order_by(jobs.c.created_ms, jobs.c.id).limit(_BATCH)
    return list(connection.execute(ordered.with_for_update(skip_locked=True)))
