"""Where a dataset's arrays live on disk, and how they get there and away without half-states.

    <data>/datasets/<id>/x.npy          encoded rows [n, d], int16 or float64, C order
    <data>/datasets/<id>/y.npy          labels [n], float64
    <data>/datasets/<id>/report.json    what ingestion did to the rows, for the owner alone
    <data>/datasets/<id>.partial/       being written or being deleted; never read
    <data>/incoming/<id>                an upload on its way to becoming datasets/<id>

A dataset's folder appears and disappears by one rename, so whoever sees it sees all of it.

The file in incoming/ is there from an upload's first byte until the database knows its end, and is
locked (flock) by the process that receives it and by the child that ingests it. The kernel gives the
lock up when the last of them ends, however it ends: what nobody has locked, nobody will finish.
"""

import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

PARTIAL = ".partial"
REPORT = "report.json"
WINDOW_BYTES = 64 << 20
_ID = re.compile(r"[a-z0-9_]+")


def dataset_folder(data: Path, dataset_id: str) -> Path:
    """The folder of a dataset; the id is checked so that it can name nothing outside `data`."""
    if not _ID.fullmatch(dataset_id):  # fullmatch: "$" would let a trailing newline through
        raise ValueError("a dataset id consists of a-z, 0-9 and _")
    return data / "datasets" / dataset_id


def partial_folder(folder: Path) -> Path:
    return folder.with_name(folder.name + PARTIAL)


def new_incoming(data: Path, dataset_id: str) -> IO[bytes]:
    """An empty, private, locked file for the bytes of an upload; its name is that of the folder that
    they shall become."""
    folder = data / "incoming"
    folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    while True:
        path = folder / f"{dataset_id}_{secrets.token_hex(8)}"
        file = open(path, "xb", opener=_private)  # noqa: SIM115 - it outlives this function
        if _lock(file) and os.fstat(file.fileno()).st_nlink:
            return file
        file.close()  # a sweep came between its making and its locking


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def forget_incoming(file: IO[bytes]) -> None:
    """The upload is over: first the name goes, then the lock."""
    Path(file.name).unlink(missing_ok=True)
    with suppress(OSError):  # bytes that were never written, and nobody wants
        file.close()


def _lock(file: IO[bytes]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def open_arrays(folder: Path) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """(x, y): x [n, d] and y [n], mapped read-only."""
    x = np.load(folder / "x.npy", mmap_mode="r", allow_pickle=False)
    y = np.load(folder / "y.npy", mmap_mode="r", allow_pickle=False)
    return x, y


def only(array: NDArray[Any], rows: range) -> NDArray[Any]:
    """An array of these rows alone: of a mapped file, a map that no other row is in."""
    if not isinstance(array, np.memmap) or array.filename is None:
        return array[rows.start : rows.stop]
    offset = int(array.offset) + rows.start * (array.nbytes // len(array))
    shape = (len(rows), *array.shape[1:])
    return np.memmap(array.filename, array.dtype, "r", offset, shape)


def delete_data(folder: Path) -> None:
    """Delete a dataset's arrays; nothing happens if they are already gone.

    The rename comes first: a crash halfway leaves a .partial folder to sweep, not a dataset with one
    of its files missing.
    """
    doomed = partial_folder(folder)
    try:
        folder.rename(doomed)
    except FileNotFoundError:
        return
    fsync_path(folder.parent)
    _remove(doomed)


def uploaded_names(data: Path) -> set[str]:
    """Of all uploads: those on their way, those that became datasets, and what is left of others."""
    entries = [*(data / "incoming").glob("*"), *(data / "datasets").glob("*")]
    return {path.name.removesuffix(PARTIAL) for path in entries}


@contextmanager
def abandoned(data: Path, name: str) -> Iterator[bool]:
    """Whether no living process is at this upload; while asked, none can be."""
    try:
        file = (data / "incoming" / name).open("rb")
    except FileNotFoundError:
        yield True
        return
    with file:
        yield _lock(file)


def remove_upload(data: Path, name: str) -> None:
    """Everything of an upload that came to nothing; its lock goes last."""
    folder = data / "datasets" / name
    for path in (folder, partial_folder(folder), data / "incoming" / name):
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a file or folder, also if another process is removing it."""
    try:
        path.unlink()
    except FileNotFoundError:
        return
    except OSError:  # a folder: EISDIR, or EPERM on macOS
        with suppress(FileNotFoundError):
            shutil.rmtree(path)


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
        _write_header(out, dtype, (n, width))
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


def write_labels(target: Path, labels: NDArray[np.float64]) -> None:
    """As np.save does, whose errors do not say that a disk is full."""
    with target.open("wb") as out:
        _write_header(out, labels.dtype, labels.shape)
        out.write(labels.data)


def _write_header(out: IO[bytes], dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    descr = np.lib.format.dtype_to_descr(dtype)
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(out, header)
