"""The maintenance loop of every process that serves requests or runs jobs: reap expired leases, purge
old rows, and send a heartbeat; in an api process, also sweep what uploads left behind.

Any number of processes may run it at once (SKIP LOCKED; on SQLite one writer at a time).
"""

import logging
import os
import socket
import threading
from collections.abc import Callable
from typing import Any

from sqlalchemy import Select, delete, insert, select, update

from service.changes import purge_changes
from service.config import Settings
from service.datasets.upload import sweep_unused
from service.db import Database, new_id, now_ms
from service.jobs.claim import take_back
from service.tables import answers, idempotency, jobs, processes, sessions

log = logging.getLogger("epsilond.jobs")
HEARTBEAT_TIMEOUT_MS = 60_000  # a process without a heartbeat for this long is gone
_HEARTBEAT_SECONDS = 10
_PURGE_ROUNDS = 3600
_IDEMPOTENCY_RETENTION_MS = 7 * 24 * 3600 * 1000
_BATCH = 100


def reap(db: Database, settings: Settings) -> int:
    """Queue again, or end, the jobs whose worker stopped renewing its lease; one transaction each."""
    expired = jobs.c.state.in_(("running", "cancelling")) & (jobs.c.lease_ms < now_ms())
    reaped = 0
    for job_id in _find(db, select(jobs.c.id).where(expired)):
        with db.write() as connection:
            query = select(jobs).where(jobs.c.id == job_id, expired)
            job = connection.execute(
                query.with_for_update(skip_locked=True, key_share=True)
            ).first()
            if job is None:
                continue
            take_back(connection, settings, job)
        reaped += 1
    return reaped


def purge(db: Database) -> None:
    """Delete old idempotency keys, expired sessions, processes that are gone, and old changes."""
    with db.write() as connection:
        oldest = now_ms() - _IDEMPOTENCY_RETENTION_MS
        for kept in (idempotency, answers):
            connection.execute(delete(kept).where(kept.c.created_ms < oldest))
        connection.execute(delete(sessions).where(sessions.c.expires_ms < now_ms()))
        gone = processes.c.seen_ms < now_ms() - HEARTBEAT_TIMEOUT_MS
        connection.execute(delete(processes).where(gone))
    purge_changes(db)


class MaintenanceLoop(threading.Thread):
    """All of the above every `loop_seconds`, through failures of the database, until stopped.

    A process is listed while it can do what its role says: `able` is asked before each heartbeat, and
    a heartbeat is a write to the database like those that its work needs.
    """

    def __init__(
        self, db: Database, settings: Settings, role: str, able: Callable[[], bool] = lambda: True
    ) -> None:
        super().__init__(name="epsilond-maintenance", daemon=True)
        self._db, self._settings, self._role, self._able = db, settings, role, able
        self._process_id = new_id("proc")
        self._heartbeat_rounds = max(1, int(_HEARTBEAT_SECONDS / settings.loop_seconds))
        self._stopped = threading.Event()

    def run(self) -> None:
        rounds = 0
        while not self._stopped.wait(self._settings.loop_seconds):
            try:
                reap(self._db, self._settings)
                if rounds % _PURGE_ROUNDS == 0:
                    purge(self._db)
                if rounds % self._heartbeat_rounds == 0 and self._able():
                    self._heartbeat()
                    if self._role == "api":  # workers may have the data folder read-only
                        sweep_unused(self._db, self._settings)
            except Exception as error:
                log.warning("maintenance will try again: %s", type(error).__name__)
            rounds += 1

    def _heartbeat(self) -> None:
        """Say that this process can work: its row in `processes`, with the time."""
        mine = processes.c.id == self._process_id
        with self._db.write() as connection:
            seen = connection.execute(update(processes).where(mine).values(seen_ms=now_ms()))
            if seen.rowcount == 0:
                connection.execute(
                    insert(processes).values(
                        id=self._process_id,
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
                connection.execute(delete(processes).where(processes.c.id == self._process_id))
        except Exception as error:
            log.warning("this process stays listed as running: %s", type(error).__name__)


def _find(db: Database, query: Select[Any]) -> list[str]:
    """The ids of a batch of jobs, oldest first, read without any lock: mostly there are none."""
    with db.read() as connection:
        ordered = query.order_by(jobs.c.created_ms, jobs.c.id).limit(_BATCH)
        return list(connection.execute(ordered).scalars())
