"""Claim, open, keep: a worker's hold on a job.

A claim takes a lease and a new fence. Whatever the worker later does to the job names that fence, so
a worker that lost its lease, and was replaced, changes nothing more.
"""

from typing import Any

from sqlalchemy import Connection, Row, func, select, update

from service.db import lock, now_ms
from service.jobs.record import end_job, move
from service.tables import datasets, jobs


def claim(
    connection: Connection, lease_seconds: float, job_id: str | None = None
) -> Row[Any] | None:
    """The named queued job, or the oldest one; None if there is none to be had."""
    wanted = select(jobs.c.id).where(jobs.c.state == "queued")
    if job_id is not None:
        wanted = wanted.where(jobs.c.id == job_id)
    oldest = wanted.order_by(jobs.c.created_ms, jobs.c.id).limit(1)
    return move(
        connection,
        oldest.with_for_update(skip_locked=True).scalar_subquery(),
        "running",
        fence=jobs.c.fence + 1,
        attempts=jobs.c.attempts + 1,
        lease_ms=_lease(lease_seconds),
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
            end_job(connection, job, "failed", "data_deleted")
            return False
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(opened_ms=now_ms()))
    return True


def keep(
    connection: Connection, job_id: str, fence: int, steps_done: int, lease_seconds: float
) -> bool:
    """Renew the lease and note progress; False if the job was cancelled or is another's."""
    kept = connection.execute(
        update(jobs)
        .where(jobs.c.id == job_id, jobs.c.fence == fence, jobs.c.state == "running")
        .values(lease_ms=_lease(lease_seconds), steps_done=steps_done)
    )
    return bool(kept.rowcount)


def give_up(connection: Connection, job_id: str, fence: int) -> None:
    """End this worker's hold: a job asked to stop ends here, any other goes back to the reaper
    without waiting for its lease."""
    job = lock(connection, jobs, job_id)
    if job.fence != fence:
        return
    if job.state == "cancelling":
        end_job(connection, job, "cancelled")
    elif job.state == "running":
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(lease_ms=0))


def _lease(seconds: float) -> Any:
    return now_ms() + int(seconds * 1000)
