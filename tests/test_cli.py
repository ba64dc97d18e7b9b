"""The command line covers the nouns of the API, and checks the ledger."""

import json
import os
import subprocess
import sys

import pytest
from sqlalchemy import update

from epsilond import ApiError, Model
from epsilond.export import write
from service.planning.catalog import CATALOG
from service.tables import accounts
from tests.harness import free_port, job, numbers, numeric_schema


def epsilond(*arguments, env=None, stdin=None, code=0):
    done = subprocess.run(
        [sys.executable, "-c", "from service.cli import main; main()", *arguments],
        env=os.environ | (env or {}),
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_the_catalog_is_printed_without_a_service():
    cards = json.loads(epsilond("algorithms", "--json"))
    assert {card["name"] for card in cards} == set(CATALOG)
    assert all(card["paper"] and card["theorem"] and card["cost"] for card in cards)
    assert "clipped-sgd" in epsilond("algorithms")


def test_a_whole_job_from_the_command_line(service, tmp_path):
    owner = service.person("owner")
    env = {"EPSILOND_URL": service.url, "EPSILOND_KEY": owner.key}

    def ask(*arguments, **kwargs):
        text = epsilond(*arguments, env=env, **kwargs)
        return json.loads(text) if text.strip() else None

    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(numeric_schema()))
    data = numbers(tmp_path, 500, 4)
    dataset = ask("datasets", "upload", "rows", str(schema), str(data))["id"]
    report = {"rows": 500, "rows_clipped": 0, "columns": []}
    assert ask("datasets", "report", dataset) == report
    assert ask("budget", "set", dataset, "1.0", "1e-6")["epsilon"] == 1.0
    spec = json.dumps(job(dataset, 0.2))
    assert ask("quote", "-", stdin=spec)["fits"]
    assert ask("quotes", "show", "-", stdin=spec)["fits"]
    compared = ask("quotes", "compare", "-", stdin=spec)
    assert {row["algorithm"] for row in compared if row["refusal"] is None} >= {"gradient-descent"}
    done = ask("jobs", "submit", "-", "--wait", stdin=spec)
    followed = epsilond("jobs", "follow", done["id"], env=env).splitlines()
    assert followed == [
        f"succeeded {done['progress']['steps_done']}/{done['progress']['steps_total']}"
    ]
    assert done["state"] == "succeeded"
    card = ask("jobs", "model", done["id"])
    assert len(card["coef_"]) == 4
    kept = tmp_path / "card.json"
    kept.write_text(json.dumps(card))
    for source in (done["id"], str(kept)):
        taken = tmp_path / "model.onnx"
        said = epsilond(
            "model", "export", source, "--format", "onnx", "--output", str(taken), env=env
        )
        assert said.strip() == str(taken) and taken.read_bytes() == write(Model(card), "onnx")
    assert "--format is one of onnx, sql" in epsilond(
        "model", "export", str(kept), "--format", "pickle", code=2
    )
    assert [e["kind"] for e in ask("ledger", "list", dataset)] == ["open", "reserve", "post"]
    chain = tmp_path / "chain.json"
    chain.write_text(epsilond("chain", dataset, env=env))
    key = epsilond("public-key", env=env).strip()
    assert "1 records verify" in epsilond("verify", str(chain), "--public-key", key)
    wrong = epsilond("verify", str(chain), "--public-key", key, "--head", "0" * 64, code=1)
    assert "does not contain the head" in wrong
    refused = json.loads(epsilond("jobs", "show", "job_0", env=env, code=1))
    assert refused["code"] == "not_found"


def test_a_dry_run_reports_and_stores_nothing_and_a_share_refuses(service, tmp_path):
    owner = service.person("owner")
    env = {"EPSILOND_URL": service.url, "EPSILOND_KEY": owner.key}
    schema, rows = tmp_path / "schema.json", tmp_path / "rows.csv"
    schema.write_text(json.dumps(numeric_schema(1)))
    rows.write_text("x0,y\n0.5,1\n7,0\n8,1\n0,0\n")
    upload = ("datasets", "upload", "rows", str(schema), str(rows))
    tried = json.loads(epsilond(*upload, "--dry-run", env=env))
    assert tried["state"] == "empty" and tried["rows"] is None
    assert [c["clipped"] for c in tried["report"]["columns"]] == [2]
    assert not list((service.folder / "data" / "datasets").glob(f"{tried['id']}*"))
    assert owner.datasets() == []
    refused = epsilond(*upload, "--refuse-above", "0.4", env=env, code=1)
    assert "column 'x0': 2 of 4 cells are clipped" in refused
    (left,) = owner.datasets()  # empty: the next upload of that name takes it up
    schema.write_text(json.dumps(numeric_schema(1, kind="unbounded")))
    other = epsilond(*upload, env=env, code=1)
    assert f"epsilond datasets delete {left['id']}" in other and other.count("\n") == 1
    schema.write_text(json.dumps(numeric_schema(1)))
    stored = json.loads(epsilond(*upload, "--refuse-above", "0.5", env=env))
    assert stored["state"] == "ready" and stored["report"] == tried["report"]
    assert stored["id"] == left["id"]
    assert "name_taken" in epsilond(*upload, env=env, code=1)
    assert owner.report(stored["id"]) == stored["report"]
    owner.delete_data(stored["id"])
    with pytest.raises(ApiError, match="dataset_not_ready"):
        owner.report(stored["id"])


def test_ledger_check_says_which_balance_is_wrong(service):
    scene = service.scene()
    assert "every balance follows" in epsilond("ledger", "check", env=service.environment)
    account = scene.owner.budget(scene.dataset)["account"]
    wrong = update(accounts).where(accounts.c.id == account)
    with service.db.write() as connection:
        connection.execute(wrong.values(pending_units=1))
    assert account in epsilond("ledger", "check", env=service.environment, code=1)
    with service.db.write() as connection:
        connection.execute(wrong.values(pending_units=0))


def test_a_taken_port_is_named(tmp_path):
    import socket  # noqa: PLC0415 - only here

    with socket.socket() as taken:
        port = free_port()
        taken.bind(("127.0.0.1", port))
        taken.listen()
        env = {"EPSILOND_DATABASE_URL": f"sqlite:///{tmp_path}/e.db"}
        says = epsilond("serve", "--data", str(tmp_path), "--port", str(port), env=env, code=1)
    assert f"127.0.0.1:{port} cannot be used" in says


@pytest.mark.parametrize("value", ["", "abc", "00" * 31])
def test_a_malformed_secret_stops_the_service_before_it_serves(tmp_path, value):
    env = {"EPSILOND_MASTER_KEY": value, "EPSILOND_DATA_DIR": str(tmp_path)}
    port = str(free_port())
    assert "EPSILOND_MASTER_KEY must hold 64" in epsilond("api", "--port", port, env=env, code=2)
