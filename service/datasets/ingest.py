"""Turn an owner's file into encoded arrays, in a process of its own.

    run_ingest ─► python -m service.datasets.ingest ─► limits ─► read ─► encode ─► shuffle ─► rename

A file is hostile until proven otherwise: it may be a zip bomb, or crash a parser. The child gets
the file's path, the public schema and two keys on stdin, lowers its own limits (CPU, address space,
file size) before it opens the file, and answers with one JSON object of public facts. Its
environment is emptied, its stderr discarded (a traceback may quote cells), and the folder it wrote
is removed unless it reports success.

Failures are a closed list: ParseError (the owner's to mend), IngestLimitError, IngestCrashed.
"""

import csv
import errno
import hashlib
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

from service.datasets import encode, store
from service.datasets.schema import IgnoredColumn, Schema

BLOCK_ROWS = 8192
BLOCK_CELLS = 1 << 17
FIELD_CHARACTERS = 1 << 16

_STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
_HEX_KEY = Field(pattern=r"^[0-9a-f]{64}$", repr=False)

Block = Mapping[str, NDArray[Any]]
"""Some consecutive rows of a file, by column."""
Table = tuple[Mapping[str, str], Iterator[Block]]
"""The name that the file itself gives to each column, and its rows."""


class ParseError(Exception):
    """The file does not fit the schema. For the owner alone: it quotes the data.

    `row` counts data rows from 1; row and column are None where the whole file is meant.
    """

    def __init__(self, row: int | None, column: str | None, reason: str) -> None:
        super().__init__(row, column, reason)
        self.row, self.column, self.reason = row, column, reason


class IngestLimitError(Exception):
    """The file needs more than it was granted of `limit`."""

    def __init__(self, limit: Literal["rows", "cpu", "memory", "disk", "time"]) -> None:
        super().__init__(limit)
        self.limit = limit


class IngestCrashed(Exception):  # noqa: N818  # it states what happened to the child
    """The child ended without an answer: an uncaught exception, or a signal."""

    def __init__(self, cause: Literal["exception", "signal"]) -> None:
        super().__init__(cause)
        self.cause = cause


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class IngestRequest:
    """What to read, how, into which folder (which must not exist), and at what expense."""

    source: Path
    format: Literal["csv", "npz"]
    schema: Schema
    out_dir: Path
    content_key: str = _HEX_KEY
    shuffle_key: str = _HEX_KEY
    max_rows: int = Field(gt=0)
    cpu_seconds: int = Field(gt=0)
    memory_bytes: int = Field(gt=0)
    disk_bytes: int = Field(default=64 << 30, gt=0)
    """The most bytes in one written file: a short CSV under a wide schema can fill a disk."""


@dataclass(frozen=True, kw_only=True, config=_STRICT)
class IngestResult:
    """Facts about the stored arrays; the three scales are None for float64 storage."""

    rows: int
    columns: int
    storage: Literal["fixed", "float64"]
    feature_step: float | None
    l2_units: int | None
    linf_units: int | None
    label_kind: Literal["binary", "numeric"]
    content_mac: str = field(repr=False)


_COMPARED_AS_TEXT = ("categorical", "binary")
_UNREADABLE = (
    ValueError,  # object arrays, malformed headers
    SyntaxError,
    TypeError,
    EOFError,
    KeyError,
    NotImplementedError,  # an unknown compression method
    RuntimeError,  # an encrypted member
    zipfile.BadZipFile,
    zlib.error,
)
_OUT_OF_MEMORY = 77
_REQUEST = TypeAdapter(IngestRequest)
_RESULT = TypeAdapter(IngestResult)


# --- reading -------------------------------------------------------------------------------------


def read_csv(raw: IO[bytes], request: IngestRequest) -> Table:
    """UTF-8 with a header; one block of rows in memory at a time; blank lines do not count."""
    schema = request.schema
    csv.field_size_limit(FIELD_CHARACTERS)
    text = io.TextIOWrapper(raw, "utf-8-sig", newline="")
    reader = csv.reader(text, strict=True)
    header = [name.strip() for row in _csv_rows(reader, 1) for name in row]
    _check_names(header, schema)
    # Where text is compared, "03" is not "3"; all other columns are parsed once, here, for both
    # the encoding and the MAC.
    textual = {c.name for c in (*schema.columns, schema.label) if c.kind in _COMPARED_AS_TEXT}

    def column(name: str, cells: Sequence[str]) -> NDArray[Any]:
        numbers = None if name in textual else encode.parse_numbers(cells)
        return np.array(cells, dtype=object) if numbers is None else numbers

    def blocks() -> Iterator[Block]:
        seen, width = 0, len(header)
        with text:
            while lines := _csv_rows(reader, _block_rows(schema, width)):
                rows = [row for row in lines if row]
                if set(map(len, rows)) - {width}:
                    i = next(i for i, row in enumerate(rows) if len(row) != width)
                    reason = f"{len(rows[i])} cells where the header has {width}"
                    raise ParseError(seen + i + 1, None, reason)
                seen += len(rows)
                if rows:
                    cells = zip(header, zip(*rows, strict=True), strict=True)
                    yield {name: column(name, values) for name, values in cells}

    return {name: name for name in header}, blocks()


def _csv_rows(reader: Any, count: int) -> list[list[str]]:
    try:
        return list(islice(reader, count))
    except UnicodeDecodeError:
        raise ParseError(None, None, "the file is not UTF-8 text") from None
    except csv.Error as refused:
        raise ParseError(None, None, f"line {reader.line_num}: {refused}") from None


def read_npz(raw: IO[bytes], request: IngestRequest) -> Table:
    """One 1-D array per column; or X [n, columns] in the schema's order beside y [n].

    X has no names of its own, so for the MAC its columns go by position: renaming them in the
    schema must not make the same file look new.
    """
    schema = request.schema
    arrays = _npz_arrays(raw, request.memory_bytes)
    if arrays.keys() == {"X", "y"} and arrays["X"].ndim == 2:
        X, names = arrays["X"], [column.name for column in schema.columns]
        if X.dtype.kind not in "biuf" or X.shape[1] != len(names):
            raise ParseError(None, "X", f"X must be numeric with {len(names)} columns")
        columns = {name: X[:, j] for j, name in enumerate(names)} | {schema.label.name: arrays["y"]}
        file_names = {name: f"X{j:06d}" for j, name in enumerate(names)} | {schema.label.name: "y"}
    else:
        columns, file_names = arrays, {name: name for name in arrays}
    _check_names(list(columns), schema)
    n = len(next(iter(columns.values())))
    for name, values in columns.items():
        if values.dtype.kind not in "biufU":
            raise ParseError(None, name, "arrays hold numbers, booleans or strings")
        if values.shape != (n,):
            raise ParseError(None, name, "arrays are 1-D and of equal length")
    size = _block_rows(schema, len(columns))
    blocks = ({k: v[a : a + size] for k, v in columns.items()} for a in range(0, n, size))
    return file_names, blocks


def _npz_arrays(raw: IO[bytes], memory_bytes: int) -> dict[str, NDArray[Any]]:
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
    except _UNREADABLE:
        raise ParseError(None, name, "not a readable npz of plain arrays (no objects)") from None


def _check_names(names: Sequence[str], schema: Schema) -> None:
    """The file has exactly the declared columns, ignored ones optionally."""
    declared = {column.name for column in schema.columns} | {schema.label.name}
    ignored = {c.name for c in schema.columns if isinstance(c, IgnoredColumn)}
    listings = {
        "the file repeats the columns": {k for k, count in Counter(names).items() if count > 1},
        "the file has columns that the schema does not name; declare them ignored to leave them "
        "out": set(names) - declared,
        "the file lacks the columns": declared - ignored - set(names),
    }
    for reason, found in listings.items():
        if found:
            some = ", ".join(encode.shown(name) for name in sorted(found)[:20])
            raise ParseError(None, min(found)[:40], f"{reason}: {some}")


def _block_rows(schema: Schema, file_columns: int) -> int:
    return max(1, min(BLOCK_ROWS, BLOCK_CELLS // max(schema.width, file_columns)))


# --- content -------------------------------------------------------------------------------------


class ContentMac:
    """A keyed fingerprint of a file's content, the same for every arrangement of that content.

    It serves to notice that data is uploaded again, which must not mint a second budget. So it
    covers all columns of the file, ignored ones and the label too, and must not change with the
    order of rows or columns, with quoting, with the spelling of a number, with the file format or
    with the schema:

        cell   a 64-bit word: the float64 of a cell that spells a number (one zero, one NaN, which
               also stands for missing), else 64 bits of keyed BLAKE2b of its stripped text
        row    keyed BLAKE2b-256 of the words in the order of the sorted column names; the words
               have fixed width, so no two rows of different cells share an input by shifting
        file   keyed BLAKE2b-256 of the sum of the rows' hashes mod 2^256, the number of rows and
               the sorted column names

    The sum makes a multiset hash (MSet-Add-Hash, Clarke et al. 2003): unlike xor it counts
    repeated rows. Cells that share a word (integers beyond 2^53) err on the safe side: equal
    MACs share a budget, they never create one. Without the key the MAC tells nothing of the data.
    """

    def __init__(self, key: bytes, file_names: Mapping[str, str]) -> None:
        self._key = key
        self._columns = sorted(file_names, key=file_names.__getitem__)
        self._header = json.dumps(sorted(file_names.values())).encode()
        self._sum = self._rows = 0

    def add(self, block: Block) -> None:
        n, width = len(block[self._columns[0]]), 8 * len(self._columns)
        words = np.empty((n, len(self._columns)), dtype="<u8")
        for j, name in enumerate(self._columns):
            words[:, j] = self._words(block[name])
        rows, key = memoryview(words.tobytes()), self._key
        self._rows += n
        for start in range(0, n * width, width):
            row = hashlib.blake2b(
                rows[start : start + width], digest_size=32, key=key, person=b"row"
            )
            self._sum += int.from_bytes(row.digest(), "little")
        self._sum %= 1 << 256

    def hexdigest(self) -> str:
        content = self._sum.to_bytes(32, "little") + self._rows.to_bytes(8, "little") + self._header
        return hashlib.blake2b(content, digest_size=32, key=self._key, person=b"file").hexdigest()

    def _words(self, values: NDArray[Any]) -> NDArray[np.uint64]:
        if values.dtype.kind in "iuf":
            numbers = values.astype(np.float64) + 0.0  # -0.0 + 0.0 is 0.0
            numbers[np.isnan(numbers)] = np.nan
            return numbers.view(np.uint64)
        cells = (
            list(map(repr, values.tolist())) if values.dtype.kind == "b" else encode.texts(values)
        )
        table = {cell: self._word(cell) for cell in set(cells)}
        return np.fromiter(map(table.__getitem__, cells), np.uint64, len(cells))

    def _word(self, cell: str) -> int:
        number = encode.parse_number(cell)
        if number is not None:
            return int(self._words(np.array([number]))[0])
        text = cell.strip().encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(text, digest_size=8, key=self._key, person=b"text")
        return int.from_bytes(digest.digest(), "little")


def secret_order(key: bytes, n: int) -> NDArray[np.int64]:
    """The permutation that sorts n 64-bit words of AES-256-CTR.

    It makes contiguous ranges of rows arbitrary parts of the data, whatever order the file had.
    No privacy guarantee rests on it: every sensitivity holds for the worst order.
    """
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    words = np.frombuffer(stream.update(bytes(8 * n)), dtype="<u8")
    return np.argsort(words, kind="stable")


# --- ingestion -----------------------------------------------------------------------------------


def ingest(request: IngestRequest) -> IngestResult:
    """Read, encode, shuffle and store, in this process and without limits but max_rows."""
    schema, fixed = request.schema, request.schema.storage == "fixed"
    dtype: np.dtype[Any] = np.dtype("<i2" if fixed else "<f8")
    read: Callable[[IO[bytes], IngestRequest], Table]
    read = read_csv if request.format == "csv" else read_npz
    with request.source.open("rb") as raw, store.building(request.out_dir) as folder:
        file_names, blocks = read(raw, request)
        mac = ContentMac(bytes.fromhex(request.content_key), file_names)
        labels: list[encode.Floats] = []
        n = 0
        unshuffled = folder / "x.rows"
        with unshuffled.open("wb") as out:
            for block in blocks:
                try:
                    y = encode.encode_label(schema, block[schema.label.name])
                    X = encode.encode_features(schema, block)
                except encode.EncodeError as refused:
                    row = None if refused.row is None else n + refused.row + 1
                    raise ParseError(row, refused.column, refused.reason) from None
                n += len(y)
                if n > request.max_rows:
                    raise IngestLimitError("rows")
                mac.add(block)
                labels.append(y)
                out.write((encode.quantise(schema, X) if fixed else X).astype(dtype).data)
        if n < 2:
            raise ParseError(None, None, f"{n} data rows; at least 2 are needed")
        order = secret_order(bytes.fromhex(request.shuffle_key), n)
        store.write_gathered(folder / "x.npy", unshuffled, dtype, schema.width, order)
        unshuffled.unlink()
        np.save(folder / "y.npy", np.concatenate(labels)[order])
    return IngestResult(
        rows=n,
        columns=schema.width,
        storage=schema.storage,
        feature_step=encode.feature_step(schema) if fixed else None,
        l2_units=encode.l2_units(schema) if fixed else None,
        linf_units=encode.LINF_UNITS if fixed else None,
        label_kind=schema.label.kind,
        content_mac=mac.hexdigest(),
    )


def run_ingest(request: IngestRequest) -> IngestResult:
    """Ingest in a child process under the request's limits; on failure nothing stays on disk."""
    partial = store.partial_folder(request.out_dir)
    if request.out_dir.exists() or partial.exists():
        raise FileExistsError(request.out_dir)
    try:
        return _result(_spawn(request))
    except BaseException:  # the child may have died before, within or after its own cleaning up
        shutil.rmtree(partial, ignore_errors=True)
        shutil.rmtree(request.out_dir, ignore_errors=True)
        raise


def _spawn(request: IngestRequest) -> subprocess.CompletedProcess[bytes]:
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
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise IngestLimitError("time") from None


def _result(child: subprocess.CompletedProcess[bytes]) -> IngestResult:
    if child.returncode == -signal.SIGXCPU:
        raise IngestLimitError("cpu")
    if child.returncode == _OUT_OF_MEMORY:
        raise IngestLimitError("memory")
    if child.returncode != 0:
        raise IngestCrashed("signal" if child.returncode < 0 else "exception")
    answer = json.loads(child.stdout)
    if "parse" in answer:
        raise ParseError(*answer["parse"])
    if "limit" in answer:
        raise IngestLimitError(answer["limit"])
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
        if failed.errno not in (errno.EFBIG, errno.ENOSPC):
            raise
        answer = {"limit": "disk"}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
