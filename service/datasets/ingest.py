"""Turn an owner's file into encoded arrays, in a process of its own.

    run_ingest ─► python -m service.datasets.ingest ─► limits ─► read ─► encode ─► shuffle ─► rename

A file is hostile until proven otherwise: it may be a zip bomb, or crash a parser. The child gets
the file's path, the public schema and two keys on stdin, lowers its own limits (CPU, address space,
file size) before it opens the file, and answers with one JSON object of public facts. Its
environment is emptied, its stderr discarded (a traceback may quote cells), and the folder it wrote
is removed unless it reports success.

Failures are a closed list: ParseError (the owner's to mend), IngestLimitError, DiskFullError (the
operator's to mend), IngestKilledError (nobody's: try again), IngestCrashed.
"""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import field
from math import ceil
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

from service.datasets import encode, store
from service.datasets.cells import Floats
from service.datasets.content import ContentMac
from service.datasets.formats import BY_NAME
from service.datasets.read import IngestLimitError, ParseError
from service.datasets.report import Report, Tally
from service.datasets.schema import Schema

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
_HEX_KEY = Field(pattern=r"^[0-9a-f]{64}$", repr=False)


class IngestCrashed(Exception):  # noqa: N818  # it states what happened to the child
    """The child ended without an answer: an uncaught exception, or a signal."""

    def __init__(self, cause: Literal["exception", "signal"]) -> None:
        super().__init__(f"the process that reads the file ended by an uncaught {cause}")
        self.cause = cause


class IngestKilledError(Exception):
    """Somebody ended the child: an operator, or the kernel of a machine without memory."""


class DiskFullError(Exception):
    """There is no space, or no quota left, for the arrays."""


def _known_format(name: str) -> str:
    if name not in BY_NAME:
        raise ValueError(f"a format is one of: {', '.join(BY_NAME)}")
    return name


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class IngestRequest:
    """What to read, how, into which folder (which must not exist), and at what expense."""

    source: Path
    format: Annotated[str, AfterValidator(_known_format)]
    schema: Schema
    out_dir: Path
    content_key: str = _HEX_KEY
    shuffle_key: str = _HEX_KEY
    max_rows: int = Field(gt=0)
    cpu_seconds: int = Field(gt=0)
    memory_bytes: int = Field(gt=0)
    disk_bytes: int = Field(default=64 << 30, gt=0)
    """The most bytes in one written file: a short file under a wide schema can fill a disk."""
    refuse_above: float | None = Field(default=None, ge=0, le=1)
    """The largest share of a column's cells, or of rows, that may be clipped, filled or unknown."""


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class IngestResult:
    """Facts about the stored arrays; the three scales are None for float64 storage, and the number of
    classes, which is the schema's, for a label that has none."""

    rows: int
    held_out: int  # of these, the last ones
    columns: int
    storage: Literal["fixed", "float64"]
    feature_step: float | None
    l2_units: int | None
    linf_units: int | None
    label_kind: Literal["binary", "numeric", "unbounded", "categorical"]
    classes: int | None
    content_mac: str = field(repr=False)
    earlier_mac: str = field(repr=False)
    report: Report = field(repr=False)


_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_OUT_OF_MEMORY = 77
_REQUEST = TypeAdapter(IngestRequest)
_RESULT = TypeAdapter(IngestResult)


def secret_order(key: bytes, n: int) -> NDArray[np.int64]:
    """The permutation that sorts n 64-bit words of AES-256-CTR.

    It makes contiguous ranges of rows arbitrary parts of the data, whatever order the file had.
    No privacy guarantee rests on it: every sensitivity holds for the worst order.
    """
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    words = np.frombuffer(stream.update(bytes(8 * n)), dtype="<u8")
    return np.argsort(words, kind="stable")


def ingest(request: IngestRequest) -> IngestResult:
    """Read, encode, shuffle and store, in this process and without limits but max_rows."""
    schema, fixed = request.schema, request.schema.storage == "fixed"
    dtype: np.dtype[Any] = np.dtype("<i2" if fixed else "<f8")
    with request.source.open("rb") as raw, store.building(request.out_dir) as folder:
        blocks = BY_NAME[request.format].read(raw, schema, request.memory_bytes)
        mac = ContentMac(bytes.fromhex(request.content_key))
        labels: list[Floats] = []
        tally = Tally()
        unshuffled = folder / "x.rows"
        with unshuffled.open("wb") as out:
            for block in blocks:
                try:
                    y = encode.encode_label(schema, block[schema.label.name], tally)
                    X = encode.encode_features(schema, block, tally)
                except encode.EncodeError as refused:
                    row = None if refused.row is None else tally.rows + refused.row + 1
                    raise ParseError(row, refused.column, refused.reason) from None
                tally.rows += len(y)
                if tally.rows > request.max_rows:
                    raise IngestLimitError("rows")
                mac.add(block)
                labels.append(y)
                rows = encode.quantise(schema, X) if fixed else X
                out.write(rows.astype(dtype, copy=False).data)
        if (n := tally.rows) < 2:
            raise ParseError(None, None, f"{n} data rows; at least 2 are needed")
        held_out = _held_out(schema, n)
        report = tally.report()
        if request.refuse_above is not None and (found := report.beyond(request.refuse_above)):
            raise ParseError(None, *found)
        order = secret_order(bytes.fromhex(request.shuffle_key), n)
        store.write_gathered(folder / "x.npy", unshuffled, dtype, schema.width, order)
        unshuffled.unlink()
        store.write_labels(folder / "y.npy", np.concatenate(labels)[order])
        (folder / store.REPORT).write_text(report.model_dump_json())
    return IngestResult(
        rows=n,
        held_out=held_out,
        columns=schema.width,
        storage=schema.storage,
        feature_step=encode.feature_step(schema) if fixed else None,
        l2_units=encode.l2_units(schema) if fixed else None,
        linf_units=encode.LINF_UNITS if fixed else None,
        label_kind=schema.label.kind,
        classes=schema.classes,
        content_mac=mac.hexdigest(),
        earlier_mac=mac.earlier(),
        report=report,
    )


def _held_out(schema: Schema, n: int) -> int:
    """How many of n rows are held out: none if none shall be, else at least 1, and 2 are left."""
    held_out = schema.held_out(n)
    if schema.holdout > 0 and not 1 <= held_out <= n - 2:
        enough = max(4, ceil(1 / max(schema.holdout, 1e-9)))
        reason = (
            f"{n} data rows; of so few, a share of {schema.holdout:g} cannot be held out: declare the "
            f'dataset with "holdout": 0, or send at least {enough} rows'
        )
        raise ParseError(None, None, reason)
    return held_out


def run_ingest(request: IngestRequest, inherited: tuple[int, ...] = ()) -> IngestResult:
    """Ingest in a child process under the request's limits; on failure nothing stays on disk. The
    child holds the inherited descriptors, and their locks, as long as it lives."""
    partial = store.partial_folder(request.out_dir)
    if request.out_dir.exists() or partial.exists():
        raise FileExistsError(request.out_dir)
    try:
        return _result(_spawn(request, inherited))
    except BaseException:  # the child may have died before, within or after its own cleaning up
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(request.out_dir, ignore_errors=True)
        raise


def _spawn(
    request: IngestRequest, inherited: tuple[int, ...] = ()
) -> subprocess.CompletedProcess[bytes]:
    # None of the service's secrets, and no BLAS threads, whose stacks would count as memory.
    environment = {k: v for k, v in os.environ.items() if k in ("PATH", "PYTHONPATH")}
    try:
        return subprocess.run(
            [sys.executable, "-m", "service.datasets.ingest"],
            input=_REQUEST.dump_json(request),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment | {"OPENBLAS_NUM_THREADS": "1"},
            timeout=60 + 4 * request.cpu_seconds,
            pass_fds=inherited,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise IngestLimitError("time") from None


def _result(child: subprocess.CompletedProcess[bytes]) -> IngestResult:
    if child.returncode == -signal.SIGXCPU:
        raise IngestLimitError("cpu")
    if child.returncode == _OUT_OF_MEMORY:
        raise IngestLimitError("memory")
    if -child.returncode in _FROM_OUTSIDE:
        raise IngestKilledError
    if child.returncode != 0:
        raise IngestCrashed("signal" if child.returncode < 0 else "exception")
    answer = json.loads(child.stdout)
    if "parse" in answer:
        raise ParseError(*answer["parse"])
    if "limit" in answer:
        raise IngestLimitError(answer["limit"])
    if "full" in answer:
        raise DiskFullError
    return _RESULT.validate_python(answer["result"])


def main() -> None:
    """The child: a request on stdin, one JSON object on stdout."""
    request = _REQUEST.validate_json(sys.stdin.buffer.read())
    for limit, value in (
        (resource.RLIMIT_CPU, request.cpu_seconds),
        (resource.RLIMIT_AS, request.memory_bytes),
        (resource.RLIMIT_FSIZE, request.disk_bytes),
        (resource.RLIMIT_CORE, 0),  # a core dump would hold the data
    ):
        hard = resource.getrlimit(limit)[1]
        soft = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (soft, hard))
    try:
        answer: dict[str, Any] = {"result": _RESULT.dump_python(ingest(request))}
    except ParseError as refused:
        answer = {"parse": [refused.row, refused.column, refused.reason]}
    except IngestLimitError as refused:
        answer = {"limit": refused.limit}
    except MemoryError:
        sys.exit(_OUT_OF_MEMORY)  # an answer would need memory
    except OSError as failed:
        if failed.errno == errno.ENOMEM:
            sys.exit(_OUT_OF_MEMORY)
        if failed.errno not in (errno.EFBIG, *NO_SPACE):
            raise
        answer = {"limit": "disk"} if failed.errno == errno.EFBIG else {"full": "disk"}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
