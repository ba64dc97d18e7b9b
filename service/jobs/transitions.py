"""Change a job's state. The job's row is the truth; brokers only hint."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Insert, Row, Update, insert, update

from service.changes import record_changes
from service.db import now_ms, together
from service.jobs.states import ENDED, states_before
from service.ledger.reserve import post, void
from service.tables import changes, job_events, jobs


class TransitionError(RuntimeError):
    """A job was to enter a state that its own does not lead to: a bug, never an outcome."""


def transition(
    connection: Connection, job: Row[Any], state: str, *also: Insert | Update, **values: Any
) -> Row[Any]:
    """Put a job into a state and record the event; the caller holds the job's lock, and `job` is the
    row as it is under that. `also` is written with it, in one round trip to the database.

    A job that ends loses its noise key: that noise can never be drawn again.
    """
    if state in ENDED:
        values |= {"finished_ms": now_ms(), "lease_ms": None, "hint_ms": None, "wrapped_key": None}
    number, before = job.events + 1, jobs.c.state.in_(states_before(state))
    moved = together(
        connection,
        update(jobs)
        .where(jobs.c.id == job.id, jobs.c.events == job.events, before)
        .values(state=state, events=number, **values)
        .returning(jobs),
        *_event(job.id, number, state),
        *also,
    ).first()
    if moved is None:
        raise TransitionError(
            f"job {job.id} cannot become {state}: that follows only {', '.join(states_before(state))}"
        )
    return moved


def record_events(connection: Connection, rows: Sequence[Row[Any]]) -> None:
    """That these jobs are in their states, as new ones are."""
    events = [{"job_id": job.id, "seq": job.events, "type": job.state} for job in rows]
    connection.execute(insert(job_events).values(created_ms=now_ms()), events)
    record_changes(
        connection,
        [{"job_id": job.id, "number": job.events, "type": job.state} for job in rows],
    )


def _event(job_id: str, number: int, state: str) -> tuple[Insert, Insert]:
    """Events name states and nothing else, so they cannot depend on the data."""
    event = {"number": number, "type": state, "created_ms": now_ms()}
    return (
        insert(job_events).values(job_id=job_id, seq=number, type=state, created_ms=now_ms()),
        insert(changes).values(job_id=job_id, **event),
    )


def end_without_model(
    connection: Connection, job: Row[Any], state: str, error: str | None = None
) -> None:
    """End a locked job that publishes nothing. Its reservation is voided if the data was never opened
    and posted in full otherwise: a failure after the data was read is an output too."""
    settle = void if job.opened_ms is None else post
    settle(connection, job.account_id, job.entry_seq, f"job {state}")
    transition(connection, job, state, error=error)
