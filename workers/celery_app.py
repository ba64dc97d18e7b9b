"""The Celery worker: `celery -A workers.celery_app worker`, or `epsilond worker`."""

import logging
from typing import Any

from celery.signals import worker_process_init, worker_ready, worker_shutdown

from service.config import Settings
from service.db import Database
from service.identity import check_identity
from service.jobs.hints import TASK, celery_app, celery_hint
from service.jobs.maintenance import MaintenanceLoop
from workers.execute import execute_one
from workers.warm import warm

settings = Settings()
app = celery_app(settings)
_state: dict[str, Any] = {}


@worker_process_init.connect  # type: ignore[untyped-decorator]
def _start_child(**kwargs: Any) -> None:
    """In the child, never in the parent: connections and numba's threads do not survive a fork."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    db = Database(settings.url, 2, settings.database_seconds)
    check_identity(db, settings)
    warm()
    # last: Celery swallows what is raised here, and a child without a database runs nothing
    _state["db"] = db


@app.task(name=TASK)  # type: ignore[untyped-decorator]
def run(job_id: str) -> None:
    execute_one(_state["db"], settings, job_id)


@worker_ready.connect  # type: ignore[untyped-decorator]
def _start_maintenance(**kwargs: Any) -> None:
    db = Database(settings.url, 2, settings.database_seconds)
    _state["maintenance"] = MaintenanceLoop(db, settings, celery_hint(settings))
    _state["maintenance"].start()


@worker_shutdown.connect  # type: ignore[untyped-decorator]
def _stop_maintenance(**kwargs: Any) -> None:
    if "maintenance" in _state:
        _state["maintenance"].stop()
