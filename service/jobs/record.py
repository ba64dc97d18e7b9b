"""The job's row: locking it, changing it, ending it. The row is the truth; brokers only hint."""

from typing import Any

from sqlalchemy import Connection, Row, insert, update

from service.changes import note_change
from service.db import now_ms
from service.ledger.reserve import post, void
from service.tables import job_events, jobs

ENDED = ("succeeded", "failed", "cancelled")


def move(connection: Connection, job_id: Any, state: str, **values: Any) -> Row[Any] | None:
    """Put a job into a state and note the event; None if there is no such job.

    Events name states and nothing else, so they cannot depend on the data. `job_id` may be a
    subquery that finds, and locks, the job.
    """
    row = connection.execute(
        update(jobs)
        .where(jobs.c.id == job_id)
        .values(state=state, events=jobs.c.events + 1, **values)
        .returning(jobs)
    ).first()
    if row is not None:
        note_event(connection, row)
    return row


def note_event(connection: Connection, job: Row[Any]) -> None:
    connection.execute(
        insert(job_events).values(
            job_id=job.id, seq=job.events, type=job.state, created_ms=now_ms()
        )
    )
    note_change(connection, job_id=job.id, number=job.events, type=job.state)


def end_job(connection: Connection, job: Row[Any], state: str, error: str | None = None) -> None:
    """End a locked job without a model. Its reservation is voided if the data was never opened and
    posted in full otherwise: a failure after the data was read is an output too."""
    settle = void if job.opened_ms is None else post
    settle(connection, job.account_id, job.entry_seq, f"job {state}")
    close(connection, job.id, state, error=error)


def close(connection: Connection, job_id: str, state: str, **values: Any) -> None:
    """The last change of a job's row. Its noise key goes: that noise can never be drawn again."""
    ended = {"finished_ms": now_ms(), "lease_ms": None, "hint_ms": None, "wrapped_key": None}
    move(connection, job_id, state, **ended, **values)
