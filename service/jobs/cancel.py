"""Cancel: free before the data was opened, fully charged after."""

from sqlalchemy import Connection

from service.db import lock
from service.errors import JobAlreadyFinished
from service.jobs.states import ENDED
from service.jobs.transitions import Move, end_without_model, transition
from service.tables import jobs


def cancel(connection: Connection, job_id: str) -> None:
    """End a job at once if no worker has opened its data for it; else ask its worker to stop."""
    job = lock(connection, jobs, job_id)
    if job.state in ENDED:
        raise JobAlreadyFinished(
            f"it is {job.state}; only a job that has not ended can be cancelled."
        )
    if job.state == "queued" or (job.state == "running" and job.opened_ms is None):
        end_without_model(connection, job, "cancelled")
    elif job.state == "running":
        transition(connection, job, Move("cancelling"))
