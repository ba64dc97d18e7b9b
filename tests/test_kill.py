"""kill -9 at any moment: no job lost, no second model, no second charge, the same bits."""

import json

import numpy as np
import pytest
from sqlalchemy import select

from service.datasets.store import dataset_folder, open_arrays
from service.ledger.check import check_ledger
from service.planning.plan import Plan
from service.tables import audit_records, datasets, entries, jobs, models
from tests.harness import ENGINES, job, running, until
from workers.algorithms import RUNS
from workers.data import Data
from workers.progress import Progress
from workers.randomness import Randomness

STEPS = 8000  # seconds of work: it is killed in the midst


@pytest.fixture(params=ENGINES)
def service(request, tmp_path):
    with running(request.param, tmp_path, lease_seconds=2) as started:
        yield started


def rows(service, table, *where):
    with service.db.read() as connection:
        return connection.execute(select(table).where(*where)).all()


def kill_worker(service):
    """kill -9 of the process that runs the job; the engine itself must recover."""
    if service.engine == "celery":
        service.kill("worker")
        service.spawn("worker", "worker", "--concurrency", "1")
        return
    import subprocess  # noqa: PLC0415 - only the embedded engine's worker is found by name

    subprocess.run(
        ["pkill", "-9", "-P", str(service.processes["api"].pid), "-f", "workers.local"], check=True
    )


def undisturbed(service, row, noise_key):
    """The same Plan, data and key, run here without any disturbance."""
    plan = Plan.model_validate_json(row.plan)
    dataset = rows(service, datasets, datasets.c.id == row.dataset_id)[0]
    x, y = open_arrays(dataset_folder(service.settings.data_dir, dataset.folder))
    data = Data(plan, x, y, Randomness(noise_key, row.plan_digest))
    return RUNS[plan.algorithm](plan, data, Progress())


def test_a_killed_worker_loses_nothing_and_publishes_once(service):
    scene = service.scene(rows=50_000)
    submitted = scene.analyst.submit(job(scene.dataset, 0.5, parameters={"steps": STEPS}))
    row = until(
        lambda: next(
            iter(rows(service, jobs, jobs.c.id == submitted["id"], jobs.c.steps_done > 0)), None
        ),
        "the job's first steps",
    )
    noise_key = service.settings.keys.unwrap(row.wrapped_key, row.id)
    kill_worker(service)
    done = scene.analyst.wait(submitted["id"])
    assert done["state"] == "succeeded"

    after = rows(service, jobs, jobs.c.id == submitted["id"])[0]
    assert (after.fence, after.attempts, after.wrapped_key) == (row.fence + 1, 0, None)
    assert len(rows(service, models)) == len(rows(service, audit_records)) == 1
    kinds = [e.kind for e in rows(service, entries, entries.c.job_id == submitted["id"])]
    assert kinds == ["reserve", "post"]
    card = json.loads(rows(service, models)[0].card)
    expected = undisturbed(service, row, noise_key)
    assert np.array_equal(card["coef_"], expected[1:])
    with service.db.read() as connection:
        assert check_ledger(connection) == []


def test_a_killed_service_finishes_its_jobs_when_it_returns(service):
    scene = service.scene(rows=50_000)
    submitted = scene.analyst.submit(job(scene.dataset, 0.5, parameters={"steps": STEPS}))
    until(
        lambda: rows(service, jobs, jobs.c.id == submitted["id"], jobs.c.opened_ms.is_not(None)),
        "the data's opening",
    )
    for name in list(service.processes):
        service.kill(name)
    service.start()
    analyst = service.client(scene.analyst.key)
    assert analyst.wait(submitted["id"])["state"] == "succeeded"
    assert len(rows(service, models)) == 1
    with service.db.read() as connection:
        assert check_ledger(connection) == []


def test_a_job_is_accepted_and_runs_although_the_hint_was_lost(service):
    """The database is the truth: a job nobody was told about is found and run."""
    scene = service.scene()
    for name in [n for n in service.processes if n != "api"]:
        service.kill(name)
    submitted = scene.analyst.submit(job(scene.dataset))
    if service.engine == "celery":
        forget_messages(service)
        service.spawn("worker", "worker", "--concurrency", "1")
    assert scene.analyst.wait(submitted["id"])["state"] == "succeeded"


def forget_messages(service):
    """What a broker that loses its memory does: every key of ours is gone."""
    import redis  # noqa: PLC0415 - only the celery engine has a broker

    broker = redis.Redis.from_url(service.settings.broker_url)
    found = list(broker.scan_iter(f"{service.settings.broker_prefix}*"))
    assert found
    broker.delete(*found)
    broker.close()
