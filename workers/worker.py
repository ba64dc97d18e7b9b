"""A process that runs jobs, one at a time, on either engine.

It takes work only once it can do it: connected, tied to the right database, kernels compiled, at least
the first of them (warm.py); the others follow while there is no job. Until then it tries again, and
hints wait. It is listed as a worker (`processes`) while it lately found out
what is due, or is at a job.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator

from service.config import Settings
from service.db import Database
from service.identity import check_identity
from service.jobs.maintenance import MaintenanceLoop
from workers.execute import execute_one
from workers.warm import warming

log = logging.getLogger("epsilond.worker")
_SILENT_SECONDS = 30.0
_PAUSE_SECONDS_MAX = 4.0


class Worker:
    def __init__(self, settings: Settings, report: Callable[[bytes], object]) -> None:
        """`report` tells the supervising process what is claimed (service/jobs/supervise.py)."""
        self._settings, self._report = settings, report
        self._db: Database | None = None
        self._maintenance: MaintenanceLoop | None = None
        self._cold: Iterator[None] = iter(())
        self._one_job, self._looked = threading.Lock(), 0.0
        self._ready, self._stopping, self._wake = (threading.Event() for _ in range(3))

    def run(self) -> None:
        """Look for due jobs whenever woken, and every `loop_seconds`: hints may be lost."""
        self._set_up()
        while not self._stopping.is_set():
            self._wake.clear()
            self.work()
            if not self._warmer():
                self._wake.wait(self._settings.loop_seconds)

    def work(self) -> None:
        """Run what is due until nothing is; before that, wait until this process can."""
        self._ready.wait()
        with self._one_job:
            try:
                while self._wanted() and self._db is not None:
                    if not execute_one(self._db, self._settings, self._report, self._wanted):
                        break
                self._looked = time.monotonic()
            except Exception as error:  # mostly the database's; the next round is another attempt
                log.warning("the worker will try again: %s", type(error).__name__)

    def _warmer(self) -> bool:
        """Get ready for one more kind of job; whether there was one."""
        with self._one_job:
            try:
                return next(self._cold, self) is not self
            except Exception as error:  # a generator that raised has ended
                log.warning("kernels are compiled when jobs need them: %s", type(error).__name__)
                return False

    def _wanted(self) -> bool:
        return not self._stopping.is_set()

    def wake(self) -> None:
        self._wake.set()

    def able(self) -> bool:
        return self._one_job.locked() or time.monotonic() - self._looked < _SILENT_SECONDS

    def stop(self) -> None:
        """Take no more jobs."""
        for event in (self._stopping, self._wake, self._ready):
            event.set()

    def finish(self) -> None:
        """Stop, end the job at hand, and be listed no longer."""
        self.stop()
        with self._one_job:
            if self._maintenance is not None:
                self._maintenance.stop()

    def _set_up(self) -> None:
        pause = self._settings.loop_seconds
        while not self._stopping.is_set():
            db = Database(self._settings.url, 2, self._settings.database_seconds)
            try:
                check_identity(db, self._settings)
                cold = warming()
                next(cold)
            except Exception as error:
                db.dispose()
                log.warning("the worker cannot work yet: %s", type(error).__name__)
                self._stopping.wait(pause)
                pause = min(2 * pause, _PAUSE_SECONDS_MAX)
                continue
            self._db, self._cold, self._looked = db, cold, time.monotonic()
            self._maintenance = MaintenanceLoop(db, self._settings, "worker", self.able)
            self._maintenance.start()
            self._ready.set()
            log.info("the worker is ready")
            return
