"""Where a dataset's arrays live on disk, and how they get there and away without half-states.

    <data>/datasets/<id>/x.npy          encoded rows [n, d], int16 or float64, C order
    <data>/datasets/<id>/y.npy          labels [n], float64
    <data>/datasets/<id>.partial/       being written or being deleted; never read
    <data>/incoming/<random>            an upload on its way to ingestion

A dataset's folder appears and disappears by one rename, so whoever sees it sees all of it.
What a crash leaves behind carries the suffix .partial or lies in incoming/, where `sweep` finds it.
"""

import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

PARTIAL = ".partial"
WINDOW_BYTES = 64 << 20
_ID = re.compile(r"[a-z0-9_]+")


def dataset_folder(data: Path, dataset_id: str) -> Path:
    """The folder of a dataset; the id is checked so that it can name nothing outside `data`."""
    if not _ID.fullmatch(dataset_id):  # fullmatch: "$" would let a trailing newline through
        raise ValueError("a dataset id consists of a-z, 0-9 and _")
    return data / "datasets" / dataset_id


def partial_folder(folder: Path) -> Path:
    return folder.with_name(folder.name + PARTIAL)


def new_incoming(data: Path) -> Path:
    """An empty, private file under a name nobody can guess, for the bytes of an upload."""
    folder = data / "incoming"
    folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    path = folder / secrets.token_hex(16)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    return path


def open_arrays(folder: Path) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """(x, y): x [n, d] and y [n], mapped read-only."""
    x = np.load(folder / "x.npy", mmap_mode="r", allow_pickle=False)
    y = np.load(folder / "y.npy", mmap_mode="r", allow_pickle=False)
    return x, y


def delete_data(folder: Path) -> None:
    """Delete a dataset's arrays; nothing happens if they are already gone.

    The rename comes first: a crash halfway leaves a .partial folder for `sweep`, not a dataset
    with one of its files missing.
    """
    doomed = partial_folder(folder)
    try:
        folder.rename(doomed)
    except FileNotFoundError:
        return
    fsync_path(folder.parent)
    shutil.rmtree(doomed)


def sweep(data: Path, older_than_seconds: float) -> int:
    """Remove what crashes left behind; returns how many entries went.

    Caller's duty: the age exceeds the longest upload and the longest ingestion, since those in
    progress look just like leftovers.
    """
    horizon = time.time() - older_than_seconds
    leftovers = [*(data / "incoming").glob("*"), *(data / "datasets").glob("*" + PARTIAL)]
    removed = 0
    for path in leftovers:
        try:
            if path.lstat().st_mtime > horizon:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        except FileNotFoundError:
            continue  # its owner finished or cleaned up in the meantime
        removed += 1
    return removed


def fsync_path(path: Path) -> None:
    """Make a file's bytes, or a folder's entries, survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def building(folder: Path) -> Iterator[Path]:
    """A .partial folder to write into; it becomes `folder` on success and vanishes on failure."""
    if folder.exists():
        raise FileExistsError(folder)
    partial = partial_folder(folder)
    partial.mkdir(mode=0o750)
    try:
        yield partial
        for path in partial.iterdir():
            path.chmod(0o440)
            fsync_path(path)
        partial.chmod(0o750)  # mkdir's mode is subject to the umask
        fsync_path(partial)
        partial.rename(folder)
    except BaseException:  # also on SystemExit: whatever the cause, nothing half-written stays
        shutil.rmtree(partial, ignore_errors=True)
        raise
    fsync_path(folder.parent)


def write_gathered(
    target: Path, rows: Path, dtype: np.dtype[Any], width: int, order: NDArray[np.int64]
) -> None:
    """Write target.npy [len(order), width], whose row i is row order[i] of the raw file `rows`.

    Memory stays at a few windows however large the file: for each window of the target, the rows
    it wants are visited front to back through windows of the source. Address space is what an
    ingestion is limited in, hence no map of the whole source.
    """
    n, row_bytes = len(order), width * dtype.itemsize
    window = max(1, WINDOW_BYTES // row_bytes)
    with target.open("wb") as out:
        header = {
            "descr": np.lib.format.dtype_to_descr(dtype),
            "fortran_order": False,
            "shape": (n, width),
        }
        np.lib.format.write_array_header_1_0(out, header)
        for start in range(0, n, window):
            wanted = order[start : start + window]
            visit = np.argsort(wanted)
            ascending = wanted[visit]
            block = np.empty((len(wanted), row_bytes), np.uint8)
            for low in range(0, n, window):
                a, b = np.searchsorted(ascending, (low, low + window))
                shape = (min(window, n - low), row_bytes)
                source = np.memmap(rows, np.uint8, "r", low * row_bytes, shape)
                block[visit[a:b]] = source[ascending[a:b] - low]
            out.write(block.data)
