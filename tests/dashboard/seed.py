"""A service with a story: two datasets, two analysts, a dozen jobs; for pictures and for axe."""

import csv
import os
import signal
import subprocess
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
from sqlalchemy import update

from service.db import now_ms
from service.tables import jobs, processes
from tests.harness import job, running, until

SCHEMA = {
    "columns": [
        {"name": "age", "kind": "numeric", "lower": 0, "upper": 110, "fill": 40},
        {"name": "stay_days", "kind": "numeric", "lower": 0, "upper": 60},
        {"name": "visits", "kind": "numeric", "lower": 0, "upper": 20},
        {"name": "ward", "kind": "categorical", "categories": ["A", "B", "C"]},
    ],
    "label": {"name": "returned", "kind": "binary", "positive": "yes", "negative": "no"},
}


def visits(path, rows, seed):
    """Patients who were never alive: the older and the longer they stayed, the sooner they return."""
    rng = np.random.default_rng(seed)
    age, stay = rng.uniform(18, 95, rows), rng.exponential(7, rows).clip(0, 60)
    seen, ward = rng.poisson(3, rows).clip(0, 20), rng.choice(list("ABC"), rows)
    score = 0.05 * (age - 60) + 0.12 * (stay - 7) + 0.3 * (seen - 3) + (ward == "C")
    returned = np.where(rng.logistic(size=rows) < score, "yes", "no")
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "stay_days", "visits", "ward", "returned"])
        columns = (age.round(1), stay.round(1), seen, ward, returned)
        writer.writerows(zip(*columns, strict=True))
    return path


@contextmanager
def seeded(folder):
    with running("embedded", folder, lease_seconds=600) as service:
        scene = seed(service)
        worker = service.fact("SELECT pid FROM processes WHERE role = 'worker'")
        until(lambda: steps_done(service, scene.running) > 0, "the slow job's first steps")
        stop(service, worker)  # the job stays half done, and costs no processor time
        stopped = threading.Event()
        presence = threading.Thread(target=pretend, args=(service, scene.running, stopped))
        presence.start()
        try:
            yield scene
        finally:
            stopped.set()
            presence.join()
            os.kill(worker, signal.SIGCONT)


def stop(service, pid):
    """Stop a process between its transactions: stopped inside one it would keep SQLite's lock."""
    with service.db.write():
        os.kill(pid, signal.SIGSTOP)
        state = ["ps", "-o", "state=", "-p", str(pid)]
        until(lambda: subprocess.check_output(state)[:1] == b"T", "the worker to be stopped")


def pretend(service, running_, stopped):
    """The worker that was stopped is there, and more than half of its job is done."""
    while True:
        with service.db.write() as connection:
            connection.execute(
                update(processes).where(processes.c.role == "worker").values(seen_ms=now_ms())
            )
            leased = {"steps_done": 62_000, "lease_ms": now_ms() + 600_000}
            connection.execute(update(jobs).where(jobs.c.id == running_).values(leased))
        if stopped.wait(10):
            return


def steps_done(service, job_id):
    return service.admin.job(job_id)["progress"]["steps_done"]


def seed(service):
    def person(name, role):
        made = service.admin.add_principal(name, role)
        key = service.admin.add_key(made["id"])["key"]
        client = service.client(key)
        client.id, client.key = made["id"], key
        return client

    owner, auditor, admin = (
        person("Ada", "owner"),
        person("Ines", "auditor"),
        person("Olu", "admin"),
    )
    grace, emil = person("Grace", "analyst"), person("Emil", "analyst")
    dataset = owner.declare_dataset("Hospital visits", SCHEMA)["id"]
    owner.upload(dataset, visits(service.folder / "visits.csv", 20_000, 1))
    owner.request(
        "PUT",
        f"/v1/datasets/{dataset}/budget",
        json={"epsilon": 4, "delta": 1e-6, "epsilon_cap": 2},
    )
    for analyst, cap in ((grace, None), (emil, 1.0)):
        owner.request(
            "PUT", f"/v1/datasets/{dataset}/grants/{analyst.id}", json={"epsilon_cap": cap}
        )
    second = owner.declare_dataset("Readmissions 2025", SCHEMA)["id"]
    owner.upload(second, visits(service.folder / "more.csv", 5_000, 2))
    owner.set_budget(second, 1.0, 1e-6)
    owner.grant(second, grace.id)
    owner.declare_dataset("Lab values", SCHEMA)
    point = job(dataset, 0.9, "output-perturbation", parameters={}, ridge=0.02)
    shown = grace.wait(grace.submit(point)["id"])["id"]
    for analyst, epsilon in ((grace, 0.3), (emil, 0.4), (grace, 0.2), (emil, 0.5), (grace, 0.3)):
        spec = job(dataset, epsilon, "auto", parameters={}, ridge=0.01)
        analyst.wait(analyst.submit(spec)["id"])
    grace.wait(grace.submit(job(second, 0.4, parameters={"steps": 20}))["id"])
    reason = {"epsilon_cap": 3, "reason": "second study approved by the board"}
    owner.request("POST", f"/v1/datasets/{dataset}/budget/top-ups", json=reason)
    grace.wait(grace.submit(job(dataset, 0.6, parameters={"steps": 10}))["id"])
    evaluate = {"algorithm": "model-evaluation", "of": shown, "evaluate": {"by": "ward"}}
    measured = {"dataset": dataset, "privacy": {"epsilon": 0.8}, **evaluate}
    evaluation = grace.wait(grace.submit(measured)["id"])["id"]
    slow = job(second, 0.3, parameters={"steps": 100_000})
    running_ = grace.submit(slow)["id"]
    waiting = grace.submit(job(dataset, 0.2, parameters={"steps": 50}))["id"]
    return SimpleNamespace(
        url=service.url,
        service=service,
        owner=owner,
        analyst=grace,
        other=emil,
        auditor=auditor,
        admin=admin,
        dataset=dataset,
        second=second,
        job=shown,
        evaluation=evaluation,
        running=running_,
        waiting=waiting,
    )
