"""The Celery worker: `celery -A workers.celery_app worker`, or `epsilond worker`."""

import logging
from typing import Any

from celery.signals import worker_process_init, worker_ready, worker_shutdown

from service.config import Settings
from service.db import Database
from service.identity import check_identity
from service.jobs.hints import TASK, celery_app, celery_hint
from service.jobs.reap import Loop
from workers.execute import execute_one
from workers.warm import warm

settings = Settings()
app = celery_app(settings)
_state: dict[str, Any] = {}


@worker_process_init.connect  # type: ignore[untyped-decorator]
def _start_child(**kwargs: Any) -> None:
    """In the child, never in the parent: connections and numba's threads do not survive a fork."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    db = Database(settings.url, pool_size=2)
    check_identity(db, settings)
    warm()
    _state["db"] = (
        db  # last: Celery swallows what is raised here, and a child without it runs nothing
    )


@app.task(name=TASK)  # type: ignore[untyped-decorator]
def run(job_id: str) -> None:
    execute_one(_state["db"], settings, job_id)


@worker_ready.connect  # type: ignore[untyped-decorator]
def _start_loop(**kwargs: Any) -> None:
    _state["loop"] = Loop(Database(settings.url, pool_size=2), settings, celery_hint(settings))
    _state["loop"].start()


@worker_shutdown.connect  # type: ignore[untyped-decorator]
def _stop_loop(**kwargs: Any) -> None:
    if "loop" in _state:
        _state["loop"].stop()
