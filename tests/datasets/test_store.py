"""Folders appear and disappear whole; an upload is somebody's as long as they live."""

import os
import stat
import subprocess
import sys

import numpy as np
import pytest

from service.datasets import store


@pytest.mark.parametrize("bad", ["", "..", "a/b", "A", "a-b", "a.partial", "a\n", "ä"])
def test_an_id_that_could_leave_the_folder_is_refused(bad, tmp_path):
    with pytest.raises(ValueError, match="dataset id"):
        store.dataset_folder(tmp_path, bad)


def test_a_dataset_lies_under_its_id(tmp_path):
    assert store.dataset_folder(tmp_path, "ds_1") == tmp_path / "datasets" / "ds_1"


def test_incoming_files_are_private_and_distinct(tmp_path):
    with store.new_incoming(tmp_path, "ds_1") as first, store.new_incoming(tmp_path, "ds_1") as two:
        assert first.name != two.name
        assert stat.S_IMODE(os.fstat(first.fileno()).st_mode) == 0o600


def build(folder):
    with store.building(folder) as partial:
        np.save(partial / "x.npy", np.ones((2, 3), np.int16))
        np.save(partial / "y.npy", np.ones(2))


def test_arrays_are_opened_read_only_and_deleted_once(tmp_path):
    folder = tmp_path / "ds"
    build(folder)
    x, y = store.open_arrays(folder)
    assert isinstance(x, np.memmap)
    assert (x.shape, y.shape) == ((2, 3), (2,))
    with pytest.raises(ValueError, match="read-only"):
        x[0, 0] = 1
    store.delete_data(folder)
    store.delete_data(folder)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_build_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), store.building(tmp_path / "ds") as partial:
        (partial / "x.npy").touch()
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def is_abandoned(tmp_path, name):
    with store.abandoned(tmp_path, name) as nobodys:
        return nobodys


def test_an_upload_is_abandoned_when_the_last_process_that_holds_it_has_ended(tmp_path):
    file = store.new_incoming(tmp_path, "ds_1")
    (name,) = store.uploaded_names(tmp_path)
    assert not is_abandoned(tmp_path, name)
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(file.fileno(),)
    )
    file.close()
    assert not is_abandoned(tmp_path, name)
    child.kill()
    child.wait()
    child.stdin.close()
    assert is_abandoned(tmp_path, name)


def test_what_is_left_of_an_upload_goes_whole(tmp_path):
    datasets = tmp_path / "datasets"
    datasets.mkdir()
    build(datasets / "whole")
    for name in ("ds_1", "ds_2"):
        store.new_incoming(tmp_path, name).close()
    first, second = sorted(store.uploaded_names(tmp_path) - {"whole"})
    (datasets / f"{first}.partial").mkdir()
    (datasets / f"{first}.partial" / "x.npy").touch()
    build(datasets / second)
    assert store.uploaded_names(tmp_path) == {"whole", first, second}
    for name in (first, second, "never there"):
        store.remove_upload(tmp_path, name)
    assert store.uploaded_names(tmp_path) == {"whole"}
    assert [path.name for path in datasets.iterdir()] == ["whole"]


def test_an_upload_that_is_over_leaves_no_file(tmp_path):
    store.forget_incoming(store.new_incoming(tmp_path, "ds_1"))
    assert store.uploaded_names(tmp_path) == set()
