"""NumPy's archive: one 1-D array per column; or X [n, columns] in the schema's order, and y [n]."""

import errno
import zipfile
from collections.abc import Iterator
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from service.datasets.read import (
    Block,
    Format,
    IngestLimitError,
    ParseError,
    block_rows,
    check_names,
)
from service.datasets.schema import Schema


def read(raw: IO[bytes], schema: Schema, memory_bytes: int) -> Iterator[Block]:
    """The whole archive is unpacked in memory, then cut into blocks."""
    arrays = _arrays(raw, memory_bytes)
    if arrays.keys() == {"X", "y"} and arrays["X"].ndim == 2:
        X, names = arrays["X"], [column.name for column in schema.columns]
        if X.dtype.kind not in "biuf" or X.shape[1] != len(names):
            raise ParseError(None, "X", f"X must be numeric with {len(names)} columns")
        columns = {name: X[:, j] for j, name in enumerate(names)} | {schema.label.name: arrays["y"]}
    else:
        columns = arrays
    check_names(list(columns), schema)
    n = len(next(iter(columns.values())))
    for name, values in columns.items():
        if values.dtype.kind not in "biufU":
            raise ParseError(None, name, "arrays hold numbers, booleans or strings")
        if values.shape != (n,):
            raise ParseError(None, name, "arrays are 1-D and of equal length")
    size = block_rows(schema, len(columns))
    return ({k: v[a : a + size] for k, v in columns.items()} for a in range(0, n, size))


def _arrays(raw: IO[bytes], memory_bytes: int) -> dict[str, NDArray[Any]]:
    """All arrays of the archive, refused by its directory if unpacking them would be too much.

    A directory that lies gains nothing: zipfile reads no further than the size it states.
    """
    name = None
    try:
        directory = zipfile.ZipFile(raw).infolist()
        if sum(member.file_size for member in directory) > memory_bytes:
            raise IngestLimitError("memory")
        members = [member.filename for member in directory]
        if len(set(members)) != len(members) or not all(m.endswith(".npy") for m in members):
            raise ParseError(None, None, "an npz file holds distinct .npy members only")
        raw.seek(0)
        arrays = {}
        with np.load(raw, allow_pickle=False) as archive:
            for name in archive.files:
                arrays[name.strip()] = archive[name]
                if arrays[name.strip()].ndim == 0:
                    raise ParseError(None, name, "arrays are 1-D and of equal length")
        return arrays
    except (ParseError, IngestLimitError, MemoryError):
        raise
    except Exception as error:  # zipfile, four decompressors and NumPy raise what they like
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # the disk's fault, not the file's
        raise ParseError(None, name, "not a readable npz of plain arrays (no objects)") from None


FORMAT = Format(
    name="npz",
    summary="NPZ with one array per column, or with X and y",
    media_types=("application/x-npz", "application/zip"),
    suffixes=(".npz",),
    read=read,
)
