"""Change a job's state. The job's row is the truth; brokers only hint."""

from typing import Any

from sqlalchemy import Connection, Row, insert, update

from service.changes import record_change
from service.db import now_ms
from service.jobs.states import ENDED, states_before
from service.ledger.reserve import post, void
from service.tables import job_events, jobs


class TransitionError(RuntimeError):
    """A job was to enter a state that its own does not lead to: a bug, never an outcome."""


def transition(connection: Connection, job_id: str, state: str, **values: Any) -> Row[Any]:
    """Put a job into a state and record the event; the caller holds the job's lock.

    A job that ends loses its noise key: that noise can never be drawn again.
    """
    if state in ENDED:
        values |= {"finished_ms": now_ms(), "lease_ms": None, "hint_ms": None, "wrapped_key": None}
    job = connection.execute(
        update(jobs)
        .where(jobs.c.id == job_id, jobs.c.state.in_(states_before(state)))
        .values(state=state, events=jobs.c.events + 1, **values)
        .returning(jobs)
    ).first()
    if job is None:
        raise TransitionError(
            f"job {job_id} cannot become {state}: that follows only {', '.join(states_before(state))}"
        )
    record_event(connection, job)
    return job


def record_event(connection: Connection, job: Row[Any]) -> None:
    """Events name states and nothing else, so they cannot depend on the data."""
    connection.execute(
        insert(job_events).values(
            job_id=job.id, seq=job.events, type=job.state, created_ms=now_ms()
        )
    )
    record_change(connection, job_id=job.id, number=job.events, type=job.state)


def end_without_model(
    connection: Connection, job: Row[Any], state: str, error: str | None = None
) -> None:
    """End a locked job that publishes nothing. Its reservation is voided if the data was never opened
    and posted in full otherwise: a failure after the data was read is an output too."""
    settle = void if job.opened_ms is None else post
    settle(connection, job.account_id, job.entry_seq, f"job {state}")
    transition(connection, job.id, state, error=error)
