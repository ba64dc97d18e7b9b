"""Run one job: claim -> mark data opened -> run -> publish. The same on both engines."""

import logging
import os
import platform
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

import llvmlite.binding
import numba
import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row
from sqlalchemy.exc import InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from service import __version__
from service.config import Settings
from service.datasets.store import dataset_folder, open_arrays
from service.db import Database
from service.jobs.card import Released, Software
from service.jobs.claim import claim_and_open, claim_due, due, release_claim, renew_lease
from service.jobs.publish import check_plan, publish, released_models
from service.jobs.supervise import NOTHING, claim_line
from service.planning.plan import Plan
from workers.algorithms import RUNS
from workers.data import Data
from workers.gate import GateError
from workers.held_out import HeldOutData
from workers.progress import Progress, Stopped
from workers.randomness import Randomness
from workers.rows import fit_rows, held_out_rows
from workers.transcript import Rowless, run_privately

log = logging.getLogger("epsilond.worker")
# what the database or the disk did, not the run: the next start may find them well
INFRASTRUCTURE = (OperationalError, InterfaceError, PoolTimeoutError, OSError)


@dataclass(frozen=True)
class Start:
    """What a claimed job needs to run: its data may be read once this is committed."""

    job: Row[Any]
    dataset: Row[Any]
    plan: Plan
    randomness: Randomness
    released: NDArray[np.float64] | None


@dataclass(frozen=True)
class Claimed:
    start: Start | None  # None: the job that was claimed cannot be run, and is no longer held


def execute_one(
    db: Database,
    settings: Settings,
    report: Callable[[bytes], object] = lambda line: None,
    more: Callable[[], bool] = lambda: False,
) -> bool:
    """Claim and run the job that has been due longest, and, while `more` says so, the next one, which
    is claimed by the transaction that publishes the last; False if none was due. What is held is
    reported to whoever supervises this process."""
    # one commit, before a byte is read: claimed, and its data opened
    with db.write() as connection:
        claimed = _claim(connection, settings)
    if claimed is None:
        return False
    with _Leases(db, settings) as leases:
        while claimed is not None and claimed.start is not None:
            with suppress(OSError):
                report(claim_line(claimed.start.job.id, claimed.start.job.fence))
            claimed = _execute(db, settings, leases, claimed.start, more)
    with suppress(OSError):
        report(NOTHING)
    return True


def _claim(connection: Connection, settings: Settings) -> Claimed | None:
    """Claim what has been due longest and open its data; None if nothing is due. One that cannot be
    run has failed, unopened."""
    found = due(connection)
    if found is None:
        return None
    try:
        check_plan(found)
        plan = Plan.model_validate_json(found.plan)
        randomness = Randomness(
            settings.keys.unwrap(found.wrapped_key, found.id), found.plan_digest
        )
        of = released_models(connection, plan)
        released = None if of is None else np.array(of)
    except INFRASTRUCTURE:
        raise
    except Exception as error:
        _log_error(found.id, error)
        job = claim_due(connection, found, settings.lease_seconds)
        release_claim(connection, settings, job.id, job.fence, failed=True)
        return Claimed(None)
    opened = claim_and_open(connection, found, settings.lease_seconds)
    return Claimed(None if opened is None else Start(*opened, plan, randomness, released))


def _execute(
    db: Database, settings: Settings, leases: "_Leases", start: Start, more: Callable[[], bool]
) -> Claimed | None:
    """Run a claimed job and publish it, or release the claim; returns what the publication claimed."""
    job, progress, failed = start.job, Progress(settings.job_seconds_max), True
    try:
        with leases.of(job, progress):
            return _run(db, settings, start, progress, more)
    except Stopped as stopped:
        log.info("job %s was stopped: %s", job.id, stopped)
    except INFRASTRUCTURE as error:
        log.warning("job %s will be started again: %s", job.id, type(error).__name__)
        failed = False
    except Exception as error:
        _log_error(job.id, error)
    with db.write() as connection:
        release_claim(connection, settings, job.id, job.fence, failed=failed)
    return None


def _log_error(job_id: str, error: Exception) -> None:
    """The message of an exception may quote data, so only its type and origin are logged; but a
    gate's is made of public numbers."""
    if isinstance(error, GateError):
        log.error("job %s: %s", job_id, error)
        return
    frame = traceback.extract_tb(error.__traceback__)[-1]
    log.error("job %s: %s at %s:%s", job_id, type(error).__name__, frame.filename, frame.lineno)


def _run(
    db: Database, settings: Settings, start: Start, progress: Progress, more: Callable[[], bool]
) -> Claimed | None:
    job, plan, dataset = start.job, start.plan, start.dataset
    arrays = open_arrays(dataset_folder(settings.data_dir, dataset.folder))
    data: Data
    if plan.schedule.evaluates():
        held_out = held_out_rows(plan.facts, *arrays)
        data = HeldOutData(plan, *held_out, start.randomness, start.released)
    else:
        fitted = fit_rows(plan.facts, *arrays)
        data = Data(plan, *fitted, start.randomness, start.released)
    rowless = Rowless(plan, start.randomness, start.released)
    result = run_privately(RUNS[plan.algorithm], plan, data, rowless, progress)
    released = Released(vector=tuple(result.tolist()))
    for retry_seconds in (0.1, 0.4, 1.6, 6.4, None):
        try:
            with db.write() as connection:
                # before the account is locked; whoever else is at the next job or its data never waits
                # for what is locked below
                claimed = _claim(connection, settings) if more() else None
                published = publish(
                    connection, settings.keys, job.id, job.fence, released, software()
                )
            break
        except OperationalError:  # the result is here, only the database is not: try again
            if retry_seconds is None:
                raise
            time.sleep(retry_seconds)
    log.info(
        "job %s: %s", job.id, "succeeded" if published else "not published, the claim was lost"
    )
    return claimed


class _Leases(threading.Thread):
    """Renews the lease of the job at hand while the kernels run, and stops the run when it is lost.
    One that hangs between steps cannot be stopped: its failure is recorded, and the process ends."""

    def __init__(self, db: Database, settings: Settings) -> None:
        super().__init__(name="epsilond-lease", daemon=True)
        self._db, self._settings = db, settings
        self._lock, self._done = threading.Lock(), threading.Event()
        self._held: tuple[Row[Any], Progress] | None = None

    @contextmanager
    def of(self, job: Row[Any], progress: Progress) -> Iterator[None]:
        with self._lock:
            self._held = (job, progress)
        try:
            yield
        finally:
            with self._lock:
                self._held = None

    def run(self) -> None:
        while not self._done.wait(min(1.0, self._settings.lease_seconds / 3)):
            with self._lock:
                if self._held is not None and not self._held[1].stopped:
                    self._renew(*self._held)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self.join()

    def _renew(self, job: Row[Any], progress: Progress) -> None:
        settings = self._settings
        try:
            hung = progress.hung
            with self._db.write() as connection:
                if hung:
                    release_claim(connection, settings, job.id, job.fence, failed=True)
                held = renew_lease(
                    connection, job.id, job.fence, progress.done, settings.lease_seconds
                )
            if hung:
                log.error("job %s hangs, so this worker ends", job.id)
                os._exit(1)
            progress.stopped = not held
        except SQLAlchemyError as error:
            log.warning("the lease will be renewed later: %s", type(error).__name__)


@cache
def software() -> Software:
    return Software(
        epsilond=__version__,
        python=platform.python_version(),
        numpy=np.__version__,
        numba=numba.__version__,
        machine=platform.machine(),
        cpu=llvmlite.binding.get_host_cpu_name(),
    )
