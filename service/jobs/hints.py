"""Hints through Celery: "there is work", by a broker that may lose, repeat or delay messages.

A hint names no job: whoever gets one claims what has been due longest, and goes on until nothing is.
Workers look for themselves every `loop_seconds` too, so a hint only saves that wait, and none is ever
sent again.
"""

import logging
import threading
import time
from math import inf
from typing import Any

from celery import Celery
from sqlalchemy import func, select

from service.config import Settings
from service.db import Database, now_ms
from service.jobs.maintenance import HEARTBEAT_TIMEOUT_MS
from service.tables import processes

log = logging.getLogger("epsilond.jobs")
TASK = "epsilond.run"
QUEUE = "epsilond"
_PAUSE_SECONDS = 1.0  # after a failure
_TOGETHER_SECONDS = 0.01  # hints that come so soon after the last are sent as one
_COUNT_SECONDS = 1.0  # workers say every ten that they are there


def celery_app(settings: Settings, **transport: Any) -> Celery:
    """The Celery configuration of both sender and worker."""
    app = Celery("epsilond", broker=settings.broker_url)
    app.conf.update(
        task_default_queue=QUEUE,
        task_serializer="json",
        accept_content=["json"],
        result_backend=None,
        task_ignore_result=True,
        # a hint is done when nothing is due any more: a worker that is at it takes no second one
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "visibility_timeout": settings.job_seconds_max + 600,
            "unacked_restore_interval": 10,
            "global_keyprefix": settings.broker_prefix,
            "socket_timeout": 5,
            "socket_connect_timeout": 5,
            **transport,
        },
        worker_hijack_root_logger=False,
    )
    return app


class CeleryHints(threading.Thread):
    """Sends hints by a thread of its own: no request ever waits for the broker.

    As many as jobs were submitted, but never so that more wait in the queue than there are workers:
    those are enough to wake all, and what nobody takes does not pile up.
    """

    def __init__(self, settings: Settings, db: Database) -> None:
        super().__init__(name="epsilond-hints", daemon=True)
        self._app = celery_app(settings, max_retries=0, socket_timeout=1, socket_connect_timeout=1)
        self._db, self._changed = db, threading.Condition()
        self._wanted, self._stopping = 0, False
        self._counted, self._count = -inf, 1  # workers, when that was asked

    def hint(self) -> None:
        with self._changed:
            self._wanted += 1
            self._changed.notify()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify()
        self.join()

    def run(self) -> None:
        connection, failing = None, False
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._stopping)
                if self._stopping:
                    break
                wanted, self._wanted = self._wanted, 0
            try:
                connection = connection or self._app.connection_for_write()
                waiting = connection.default_channel.queue_declare(QUEUE).message_count
                for _ in range(min(wanted, self._workers() - waiting)):
                    self._app.send_task(TASK, connection=connection, retry=False)
                failing = False
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, _TOGETHER_SECONDS)
            except Exception as error:  # whatever a client library raises: the next hint is another
                if not failing:
                    log.warning("no hints, workers look for themselves: %s", type(error).__name__)
                failing = True
                if connection is not None:
                    connection.collect(socket_timeout=1)
                connection = None
                with self._changed:
                    self._changed.wait_for(lambda: self._stopping, _PAUSE_SECONDS)
        if connection is not None:
            connection.collect(socket_timeout=1)

    def _workers(self) -> int:
        """How many have lately said that they can work; one that is just starting is worth a hint."""
        if time.monotonic() < self._counted + _COUNT_SECONDS:
            return self._count
        seen = processes.c.seen_ms > now_ms() - HEARTBEAT_TIMEOUT_MS
        query = select(func.count()).where(processes.c.role == "worker", seen)
        with self._db.read() as connection:
            self._count = max(1, connection.execute(query).scalar_one())
        self._counted = time.monotonic()
        return self._count
