"""Steps done of steps planned: the one thing a run tells while it runs, fixed by the Plan."""


class Stopped(Exception):  # noqa: N818 - a request, not an error
    """The job was cancelled, or now belongs to another worker: stop and publish nothing."""


class Progress:
    def __init__(self) -> None:
        self.done = 0
        self.stopped = False

    def step(self) -> None:
        self.done += 1
        if self.stopped:
            raise Stopped
