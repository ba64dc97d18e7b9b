"""The states of a job and what may follow each: the whole state machine.

A job is queued when its price is reserved. A worker claims it (running) and publishes it (succeeded).
Without a model it ends as failed or cancelled. A worker that dies or stops renewing its lease loses
the job, which is queued again. Cancelling waits for a worker that has already opened the data.
"""

TRANSITIONS: dict[str, tuple[str, ...]] = {
    "queued": ("running", "cancelled"),
    "running": ("queued", "cancelling", "succeeded", "failed", "cancelled"),
    "cancelling": ("cancelled",),
    "succeeded": (),
    "failed": (),
    "cancelled": (),
}
JOB_STATES = tuple(TRANSITIONS)
ENDED = tuple(state for state, following in TRANSITIONS.items() if not following)


def states_before(state: str) -> tuple[str, ...]:
    return tuple(before for before, following in TRANSITIONS.items() if state in following)
