"""A worker's claim on a job: take it, open the data under it, renew its lease, release it.

A claim takes a lease and a new fence (a fencing token). Whatever the worker later does to the job
names that fence, so a worker that lost its lease and was replaced can change nothing more.
"""

from typing import Any

from sqlalchemy import Connection, Row, func, select, update

from service.db import lock, now_ms
from service.jobs.transitions import end_without_model, transition
from service.tables import datasets, jobs


def claim(
    connection: Connection, lease_seconds: float, job_id: str | None = None
) -> Row[Any] | None:
    """The named queued job, or the oldest one; None if there is none to claim."""
    queued = select(jobs.c.id).where(jobs.c.state == "queued")
    if job_id is not None:
        queued = queued.where(jobs.c.id == job_id)
    oldest = queued.order_by(jobs.c.created_ms, jobs.c.id).limit(1)
    found = connection.execute(oldest.with_for_update(skip_locked=True)).scalar()
    if found is None:
        return None
    return transition(
        connection,
        found,
        "running",
        fence=jobs.c.fence + 1,
        attempts=jobs.c.attempts + 1,
        lease_ms=_lease_end(lease_seconds),
        hint_ms=None,
        steps_done=0,
        started_ms=func.coalesce(jobs.c.started_ms, now_ms()),
    )


def open_data(connection: Connection, job_id: str, fence: int) -> bool:
    """Record that the data is about to be read; False if the job is no longer this worker's.

    Committed before the first byte is read. From here on the charge stays, whatever happens.
    """
    job = lock(connection, jobs, job_id)
    if job.fence != fence or job.state != "running":
        return False
    if job.opened_ms is None:
        if lock(connection, datasets, job.dataset_id).state != "ready":
            end_without_model(connection, job, "failed", "data_deleted")
            return False
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(opened_ms=now_ms()))
    return True


def renew_lease(
    connection: Connection, job_id: str, fence: int, steps_done: int, lease_seconds: float
) -> bool:
    """Renew the lease and record progress; False if the job was cancelled or is another worker's."""
    renewed = connection.execute(
        update(jobs)
        .where(jobs.c.id == job_id, jobs.c.fence == fence, jobs.c.state == "running")
        .values(lease_ms=_lease_end(lease_seconds), steps_done=steps_done)
    )
    return bool(renewed.rowcount)


def release_claim(connection: Connection, job_id: str, fence: int) -> None:
    """End this worker's claim without a result. A job that is being cancelled ends here; any other
    has its lease expired, so that the reaper takes it back at once."""
    job = lock(connection, jobs, job_id)
    if job.fence != fence:
        return
    if job.state == "cancelling":
        end_without_model(connection, job, "cancelled")
    elif job.state == "running":
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(lease_ms=0))


def _lease_end(seconds: float) -> Any:
    return now_ms() + int(seconds * 1000)
