"""What killed uploads leave behind is swept as soon as nobody can own it, and never before."""

import os
import signal
import socket
import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import pytest
from sqlalchemy import event, select
from sqlalchemy.exc import NoResultFound

from epsilond import ApiError
from service.config import Settings
from service.datasets.formats import BY_NAME
from service.datasets.schema import Schema
from service.datasets.store import dataset_folder, new_incoming, uploaded_names
from service.datasets.upload import finish_upload, sweep_unused
from service.db import Database
from service.tables import datasets
from tests.harness import Service, fresh_database, numbers, numeric_schema, until
from tests.proxy import Proxy


@pytest.fixture
def pair(tmp_path):
    """Two API processes on one database and one data folder."""
    with fresh_database("postgresql", tmp_path) as url:
        service = Service("celery", tmp_path, url)
        try:
            service.start(workers=False)
            service.first = service.port
            service.processes["other"] = service.processes.pop("api")
            yield service.start(workers=False)
        finally:
            service.stop()


def test_an_upload_into_a_dataset_that_was_deleted_meanwhile_leaves_nothing(db, tmp_path):
    settings = Settings(data_dir=tmp_path, database_url=db.url)
    schema = Schema.model_validate(numeric_schema(1))
    dataset = SimpleNamespace(id="ds_1", state="empty", schema=schema.model_dump_json())
    file = new_incoming(tmp_path, dataset.id)
    file.write(b"x0,y\n1,1\n0,0\n")
    file.flush()
    with pytest.raises(NoResultFound):  # which the API answers 404
        finish_upload(db, settings, dataset, file, BY_NAME["csv"])
    assert uploaded_names(tmp_path) == set()


def half_an_upload(service, owner, dataset, port):
    """The head of a request and a part of its body; the rest never comes."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(
        f"PUT /v1/datasets/{dataset}/data HTTP/1.1\r\nHost: here\r\nContent-Type: text/csv\r\n"
        f"Authorization: Bearer {owner.key}\r\nContent-Length: 1000000\r\n\r\nx0,x1".encode()
    )
    until(lambda: uploaded_names(service.settings.data_dir), "the upload's begin")
    return connection


def test_a_killed_upload_is_swept_by_another_process_and_a_living_one_is_not(pair):
    owner = pair.person("owner")
    dataset = owner.declare_dataset("numbers", numeric_schema())["id"]
    data = pair.settings.data_dir
    with half_an_upload(pair, owner, dataset, pair.port):
        (name,) = uploaded_names(data)
        sweep_unused(pair.db, pair.settings)
        assert uploaded_names(data) == {name}
        pair.kill("api")
        until(lambda: not uploaded_names(data), "the sweep")
    pair.url = f"http://127.0.0.1:{pair.first}"
    again = pair.client(owner.key)
    ready = again.upload(dataset, numbers(pair.folder, 100, 4))
    assert ready["state"] == "ready"
    sweep_unused(pair.db, pair.settings)
    assert dataset_folder(data, pair.fact("SELECT folder FROM datasets")).is_dir()


def test_data_whose_deletion_was_interrupted_is_swept(service):
    scene = service.scene()
    folder = dataset_folder(
        service.settings.data_dir,
        service.fact(f"SELECT folder FROM datasets WHERE id = '{scene.dataset}'"),
    )
    sweep_unused(service.db, service.settings)
    assert folder.is_dir()
    with service.db.write() as connection:
        connection.execute(
            datasets.update().where(datasets.c.id == scene.dataset).values(state="deleted")
        )
    sweep_unused(service.db, service.settings)
    assert not folder.exists()


def test_an_upload_whose_commit_got_no_answer_keeps_its_folder(tmp_path):
    """The server commits what it was sent, also after the client has given up waiting."""
    with fresh_database("postgresql", tmp_path) as url, Proxy(url) as proxy:
        service = Service("celery", tmp_path, url)
        try:
            owner = service.start(workers=False).person("owner")
            dataset = owner.declare_dataset("numbers", numeric_schema())["id"]
            with service.db.read() as connection:
                row = connection.execute(select(datasets)).one()
            file = new_incoming(service.settings.data_dir, dataset)
            file.write(numbers(tmp_path, 100, 4).read_bytes())
            file.flush()
            db = Database(proxy.url, pool_size=1, patience=1)
            event.listen(db.engine, "commit", lambda connection: proxy.hang())
            with pytest.raises(Exception, match="silent"):
                finish_upload(db, service.settings, row, file, BY_NAME["npz"])
            db.dispose()
            proxy.heal()
            until(partial(is_ready, service), "the commit that was on its way")
            sweep_unused(service.db, service.settings)
            folder = dataset_folder(
                service.settings.data_dir, service.fact("SELECT folder FROM datasets")
            )
            assert (folder / "x.npy").is_file()
        finally:
            service.stop()


def ingestions(service):
    """The processes that read files for this service's API."""
    parent = service.processes["api"].pid
    command = ["pgrep", "-P", str(parent), "-f", "service.datasets.ingest"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_whoever_kills_an_ingestion_says_nothing_about_the_file(number, service):
    """The kernel does, where memory runs out; the same upload works afterwards."""
    owner = service.person("owner")
    dataset = owner.declare_dataset("numbers", numeric_schema())["id"]
    file = numbers(service.folder, 500, 4)
    with ThreadPoolExecutor(1) as pool:
        uploading = pool.submit(owner.upload, dataset, file)
        for pid in until(lambda: ingestions(service), "the ingestion"):
            os.kill(pid, number)
        with pytest.raises(ApiError, match="was ended from outside") as refused:
            uploading.result()
    assert (refused.value.status, refused.value.code) == (503, "unavailable")
    assert owner.dataset(dataset)["state"] == "empty"
    assert not [n for n in uploaded_names(service.settings.data_dir) if n.startswith(dataset)]
    assert owner.upload(dataset, file)["state"] == "ready"


def is_ready(service):
    return service.fact("SELECT state FROM datasets") == "ready"
