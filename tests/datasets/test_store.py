"""Folders appear and disappear whole; leftovers are swept by age."""

import os
import stat
import time

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
    first, second = store.new_incoming(tmp_path), store.new_incoming(tmp_path)
    assert first != second
    assert stat.S_IMODE(first.stat().st_mode) == 0o600


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


def test_the_sweep_takes_old_leftovers_and_nothing_else(tmp_path):
    datasets = tmp_path / "datasets"
    datasets.mkdir()
    build(datasets / "whole")
    (datasets / "old.partial").mkdir()
    (datasets / "old.partial" / "x.npy").touch()
    (datasets / "new.partial").mkdir()
    old, new = store.new_incoming(tmp_path), store.new_incoming(tmp_path)
    for path in (old, datasets / "old.partial", datasets / "whole"):
        os.utime(path, (time.time() - 7200,) * 2)
    assert store.sweep(tmp_path, older_than_seconds=3600) == 2
    assert {path.name for path in datasets.iterdir()} == {"whole", "new.partial"}
    assert (old.exists(), new.exists()) == (False, True)


def test_sweeping_an_empty_data_folder_is_fine(tmp_path):
    assert store.sweep(tmp_path, older_than_seconds=0) == 0
