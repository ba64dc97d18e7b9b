"""The embedded worker: claims jobs from the database on every hint, and every `loop_seconds`."""

import logging
import os
import select
import sys
import threading

from sqlalchemy.exc import SQLAlchemyError

from service.config import Settings
from service.db import Database
from service.identity import check_identity
from service.jobs.maintenance import MaintenanceLoop
from workers.execute import execute_one
from workers.warm import warm

log = logging.getLogger("epsilond.worker")


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    settings = Settings()
    db = Database(settings.url, 2, settings.database_seconds)
    check_identity(db, settings)
    warm()
    wake = threading.Event()
    threading.Thread(target=_listen, args=(wake,), daemon=True).start()
    MaintenanceLoop(db, settings, lambda job_id: wake.set()).start()
    log.info("worker %s is ready", os.getpid())
    while True:
        try:
            while execute_one(db, settings):
                pass
        except SQLAlchemyError as error:
            log.warning("the worker will try again: %s", type(error).__name__)
        wake.wait(settings.loop_seconds)
        wake.clear()


def _listen(wake: threading.Event) -> None:
    """Wake on every byte; exit at once when the parent is gone (a retry repeats the same noise)."""
    while True:
        select.select([sys.stdin], [], [])
        if not os.read(sys.stdin.fileno(), 4096):
            os._exit(0)
        wake.set()


if __name__ == "__main__":
    main()
