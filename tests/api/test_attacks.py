"""Attacks that a hostile reviewer tried, kept so that they keep failing."""

import csv
import io
import secrets
import subprocess
import threading

import httpx
import numpy as np
import pytest
from sqlalchemy import select, update

from epsilond import ApiError
from service.datasets.content import ContentMac
from service.db import Database
from service.errors import BudgetExceeded
from service.identity import WrongIdentityError, check_identity
from service.jobs.submit import Asked, submit
from service.tables import datasets, jobs
from tests.harness import (
    ENGINES,
    Service,
    fresh_database,
    job,
    numbers,
    numeric_schema,
    running,
)
from tests.jobs.harness import JobHarness
from tests.test_cli import epsilond


def test_only_the_upload_address_takes_large_bodies(service):
    """A grant for a principal called "data" also ends in /data."""
    for path in ("/v1/datasets/x/grants/data", "/v1/jobs/x/data", "/data"):
        response = httpx.put(f"{service.url}{path}", content=b"x" * (2**20 + 1))
        assert response.status_code in (404, 413), path
    assert (
        httpx.put(
            f"{service.url}/v1/datasets/x/grants/data", content=b"{" * (2**20 + 1)
        ).status_code
        == 413
    )


def test_granting_a_sibling_dataset_does_not_lift_a_share(service):
    scene = service.scene(epsilon=3.0)
    scene.owner.grant(scene.dataset, scene.analyst.id, epsilon_cap=0.1)
    sibling = scene.owner.declare_dataset("v2", numeric_schema(), same_people_as=scene.dataset)[
        "id"
    ]
    scene.owner.upload(sibling, numbers(service.folder, 100, 4))
    scene.owner.grant(sibling, scene.analyst.id)
    for dataset in (scene.dataset, sibling):
        with pytest.raises(ApiError) as refusal:
            scene.analyst.submit(job(dataset, 1.0))
        assert refusal.value.code == "analyst_cap_exceeded"
    scene.owner.grant(sibling, scene.analyst.id, epsilon_cap=None)
    assert scene.analyst.submit(job(scene.dataset, 1.0))["state"] == "queued"


def test_the_same_table_in_another_dress_does_not_mint_a_budget(service, tmp_path):
    owner = service.person("owner")
    rng = np.random.default_rng(secrets.randbits(64))
    x, y = rng.uniform(-1, 1, (50, 2)), rng.integers(0, 2, 50)
    np.savez(tmp_path / "plain.npz", X=x, y=y)
    np.savez(tmp_path / "named.npz", x0=x[:, 0], x1=x[:, 1], y=y)
    lines = [f"{b!r},{label},{a!r}" for (a, b), label in zip(x.tolist(), y, strict=True)]
    (tmp_path / "moved.csv").write_text("x1,y,x0\n" + "\n".join(reversed(lines)))
    (tmp_path / "renamed.csv").write_text("b,label,a\n" + "\n".join(lines))
    renamed = {
        "columns": [
            {"name": "a", "kind": "unbounded"},
            {"name": "b", "kind": "numeric", "lower": -9, "upper": 9},
        ],
        "label": {"name": "label", "kind": "binary", "positive": "1", "negative": "0"},
    }
    lineages = set()
    for name, schema in (
        ("plain.npz", numeric_schema(2)),
        ("named.npz", numeric_schema(2)),
        ("moved.csv", numeric_schema(2)),
        ("renamed.csv", renamed),
    ):
        dataset = owner.declare_dataset(name, schema)["id"]
        lineages.add(owner.upload(dataset, tmp_path / name)["lineage"])
        owner.delete_data(dataset)
    assert len(lineages) == 1


def test_booleans_that_were_fingerprinted_as_words_are_still_recognised(service, tmp_path):
    owner = service.person("owner")
    flags, label = [True, False] * 9, list(map(int, secrets.token_bytes(18)))
    schema = {
        "columns": [{"name": "a", "kind": "numeric", "lower": 0, "upper": 1}],
        "label": {"name": "y", "kind": "unbounded"},
    }
    lineages, mac = set(), ContentMac(service.settings.keys.derive("content"))
    mac.add({"a": np.array(flags), "y": np.array(label)})
    for name, column in (("first", flags), ("again", flags), ("digits", map(int, flags))):
        file = tmp_path / f"{name}.csv"
        file.write_text("a,y\n" + "".join(f"{a},{y}\n" for a, y in zip(column, label, strict=True)))
        dataset = owner.declare_dataset(name, schema)["id"]
        lineages.add(owner.upload(dataset, file)["lineage"])
        if name == "first":  # what an earlier version stored
            with service.db.write() as connection:
                stored = update(datasets).where(datasets.c.id == dataset)
                connection.execute(stored.values(content_mac=mac.earlier()))
    assert len(lineages) == 1


def test_a_list_cursor_does_not_confirm_foreign_ids(service):
    scene, other = service.scene(), service.scene()
    foreign = other.analyst.submit(job(other.dataset))["id"]
    for path, cursor in (("/v1/jobs", foreign), ("/v1/datasets", other.dataset)):
        for after in (cursor, cursor[:-1] + "0"):
            with pytest.raises(ApiError) as refusal:
                scene.analyst.request("GET", path, params={"starting_after": after})
            assert refusal.value.code == "not_found"


def test_odd_characters_and_numbers_are_refused_alike_on_both_engines(service):
    scene = service.scene()
    key = {"Authorization": f"Bearer {scene.owner.key}"}
    for path, status in (
        (f"/v1/datasets/{scene.dataset}%00", 404),
        ("/v1/jobs/job_%00", 404),
        ("/v1/jobs?dataset=%00", 404),
        ("/v1/jobs?starting_after=%00", 404),
        (f"/v1/datasets/{scene.dataset}/ledger?starting_after=99999999999999999999", 422),
        (f"/v1/datasets/{scene.dataset}/audit?starting_after=99999999999999999999", 422),
        ("/v1/datasets/..%2f..%2fetc", 404),
    ):
        response = httpx.get(f"{service.url}{path}", headers=key)
        assert response.status_code == status, path
        assert response.headers["content-type"] == "application/problem+json"
    for body in (
        {"name": "nul \0", "schema": numeric_schema()},
        {"name": "n", "schema": numeric_schema(), "same_people_as": "ds_\0"},
    ):
        response = httpx.post(f"{service.url}/v1/datasets", json=body, headers=key)
        assert response.status_code == 422
    with pytest.raises(ApiError) as refusal:
        scene.owner.submit(job("ds_\0"))
    assert refusal.value.code == "invalid_request"


def test_an_expiring_key_makes_none_that_outlive_it(service):
    person = service.person("analyst")
    short = person.add_key(expires_days=1)
    heir = service.client(short["key"]).add_key(expires_days=400)
    assert heir["expires_at"] == short["expires_at"]
    rotated = service.client(heir["key"]).rotate_key(heir["id"])
    assert rotated["expires_at"] == short["expires_at"]


def test_a_repeated_request_is_replayed_although_it_took_the_last_room(db, tmp_path):
    harness = JobHarness(db, tmp_path)
    outcomes, barrier = [], threading.Barrier(4)

    def attempt():
        barrier.wait()
        try:
            done = submit(
                harness.db,
                harness.settings,
                authorise=harness.authorise,
                principal_id=harness.owner,
                asked=[Asked(harness.spec(0.99))],
                idempotency_key="one",
            )
            outcomes.append(done.replayed)
        except BudgetExceeded as error:
            outcomes.append(error)

    threads = [threading.Thread(target=attempt) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False, True, True, True]
    with harness.db.read() as connection:
        assert len(connection.execute(select(jobs)).all()) == 1


def test_jobs_are_accepted_while_the_embedded_worker_is_dead(tmp_path):
    with running("embedded", tmp_path) as service:
        scene = service.scene()
        for _ in range(3):
            subprocess.run(
                ["pkill", "-9", "-P", str(service.processes["api"].pid), "-f", "workers.local"],
                check=False,
            )
            submitted = [scene.analyst.submit(job(scene.dataset, 0.01))["id"] for _ in range(3)]
            for job_id in submitted:
                assert scene.analyst.wait(job_id)["state"] == "succeeded"
        assert "Exception in thread" not in service.log.read_text()


@pytest.mark.parametrize("engine", ENGINES)
def test_database_folder_and_master_key_belong_together(engine, tmp_path):
    kind = "sqlite" if engine == "embedded" else "postgresql"
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with (
        fresh_database(kind, tmp_path / "one") as url,
        fresh_database(kind, tmp_path / "two") as other,
    ):
        first = Service("embedded", tmp_path / "one", url)
        check_identity(first.db, first.settings)
        check_identity(first.db, first.settings)
        wrong_key = Service("embedded", tmp_path / "one", url, master_key="11" * 32)
        with pytest.raises(WrongIdentityError, match="MASTER_KEY"):
            check_identity(wrong_key.db, wrong_key.settings)
        second = Service("embedded", tmp_path / "two", other)
        check_identity(second.db, second.settings)
        swapped = Database(url)
        with pytest.raises(WrongIdentityError):
            check_identity(swapped, second.settings)
        assert "another EPSILOND_MASTER_KEY" in epsilond(
            "worker", env=wrong_key.environment, code=1
        )
        for database in (first.db, wrong_key.db, second.db, swapped):
            database.dispose()


def test_the_id_of_the_present_does_not_tell_whether_others_are_busy(service):
    """Nor does an event's own id help to forge others."""
    scene, other = service.scene(), service.scene()

    def present():
        headers = {"Authorization": f"Bearer {scene.analyst.key}"}
        with httpx.stream("GET", f"{service.url}/v1/events", headers=headers) as response:
            return next(line[4:] for line in response.iter_lines() if line.startswith("id: "))

    quiet = {present() for _ in range(3)}
    other.analyst.wait(other.analyst.submit(job(other.dataset))["id"])
    assert len(quiet | {present()}) == 4
    for forged in (secrets.token_hex(16), present()[:-2] + "00", present() * 2):
        headers = {"Authorization": f"Bearer {scene.analyst.key}", "Last-Event-ID": forged}
        response = httpx.get(f"{service.url}/v1/events", headers=headers)
        assert response.status_code == 422


def test_a_revoked_session_hears_nothing_that_happens_afterwards(service):
    """Not even within the second after which an idle stream is closed."""
    scene = service.scene()
    for _ in range(3):
        extra = scene.analyst.add_key()
        with httpx.stream(
            "GET",
            f"{service.url}/v1/events",
            headers={"Authorization": f"Bearer {extra['key']}"},
            timeout=60,
        ) as response:
            lines = response.iter_lines()
            assert next(lines).startswith("retry:")
            scene.analyst.revoke_key(extra["id"])
            later = scene.owner.submit(job(scene.dataset, 0.01))["id"]
            assert all("event:" not in line for line in lines)
        scene.owner.wait(later)


def test_whatever_belongs_to_a_caller_is_kept_by_nobody_in_between(service):
    scene, other = service.scene(), service.scene()
    mine = {"Authorization": f"Bearer {scene.analyst.key}"}
    for path, status in (
        (f"/v1/datasets/{scene.dataset}", 200),
        (f"/v1/datasets/{scene.dataset}/ledger.csv", 200),
        (f"/v1/datasets/{other.dataset}", 404),
        ("/v1/me", 200),
    ):
        answer = httpx.get(f"{service.url}{path}", headers=mine)
        assert answer.status_code == status
        assert answer.headers["cache-control"] == "private, no-cache"
        assert answer.headers["vary"] == "Authorization, Cookie"
        assert answer.headers["x-content-type-options"] == "nosniff"
    tag = httpx.get(f"{service.url}/v1/me", headers=mine).headers["etag"]
    theirs = {"Authorization": f"Bearer {other.analyst.key}", "If-None-Match": tag}
    answer = httpx.get(f"{service.url}/v1/me", headers=theirs)
    assert answer.status_code == 200 and answer.json()["id"] == other.analyst.id
    foreign = httpx.get(
        f"{service.url}/v1/datasets/{scene.dataset}", headers=theirs | {"If-None-Match": "*"}
    )
    assert foreign.status_code == 404


@pytest.mark.parametrize("sign", [*"=+-@", "＝"])
def test_a_reason_is_no_formula_in_a_spreadsheet(service, sign):
    scene = service.scene()
    scene.owner.freeze(scene.dataset, f'{sign}HYPERLINK("https://evil.example","x")')
    answer = httpx.get(
        f"{service.url}/v1/datasets/{scene.dataset}/ledger.csv",
        headers={"Authorization": f"Bearer {scene.owner.key}"},
    )
    cells = [cell for row in csv.reader(io.StringIO(answer.text)) for cell in row]
    assert f'\'{sign}HYPERLINK("https://evil.example","x")' in cells
    assert not any(cell[:1] in set("=+-@＝") for cell in cells if cell)
