"""A disk that fills is nobody's bad file: 507, nothing left behind, and the same file works later."""

import os
import shutil
from pathlib import Path

import httpx
import pytest

from tests.harness import numbers, numeric_schema, running

SITE = Path(__file__).parent.parent / "full_disk" / "sitecustomize.py"


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """A service whose disk is full where and while the test says so."""
    folder = tmp_path_factory.mktemp("full")
    shutil.copy(SITE, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.getcwd()}")
        with running("embedded", folder) as service:
            service.full = folder / "full"
            yield service


@pytest.mark.parametrize("where", ["incoming", "x.rows", "x.npy", "y.npy"])
def test_a_disk_that_fills_is_said_and_the_same_upload_works_when_there_is_space(where, full):
    owner = full.person("owner")
    dataset = owner.declare_dataset("numbers", numeric_schema())["id"]
    data = full.settings.data_dir
    before = {path for name in ("incoming", "datasets") for path in (data / name).glob("*")}
    file = numbers(full.folder, 500, 4)
    full.full.write_text(where)
    try:
        refusal = httpx.put(
            f"{full.url}/v1/datasets/{dataset}/data",
            content=file.read_bytes(),
            headers={
                "Authorization": f"Bearer {owner.key}",
                "Content-Type": "application/x-npz",
            },
            timeout=60,
        )
    finally:
        full.full.unlink()
    assert refusal.headers["content-type"] == "application/problem+json"
    assert (refusal.status_code, refusal.json()["code"]) == (507, "insufficient_storage")
    after = {path for name in ("incoming", "datasets") for path in (data / name).glob("*")}
    assert after == before
    assert owner.dataset(dataset)["state"] == "empty"
    assert owner.upload(dataset, file)["state"] == "ready"
