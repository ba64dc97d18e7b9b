"""What a worker process tells the one that started it: which claim it holds, a line each time.

When it dies, its end of the pipe closes, and its job is given back at once instead of when its lease
ends. By fence: a job that another worker has claimed since is left alone. A line that is lost, or a
database that is away just then, leaves it to the lease.
"""

import logging
from collections.abc import Iterable
from contextlib import suppress

from sqlalchemy.exc import SQLAlchemyError

from service.config import Settings
from service.db import Database
from service.jobs.claim import release_claim

log = logging.getLogger("epsilond.jobs")

NOTHING = b"\n"


def claim_line(job_id: str, fence: int) -> bytes:
    return f"{job_id} {fence}\n".encode()


def follow(lines: Iterable[bytes], db: Database, settings: Settings) -> None:
    """Read what a worker says until it is gone, then give back what it held."""
    held = NOTHING
    with suppress(OSError):
        for line in lines:
            if line.endswith(b"\n"):  # else it was cut off by the worker's death
                held = line
    if held == NOTHING:
        return
    job_id, fence = held.decode().split()
    try:
        with db.write() as connection:
            release_claim(connection, settings, job_id, int(fence))
        log.warning("job %s was given back: its worker is gone", job_id)
    except SQLAlchemyError as error:
        log.warning("job %s waits for its lease to end: %s", job_id, type(error).__name__)
