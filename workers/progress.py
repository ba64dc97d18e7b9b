"""Steps done of steps planned: the only thing a run reports while it runs. The Plan fixes both."""

import time
from math import inf

HUNG_SECONDS = 60.0


class Stopped(Exception):  # noqa: N818 - a request, not an error
    """The job was cancelled, took too long, or now belongs to another worker: publish nothing."""


class Progress:
    def __init__(self, seconds_max: float = inf) -> None:
        self._deadline = time.monotonic() + seconds_max
        self.done = 0
        self.stopped = False

    @property
    def hung(self) -> bool:
        """Long past the deadline, and no step since: it will not stop by itself."""
        return time.monotonic() > self._deadline + HUNG_SECONDS

    def step(self) -> None:
        self.done += 1
        self.stop_if_asked()

    def stop_if_asked(self) -> None:
        if self.stopped:
            raise Stopped("it was cancelled, or its lease was lost")
        if time.monotonic() > self._deadline:
            raise Stopped("it took longer than EPSILOND_JOB_SECONDS_MAX")


class Quiet(Progress):
    """For a run's second time: it stops when the first would, and reports nothing."""

    def __init__(self, first: Progress) -> None:
        super().__init__()
        self._first = first

    def step(self) -> None:
        self._first.stop_if_asked()
