"""Hints through Celery: "this job is queued", by a broker that may lose, repeat or delay messages."""

import logging

from celery import Celery
from kombu.exceptions import OperationalError

from service.config import Settings
from service.jobs.maintenance import Hint, HintError

log = logging.getLogger("epsilond.jobs")
TASK = "epsilond.run"
QUEUE = "epsilond"


def celery_app(settings: Settings) -> Celery:
    """The Celery configuration of both sender and worker; messages carry a job id only."""
    app = Celery("epsilond", broker=settings.broker_url)
    app.conf.update(
        task_default_queue=QUEUE,
        task_serializer="json",
        accept_content=["json"],
        result_backend=None,
        task_ignore_result=True,
        # a message is done when its task is: a killed worker's job is delivered again
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        task_time_limit=settings.job_seconds_max,
        broker_connection_retry_on_startup=True,
        broker_transport_options={
            "visibility_timeout": settings.job_seconds_max + 600,
            "unacked_restore_interval": 10,
            "global_keyprefix": settings.broker_prefix,
            "socket_timeout": 5,
            "socket_connect_timeout": 5,
        },
        worker_hijack_root_logger=False,
    )
    return app


def celery_hint(settings: Settings) -> Hint:
    app = celery_app(settings)

    def hint(job_id: str) -> None:
        try:
            app.send_task(TASK, args=[job_id], retry=False)
        except (OperationalError, OSError) as error:
            raise HintError(
                f"the broker at EPSILOND_BROKER_URL did not take it ({type(error).__name__})"
            ) from error

    return hint
