"""Change a job's state. The job's row is the truth; brokers only hint."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Insert, Row, Update, bindparam, insert, update

from service.changes import record_changes
from service.db import Together, now_ms
from service.jobs.states import ENDED, states_before
from service.ledger.reserve import post, void
from service.tables import changes, job_events, jobs


class TransitionError(RuntimeError):
    """A job was to enter a state that its own does not lead to: a bug, never an outcome."""


class Move:
    """Into a state: the job's row, its event, and what else is written with them. Built once where it
    is used for every job."""

    def __init__(self, state: str, *also: Insert | Update, **values: Any) -> None:
        """A job that ends loses its noise key: that noise can never be drawn again."""
        if state in ENDED:
            values |= dict.fromkeys(("lease_ms", "hint_ms", "wrapped_key")) | {
                "finished_ms": now_ms()
            }
        self.state = state
        self.statements = Together(
            update(jobs)
            .where(
                jobs.c.id == bindparam("moved_job"),
                jobs.c.events == bindparam("moved_before"),
                jobs.c.state.in_(states_before(state)),
            )
            .values(state=state, events=bindparam("moved_number"), **values)
            .returning(jobs),
            *_EVENT,
            *also,
        )


def transition(connection: Connection, job: Row[Any], move: Move, **values: Any) -> Row[Any]:
    """Put a job into a state and record the event; the caller holds the job's lock, and `job` is the
    row as it is under that."""
    moved = move.statements.execute(
        connection, moved_before=job.events, **_event(job.id, job.events + 1, move.state), **values
    ).first()
    if moved is None:
        before = ", ".join(states_before(move.state))
        raise TransitionError(
            f"job {job.id} cannot become {move.state}: that follows only {before}"
        )
    return moved


_EVENTS = insert(job_events).values(created_ms=now_ms())


def record_events(connection: Connection, rows: Sequence[Any]) -> None:
    """That these jobs are in their states, as new ones are."""
    events = [{"job_id": job.id, "seq": job.events, "type": job.state} for job in rows]
    connection.execute(_EVENTS, events)
    record_changes(
        connection,
        [{"job_id": job.id, "number": job.events, "type": job.state} for job in rows],
    )


# events name states and nothing else, so they cannot depend on the data
_EVENT = tuple(
    insert(table).values(
        {
            "job_id": bindparam("moved_job"),
            number: bindparam("moved_number"),
            "type": bindparam("moved_type"),
            "created_ms": now_ms(),
        }
    )
    for table, number in ((job_events, "seq"), (changes, "number"))
)


def _event(job_id: str, number: int, state: str) -> dict[str, Any]:
    return {"moved_job": job_id, "moved_number": number, "moved_type": state}


def end_without_model(
    connection: Connection, job: Row[Any], state: str, error: str | None = None
) -> None:
    """End a locked job that publishes nothing. Its reservation is voided if the data was never opened
    and posted in full otherwise: a failure after the data was read is an output too."""
    settle = void if job.opened_ms is None else post
    settle(connection, job.account_id, job.entry_seq, f"job {state}")
    transition(connection, job, Move(state, error=error))
