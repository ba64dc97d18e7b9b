"""The job's row: locking it, noting events, ending it. The row is the truth; brokers only hint."""

from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from service.db import now_ms
from service.ledger.reserve import post, void
from service.tables import job_events, jobs

ENDED = ("succeeded", "failed", "cancelled")


def lock_job(connection: Connection, job_id: str) -> Row[Any]:
    return connection.execute(select(jobs).where(jobs.c.id == job_id).with_for_update()).one()


def add_event(connection: Connection, job_id: str, kind: str) -> None:
    """Events name states and nothing else, so they cannot depend on the data."""
    seq: int = connection.execute(
        update(jobs)
        .where(jobs.c.id == job_id)
        .values(events=jobs.c.events + 1)
        .returning(jobs.c.events)
    ).scalar_one()
    connection.execute(
        insert(job_events).values(job_id=job_id, seq=seq, type=kind, created_ms=now_ms())
    )


def end_job(connection: Connection, job: Row[Any], state: str, error: str | None = None) -> None:
    """End a locked job without a model. Its reservation is voided if the data was never opened and
    posted in full otherwise: a failure after the data was read is an output too."""
    settle = void if job.opened_ms is None else post
    settle(connection, job.account_id, job.entry_seq, f"job {state}")
    close_row(connection, job.id, state, error)


def close_row(connection: Connection, job_id: str, state: str, error: str | None = None) -> None:
    connection.execute(
        update(jobs)
        .where(jobs.c.id == job_id)
        .values(
            state=state,
            error=error,
            finished_ms=now_ms(),
            lease_ms=None,
            hint_ms=None,
            wrapped_key=None,  # the noise can never be drawn again
        )
    )
    add_event(connection, job_id, state)
