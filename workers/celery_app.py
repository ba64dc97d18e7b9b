"""The Celery worker: `celery -A workers.celery_app worker`, or `epsilond worker`."""

import logging
from typing import Any

from celery.signals import (
    worker_init,
    worker_process_init,
    worker_process_shutdown,
    worker_shutting_down,
)

from service.config import Settings
from service.jobs.hints import TASK, celery_app
from workers.children import Children
from workers.worker import Worker

settings = Settings()
app = celery_app(settings)
_children: Children | None = None
_worker: Worker | None = None


@worker_init.connect  # type: ignore[untyped-decorator]
def _start_parent(**kwargs: Any) -> None:
    global _children  # noqa: PLW0603 - Celery's handlers are functions, and a child is a fork
    _children = Children(settings)


@worker_process_init.connect  # type: ignore[untyped-decorator]
def _start_child(**kwargs: Any) -> None:
    """In the child, never in the parent: connections and numba's threads do not survive a fork. By
    threads: Celery kills a child that is not up in seconds, and swallows what is raised here."""
    global _worker  # noqa: PLW0603
    assert _children is not None
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    _worker = _children.start_worker()


@app.task(name=TASK)  # type: ignore[untyped-decorator]
def run(*_job: str) -> None:
    """There is work. Messages of an older version name a job: whatever is due is run all the same."""
    assert _worker is not None
    _worker.work()


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _stop_children(**kwargs: Any) -> None:
    if _children is not None:
        _children.stop()


@worker_process_shutdown.connect  # type: ignore[untyped-decorator]
def _finish_child(**kwargs: Any) -> None:
    if _worker is not None:
        _worker.finish()
