"""A worker's claim on a job: take it, open the data under it, renew its lease, release it.

A claim takes a lease and a new fence (a fencing token). Whatever the worker later does to the job
names that fence, so a worker that lost its lease and was replaced can change nothing more.
"""

from typing import Any

from sqlalchemy import BigInteger, Connection, Row, bindparam, func, select, update

from service.config import Settings
from service.db import lock, now_ms
from service.jobs.transitions import Move, end_without_model, transition
from service.tables import datasets, jobs

PAUSE_SECONDS_MAX = 3600

_DUE = (
    select(jobs)
    .where(jobs.c.state == "queued", jobs.c.hint_ms <= now_ms())
    .order_by(jobs.c.hint_ms, jobs.c.id)
    .limit(1)
    .with_for_update(skip_locked=True, key_share=True)
)


def _claim(**values: Any) -> Move:
    return Move(
        "running",
        fence=jobs.c.fence + 1,
        lease_ms=now_ms() + bindparam("claimed_for", type_=BigInteger),
        hint_ms=None,
        steps_done=0,
        started_ms=func.coalesce(jobs.c.started_ms, now_ms()),
        **values,
    )


_CLAIM = _claim()
_CLAIM_AND_OPEN = _claim(opened_ms=func.coalesce(jobs.c.opened_ms, now_ms()))
# shared with everyone but who deletes it: publishing another job holds up no start
_DATASET = (
    select(datasets)
    .where(datasets.c.id == bindparam("dataset"))
    .with_for_update(read=True, key_share=True)
)
_OPEN = update(jobs).where(jobs.c.id == bindparam("job")).values(opened_ms=now_ms())


def due(connection: Connection, job_id: str | None = None) -> Row[Any] | None:
    """The named job if it is due, or the one that has been due longest, locked; None if there is
    none."""
    query = _DUE if job_id is None else _DUE.where(jobs.c.id == job_id)
    return connection.execute(query).first()


def claim(
    connection: Connection, lease_seconds: float, job_id: str | None = None
) -> Row[Any] | None:
    """Claim what is due."""
    found = due(connection, job_id)
    return None if found is None else claim_due(connection, found, lease_seconds)


def claim_due(connection: Connection, found: Row[Any], lease_seconds: float) -> Row[Any]:
    return transition(connection, found, _CLAIM, claimed_for=int(lease_seconds * 1000))


def claim_and_open(
    connection: Connection, found: Row[Any], lease_seconds: float
) -> tuple[Row[Any], Row[Any]] | None:
    """Claim a job that is due and record that its data is about to be read (see `open_claimed`): the
    job and its dataset, or None if the data is gone, and so the job has ended."""
    dataset = connection.execute(_DATASET, {"dataset": found.dataset_id}).one()
    if dataset.state != "ready":
        job = claim_due(connection, found, lease_seconds)
        end_without_model(connection, job, "failed", "data_deleted")
        return None
    lease_ms = int(lease_seconds * 1000)
    return transition(connection, found, _CLAIM_AND_OPEN, claimed_for=lease_ms), dataset


def open_data(connection: Connection, job_id: str, fence: int) -> Row[Any] | None:
    """Record that the data is about to be read; its dataset, or None if the job is no longer this
    worker's."""
    job = lock(connection, jobs, job_id)
    if job.fence != fence or job.state != "running":
        return None
    return open_claimed(connection, job)


def open_claimed(connection: Connection, job: Row[Any]) -> Row[Any] | None:
    """The same for a job that this transaction has claimed or locked.

    Committed before the first byte is read. From here on the charge stays, whatever happens.
    """
    dataset = connection.execute(_DATASET, {"dataset": job.dataset_id}).one()
    if dataset.state != "ready":
        end_without_model(connection, job, "failed", "data_deleted")
        return None
    if job.opened_ms is None:
        connection.execute(_OPEN, {"job": job.id})
    return dataset


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


def release_claim(
    connection: Connection, settings: Settings, job_id: str, fence: int, *, failed: bool = False
) -> None:
    """End a claim without a result, by the worker that holds it or by whoever saw that worker die;
    `failed` if the run itself went wrong. Nothing happens to a job that was claimed again since."""
    job = lock(connection, jobs, job_id)
    if job.fence == fence and job.state in ("running", "cancelling"):
        take_back(connection, settings, job, failed=failed)


def take_back(
    connection: Connection, settings: Settings, job: Row[Any], *, failed: bool = False
) -> None:
    """Queue a locked job again that its worker did not finish, or end it.

    A start that was cut short (killed, stopped, the database gone) says nothing about the job, and
    the next draws the same noise: only runs that failed by themselves use up attempts. A job that
    kills whoever runs it never reports that, so the first loss leaves it its place in the queue and
    each later one makes it wait twice as long, behind all that were due by then, a bounded number of
    times.
    """
    attempts = job.attempts + failed
    if job.state == "cancelling":
        end_without_model(connection, job, "cancelled")
    elif attempts >= settings.attempts_max or job.fence >= settings.starts_max:
        end_without_model(connection, job, "failed", "attempts_exhausted")
    else:
        pause_ms = 1000 * min(2 ** (job.fence - 2), PAUSE_SECONDS_MAX) if job.fence > 1 else None
        due = jobs.c.created_ms if pause_ms is None else now_ms() + pause_ms
        move = Move("queued", attempts=attempts, lease_ms=None, hint_ms=due)
        transition(connection, job, move)


def _lease_end(seconds: float) -> Any:
    return now_ms() + int(seconds * 1000)
