"""What administrators see of queue, workers and leases; health."""

from typing import Literal

from pydantic import BaseModel, Field

from service.api.schemas.jobs import JobErrorView, ProgressView


class LeaseView(BaseModel):
    """A job that a worker holds."""

    job: str
    dataset: str
    state: Literal["running", "cancelling"]
    attempt: int = Field(description="How often it was started.")
    progress: ProgressView
    seconds_since_start: int
    seconds_left: int = Field(description="Of the lease; below 0 it is about to be taken back.")


class FailureView(BaseModel):
    job: str
    dataset: str
    error: JobErrorView | None
    attempts: int = Field(description="How often it was started.")
    finished_at: str


class ProcessView(BaseModel):
    id: str
    role: Literal["api", "worker"]
    host: str
    pid: int
    started_at: str
    seconds_since_seen: int


class OperationsView(BaseModel):
    object: Literal["operations"] = "operations"
    engine: Literal["embedded", "celery"]
    jobs: dict[str, int] = Field(description="How many are queued, running, cancelling.")
    oldest_queued_seconds: int | None
    overdue_hints: int = Field(description="Queued jobs that no worker took within 5 s.")
    ended_last_day: dict[str, int]
    leases: list[LeaseView] = Field(description="Oldest first, at most 100.")
    failures: list[FailureView] = Field(description="Newest first, at most 20.")
    processes: list[ProcessView] = Field(
        description="APIs, and workers that could run a job, within the last minute."
    )
    streams: int = Field(description="Open event streams and waiting requests of this process.")


class HealthView(BaseModel):
    status: Literal["ok"] = "ok"
