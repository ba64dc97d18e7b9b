"""Cancel: free before the data was opened, fully charged after."""

from sqlalchemy import Connection

from service.db import lock
from service.errors import JobAlreadyFinished
from service.jobs.record import ENDED, end_job, move
from service.tables import jobs


def cancel(connection: Connection, job_id: str) -> None:
    """A job nobody runs, or whose data is unopened, ends now; else its worker is asked to stop."""
    job = lock(connection, jobs, job_id)
    if job.state in ENDED:
        raise JobAlreadyFinished(f"it is {job.state}.")
    if job.state == "queued" or (job.state == "running" and job.opened_ms is None):
        end_job(connection, job, "cancelled")
    elif job.state == "running":
        move(connection, job_id, "cancelling")
