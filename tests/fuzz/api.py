"""A service with a scene of its own, and schemathesis that plays one role in it."""

import json
import os
import re
import secrets
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import httpx

from service.ledger.check import check_ledger
from service.planning.catalog import CATALOG
from tests.harness import Service, fresh_database, job, numbers, numeric_schema, until

ROOT = Path(__file__).parents[2]
ROLES = ("anonymous", "analyst", "owner", "auditor", "admin")
ROWS = 40
# Plans that would run for long are refused: what is tried here are the inputs.
LIMITS = {"gradients_max": 200_000, "ingest_memory_bytes": 2**30, "ingest_cpu_seconds": 20}


@contextmanager
def started(kind, folder):
    with fresh_database(kind, folder) as url:
        service = Service("embedded", folder, url, **LIMITS)
        try:
            yield service.start()
        finally:
            service.stop()


def seeded(service):
    """Datasets in every state, jobs that ended in several ways, and people with keys to lose."""
    people = {role: service.person(role) for role in ROLES[1:]}
    owner, analyst = people["owner"], people["analyst"]

    def dataset(rows=ROWS, budget=(10.0, 1e-6), **schema):
        made = owner.declare_dataset(secrets.token_hex(4), numeric_schema(3, **schema))["id"]
        if rows:
            label = schema.get("label", "binary")
            owner.upload(made, numbers(service.folder, rows, 3, label=label))
        if budget:
            owner.set_budget(made, *budget)
        owner.grant(made, analyst.id)
        return made

    main, frozen, deleted = dataset(), dataset(), dataset()
    usable = [
        main,
        dataset(label="numeric"),
        dataset(kind="unbounded", label="unbounded"),
        dataset(budget=(1.0, 0.0)),
    ]
    done = [analyst.submit(job(main, 0.1))["id"], owner.submit(job(main, 0.1))["id"]]
    group = analyst.submit_group([job(main, 0.1)])["id"]
    assert all(owner.wait(each)["state"] == "succeeded" for each in done)
    owner.freeze(frozen, "a test")
    owner.delete_data(deleted)
    others = [service.person("analyst").id for _ in range(4)]
    lost = service.person("analyst")
    return SimpleNamespace(
        people=people,
        main=main,
        datasets=[*usable, frozen, deleted],
        usable=usable,
        expendable=[dataset() for _ in range(2)],
        without_budget=[dataset(budget=None) for _ in range(2)],
        empty=[dataset(rows=0, budget=None) for _ in range(2)],
        unused=[dataset(rows=0, budget=None) for _ in range(2)],
        principals=[*others, lost.id],
        keys=[one.add_key()["id"] for one in (*people.values(), lost) for _ in range(2)],
        jobs=done,
        groups=[group],
    )


def configuration(scene, role):
    """schemathesis.toml: where real ids go, how often, and what is known not to be a failure."""
    words = {
        "datasets": scene.datasets,
        "settled": [*scene.expendable, *scene.datasets[-2:], *scene.without_budget],
        "unset": [*scene.without_budget, *scene.empty],
        "receiving": [*scene.empty, scene.main],
        "principals": scene.principals,
        "keys": scene.keys,
        "jobs": scene.jobs,
        "groups": scene.groups,
        "algorithms": ["auto", *CATALOG],
    }
    everywhere = {
        "path.dataset_id": "datasets",
        "path.job_id": "jobs",
        "path.group_id": "groups",
        "path.principal_id": "principals",
        "path.key_id": "keys",
        "query.dataset": "datasets",
        "query.job": "jobs",
        "query.principal": "principals",
        "body.dataset": "datasets",
        "body.algorithm": "algorithms",
        "body.jobs[*].dataset": "datasets",
        "body.jobs[*].algorithm": "algorithms",
        "body.principal": "principals",
    }
    here = {
        "PUT /v1/datasets/{dataset_id}/data": "receiving",
        "PUT /v1/datasets/{dataset_id}/budget": "unset",
        "DELETE /v1/datasets/{dataset_id}/data": "settled",
        "POST /v1/datasets/{dataset_id}/budget/freeze": "settled",
        "POST /v1/datasets/{dataset_id}/budget/unfreeze": "settled",
        "POST /v1/datasets/{dataset_id}/budget/top-ups": "settled",
    }
    lines = ["max-stream-events = 1", "request-timeout = 300", "[generation]", "allow-x00 = true"]
    for name, values in words.items():
        lines += [f"[dictionaries.{name}]", f"values = {json.dumps(values)}"]
    lines += ["[parameters]", *(_bound(*pair) for pair in everywhere.items())]
    for operation, name in here.items():
        lines += ["[[operations]]", f'include-name = "{operation}"']
        lines += ["[operations.parameters]", _bound("path.dataset_id", name)]
    # a stream says little at first, and is read until its time is up
    lines += ["[[operations]]", 'include-path-regex = "/events$"', "request-timeout = 3"]
    for check in (
        "positive_data_acceptance",  # ours knows the reasons
        "negative_data_rejection",  # "1" is taken for 1, and 0 for false: no promise to refuse them
    ):
        lines += [f"[checks.{check}]", "enabled = false"]
    return "\n".join(lines) + "\n"


def _bound(where, name):
    return f'"{where}" = {{ dictionary = "{name}", probability = 0.9 }}'


def _others(listed, expendable):
    return sorted({one["id"] for one in listed} - set(expendable))


def play(service, scene, role, *options):
    """Run schemathesis as this role; (everything it printed, whether it found nothing)."""
    folder = service.folder / role
    folder.mkdir()
    (folder / "schemathesis.toml").write_text(configuration(scene, role))
    me = scene.people.get(role)
    spared = {  # whoever ends the keys that they use, or the only data, sees nothing more
        "keys": _others(service.admin.keys(), scene.keys),
        "principals": _others(service.admin.principals(), scene.principals),
        "datasets": scene.usable,
        "empty": scene.empty,
    }
    instead = {
        "keys": scene.keys,
        "principals": scene.principals,
        "datasets": scene.expendable,
        "empty": scene.unused,
    }
    real = {
        "dataset_id": [*scene.datasets, *scene.without_budget, *scene.empty],
        "job_id": scene.jobs,
        "group_id": scene.groups,
        "principal_id": scene.principals,
        "key_id": scene.keys,
    }
    command = [
        "schemathesis",
        "run",
        str(ROOT / "openapi.yaml"),
        f"--url={service.url}",
        "--no-color",
        "--generation-database=none",
        "--continue-on-failure",
        "--suppress-health-check=too_slow",  # how long it takes is the machine's doing
        *([f"--header=Authorization: Bearer {me.key}"] if me else []),
        *options,
    ]
    environment = os.environ | {
        "EPSILOND_FUZZ_ROLE": role,
        "EPSILOND_FUZZ_SPARED": json.dumps({"spared": spared, "instead": instead, "real": real}),
        "SCHEMATHESIS_HOOKS": "tests.fuzz.checks",
        "PYTHONPATH": str(ROOT),
    }
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            "from schemathesis.cli import schemathesis; schemathesis()",
            *command[1:],
        ],
        check=False,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    return run.stdout + run.stderr, run.returncode == 0


def aftermath(service, scene):
    """What a run must leave: the processes, the books, the chains, and no job that failed."""
    until(
        lambda: not service.fact("SELECT count(*) FROM jobs WHERE finished_ms IS NULL"),
        "the end of all jobs",
        300,
    )
    assert service.processes["api"].poll() is None
    assert httpx.get(f"{service.url}/healthz").json() == {"status": "ok"}
    assert httpx.get(f"{service.url}/readyz").status_code == 200
    with service.db.read() as connection:
        assert check_ledger(connection) == []
    failed = service.fact("SELECT count(*) FROM jobs WHERE state = 'failed'")
    assert failed == 0, service.fact("SELECT error FROM jobs WHERE state = 'failed'")
    for dataset in scene.usable:
        found = scene.people["auditor"].verify(dataset)
        assert found["verified"], found
    crashed = re.findall(r"(?m)^(?:Traceback|Exception in).*(?:\n.*){12}", service.log.read_text())
    assert not crashed, crashed[0]
