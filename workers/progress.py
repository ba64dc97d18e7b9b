"""Steps done of steps planned: the one thing a run tells while it runs, fixed by the Plan."""

import time
from math import inf


class Stopped(Exception):  # noqa: N818 - a request, not an error
    """The job was cancelled, took too long, or now belongs to another worker: publish nothing."""


class Progress:
    def __init__(self, seconds_max: float = inf) -> None:
        self._deadline = time.monotonic() + seconds_max
        self.done = 0
        self.stopped = False

    def step(self) -> None:
        self.done += 1
        if self.stopped or time.monotonic() > self._deadline:
            raise Stopped
