"""The embedded engine: supervise worker processes that claim jobs from the database.

Each is a fresh interpreter (never a fork: numba's threads do not survive one) whose standard input is
a pipe from this process. A byte on it means "there may be a job"; end of file means that this process
is gone, and the worker exits too, so that no orphan outlives the process tree. On its standard output
it says which job it holds (supervise.py).
"""

import contextlib
import logging
import os
import subprocess
import sys
import threading

from service.config import Settings
from service.db import Database
from service.jobs.supervise import follow

log = logging.getLogger("epsilond.jobs")


class EmbeddedWorkers:
    def __init__(self, settings: Settings, db: Database) -> None:
        self._settings, self._db = settings, db
        self._stopping = threading.Event()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._threads = [
            threading.Thread(target=self._supervise, args=(i,), daemon=True)
            for i in range(settings.workers)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def hint(self) -> None:
        for process in list(self._processes.values()):
            if process.stdin is not None:
                # it has just died, and its successor looks for jobs when it starts; or it is stopped,
                # and has bytes enough to wake it
                with contextlib.suppress(OSError, ValueError):
                    os.write(process.stdin.fileno(), b"\n")

    def stop(self) -> None:
        self._stopping.set()
        for process in list(self._processes.values()):
            process.terminate()
        for thread in self._threads:
            thread.join()

    def _supervise(self, index: int) -> None:
        """Run one worker, and restart it whenever it exits before `stop`."""
        while not self._stopping.is_set():
            process = subprocess.Popen(
                [sys.executable, "-m", "workers.local"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | _environment(self._settings),
            )
            assert process.stdin is not None and process.stdout is not None
            os.set_blocking(process.stdin.fileno(), False)  # no request waits for a worker
            self._processes[index] = process
            if self._stopping.is_set():
                process.terminate()
            with process.stdout:
                follow(process.stdout, self._db, self._settings)
            code = process.wait()
            del self._processes[index]
            with contextlib.suppress(OSError):
                process.stdin.close()
            if not self._stopping.is_set():
                log.warning("a worker ended with code %s; starting another", code)
                self._stopping.wait(0.5)


def _environment(settings: Settings) -> dict[str, str]:
    """These settings as environment variables for the worker."""
    return {
        f"EPSILOND_{name.upper()}": str(value)
        for name, value in settings.model_dump(mode="json").items()
        if value is not None
    }
