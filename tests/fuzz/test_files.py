"""Files of owners: whatever is in them, rows within their bounds or a refusal, and nothing else."""

import bz2
import gzip
import io
import lzma
import struct
import tempfile
import zipfile
import zlib
from contextlib import suppress
from decimal import Decimal
from math import isinf
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from service.datasets import ingest
from service.datasets.cells import as_digit, parse_number
from service.datasets.ingest import IngestCrashed, IngestRequest
from service.datasets.read import IngestLimitError, ParseError
from service.datasets.schema import Schema
from tests.datasets.files import CSV, GOOD, HEADER, SCHEMA, npz
from tests.datasets.test_formats import as_arrow_ipc, as_parquet, as_stream
from tests.fuzz.hostile import EXAMPLES, NUMBERS, TEXTS, damaged, fuzzed

REFUSALS = (ParseError, IngestLimitError, MemoryError)  # the last is the child's limit on memory
UNBOUNDED = {
    "columns": [
        {"name": "age", "kind": "unbounded", "scale": 1e-300},
        {"name": "city", "kind": "categorical", "categories": ["\u00e9", "3", "nan"], "fill": "3"},
        {"name": "note", "kind": "numeric", "lower": -1e-300, "upper": 1e300},
    ],
    "label": {"name": "y", "kind": "unbounded", "scale": 1e300},
}
SCHEMAS = [Schema.model_validate(one) for one in (SCHEMA, UNBOUNDED)]


def outcome(content, format_="csv", schema=SCHEMAS[0], act=ingest.ingest, **limits):
    """What became of a file: the stored rows are checked, and a refusal is returned."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "source", Path(folder) / "out"
        source.write_bytes(content)
        request = IngestRequest(
            source=source,
            format=format_,
            schema=schema,
            out_dir=out,
            content_key="ab" * 32,
            shuffle_key="cd" * 32,
            **{"max_rows": 1000, "cpu_seconds": 20, "memory_bytes": 1 << 30, **limits},
        )
        try:
            result = act(request)
        except REFUSALS as refused:
            left = sorted(path.name for path in Path(folder).iterdir())
            assert left == ["source"], left
            return refused
        x, y = np.load(out / "x.npy"), np.load(out / "y.npy")
        assert len(x) == len(y) == result.rows
        assert np.isfinite(x).all() and np.isfinite(y).all()
        if result.storage == "fixed":
            norms = (x.astype(np.int64) ** 2).sum(axis=1)
            assert np.abs(x).max() <= result.linf_units and norms.max() <= result.l2_units**2
        return result


def encoded(text):
    return text.encode("utf-8", "surrogatepass")


cells = st.sampled_from([*NUMBERS, *TEXTS, "Bonn", "1", "0"]) | st.text(max_size=5)
quoted = cells.map(lambda cell: '"' + cell.replace('"', '""') + '"')
rows = st.lists(st.one_of(cells, cells, quoted, st.just("1")), min_size=3, max_size=5)
tables = st.builds(
    lambda mark, head, lines, ends: encoded(
        mark + head + "".join(",".join(line) + end for line, end in zip(lines, ends, strict=False))
    ),
    st.sampled_from(["", "\ufeff", "\ufeff\ufeff", "\0", "\n\n", "sep=,\n"]),
    st.sampled_from(
        [HEADER, "age,city,note,y\r\n", "y,note,city,age\n", '"age","city",note,y\r', ""]
    ),
    st.lists(rows, max_size=6),
    st.lists(st.sampled_from(["\n", "\r\n", "\r", "\n\r", "\n\n", ""]), min_size=6, max_size=6),
)


@fuzzed(150)
@given(content=tables | damaged(st.just(CSV.encode())), schema=st.sampled_from(SCHEMAS))
@example(content=encoded(HEADER + "1,\ud800,a,1\n" * 2), schema=SCHEMAS[0])
@example(content=encoded(HEADER + GOOD * 2).decode().encode("utf-16"), schema=SCHEMAS[0])
def test_a_text_is_stored_within_bounds_or_refused(content, schema):
    outcome(content, "csv", schema)


def member(name="age.npy", *, header=b"", data=b"", **info):
    """An archive with one member: a hand-made header of NumPy's format, version 1.0."""
    out = io.BytesIO()
    head = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    with zipfile.ZipFile(out, "w", **info) as archive:
        archive.writestr(name, head + data)
    return out.getvalue()


ARRAYS = npz(age=np.arange(3.0), city=np.array(["Bonn", "a", "b"]), y=np.array([1, 0, 1]))
headers = st.builds(
    lambda descr, order, shape, more: (
        f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}{more}"
    ),
    st.sampled_from(
        ["'<f8'", "'|O'", "'<U99999999'", "[('a', '<f8')]", "'<f8,<f8'", "'|V8'", "()", "'<M8[s]'"]
    ),
    st.sampled_from(["False", "True", "0", "None", "()"]),
    st.sampled_from(
        [
            "(3,)",
            "()",
            "(-1,)",
            "(0,)",
            "(3L,)",
            "(10**9,)",
            "(1 << 40,)",
            "(1099511627776,)",
            "3",
            "(9223372036854775807, 9)",
            "(True,)",
            "(3.0,)",
            "('3',)",
            "(" * 300,
            f"({'9' * 99},)",
        ]
    ),
    st.sampled_from(["}", ", }", ", 'x': 1}", "", "}}", "} " + " " * 12_000, "}\0", ": "]),
)
archives = st.one_of(
    damaged(st.just(ARRAYS)),
    damaged(
        st.sampled_from(
            [
                member(
                    header=b"{'descr': '<f8', 'fortran_order': False, 'shape': (3,), }\n",
                    data=bytes(24),
                    compression=way,
                )
                for way in (
                    zipfile.ZIP_STORED,
                    zipfile.ZIP_DEFLATED,
                    zipfile.ZIP_BZIP2,
                    zipfile.ZIP_LZMA,
                )
            ]
        )
    ),
    st.builds(
        lambda header, data: member(header=header.encode(), data=data),
        headers,
        st.binary(max_size=40),
    ),
    st.builds(
        lambda y: npz(age=np.arange(3.0), city=np.array(["a", "b", "\0"]), y=y),
        st.sampled_from(
            [
                np.array(3),
                np.zeros((3, 1)),
                np.zeros(0),
                np.array([1 + 2j] * 3),
                np.array([b"1"] * 3),
                np.zeros(3, "M8[s]"),
                np.zeros(3, "f2"),
                np.array([True, False, True]),
                np.zeros(3, ">i8"),
            ]
        ),
    ),
)


@fuzzed(200)
@given(content=archives)
@example(content=member(header=b"{'descr': ("))  # tokenize.TokenError
@example(content=member(header=b"{'descr': '<f8', 'fortran_order': 0L, 'shape': (3,"))
def test_an_archive_is_stored_within_bounds_or_refused(content):
    outcome(content, "npz")


ROWS = pa.table(
    {"age": [1.0, None, 3.0], "city": ["Bonn", "a", None], "note": ["", "b", "\0"], "y": [1, 0, 1]}
)
columns = st.sampled_from(
    [
        pa.array([1, None, 2**62]),
        pa.array([True, None, False]),
        pa.array(["1", "nan(1)", " 2 "]),
        pa.array(["1", None, "NA"]).dictionary_encode(),
        pa.array([1, 2, None]).dictionary_encode(),
        pa.array([Decimal("1.10"), None, Decimal("-2.00")]),
        pa.array([0, 1, 2], pa.timestamp("ns")),
        pa.array([[1], [], None]),
        pa.array([{"a": 1}, None, {"a": 2}]),
        pa.array([b"\xff", b"1", None]),
        pa.array([1.5, float("nan"), float("inf")], pa.float32()),
        pa.array(["1", "\0", None], pa.string_view()),
        pa.nulls(3),
    ]
)
tables_of_arrow = st.builds(
    lambda name, column: ROWS.set_column(ROWS.schema.get_field_index(name), name, column),
    st.sampled_from(["age", "city", "note", "y"]),
    columns,
)


@fuzzed(60)
@given(table=tables_of_arrow, schema=st.sampled_from(SCHEMAS))
def test_a_table_of_arrow_is_stored_within_bounds_or_refused(table, schema):
    for format_, content in (("parquet", as_parquet(table)), ("arrow_ipc", as_arrow_ipc(table))):
        outcome(content, format_, schema)


@fuzzed(15, each=1)
@given(
    content=damaged(st.sampled_from([as_parquet(ROWS), as_arrow_ipc(ROWS), as_stream(ROWS)])),
    format_=st.sampled_from(["parquet", "arrow_ipc"]),
)
def test_a_damaged_table_of_arrow_ends_at_worst_the_child_that_reads_it(content, format_):
    """Arrow is written in C++: what it does not survive leaves no rows, and the service refuses it."""
    with suppress(IngestCrashed):
        outcome(content, format_, act=ingest.run_ingest)


@fuzzed(100)
@given(cells=st.lists(cells.filter(lambda cell: "\0" not in cell), min_size=2, max_size=6))
def test_a_number_in_a_csv_is_what_the_same_text_is_elsewhere(cells):
    """Whichever way it was converted: at once, as a text, or by Python."""
    numbers = [
        None if "\ud800" <= max(cell, default="") <= "\udfff" else parse_number(as_digit(cell))
        for cell in cells
    ]
    lines = "".join('"' + cell.replace('"', '""') + '",1\n' for cell in cells)
    found = outcome(encoded("age,y\n" + lines), schema=Schema.model_validate(FILLED))
    refused = any(number is None or isinf(number) for number in numbers)
    assert isinstance(found, ParseError) == refused


def _is_unicode(text):
    return not any("\ud800" <= character <= "\udfff" for character in text)


def bomb(way, megabytes=1500):
    """A member that says it is small and unpacks to a lot; and one that says what it is."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", way) as archive, archive.open("age.npy", "w") as held:
        shape = (megabytes << 17,)
        np.lib.format.write_array_header_1_0(
            held, {"descr": "<f8", "fortran_order": False, "shape": shape}
        )
        for _ in range(megabytes):
            held.write(bytes(1 << 20))
    return out.getvalue()


def lying(content):
    """The same archive, whose directory says 100 bytes for whatever its member unpacks to."""
    at = content.rindex(b"PK\x01\x02")
    return content[: at + 24] + struct.pack("<I", 100) + content[at + 28 :]


FILLED = {
    "columns": [{"name": "age", "kind": "numeric", "lower": -1e300, "upper": 1e300, "fill": 0}],
    "label": SCHEMA["label"],
}
WIDE = {
    "columns": [{"name": "age", "kind": "numeric", "lower": 0, "upper": 1}],
    "label": SCHEMA["label"],
}


@pytest.mark.parametrize(
    ("content", "format_"),
    [
        (lambda: bomb(zipfile.ZIP_DEFLATED, 300), "npz"),
        (lambda: lying(bomb(zipfile.ZIP_DEFLATED, 300)), "npz"),
        (lambda: lying(bomb(zipfile.ZIP_BZIP2, 50)), "npz"),
        (lambda: zlib.compress(bytes(1 << 20)), "npz"),
        (lambda: bz2.compress(bytes(1 << 20)) + lzma.compress(bytes(1 << 20)), "npz"),
        (lambda: ",".join(f"c{i}" for i in range(10**6)).encode() + b"\n" + b"1," * 10**6, "csv"),
        (lambda: encoded(HEADER) + b"," * 2**24, "csv"),
        (lambda: encoded(HEADER) + b'"' + b"x" * 2**24, "csv"),
        (lambda: encoded(HEADER) + b"\n" * 2**22, "csv"),
        (lambda: encoded(HEADER) + (b"9" * 60_000 + b",a,b,1\n") * 40, "csv"),
        (lambda: b"\xef\xbb\xbf" * 2**20, "csv"),
        (lambda: gzip.compress(encoded(HEADER) + b"x" * 2**29), "csv"),
        (lambda: gzip.compress(encoded("age,y\n") + b"1,1\n" * 2**20), "csv"),
        (lambda: as_parquet(pa.table({"age": np.zeros(2**22), "y": np.zeros(2**22)})), "parquet"),
        (lambda: as_parquet(pa.table({"age": ["x" * 2**29], "y": ["1"]})), "parquet"),
    ],
    ids=[
        *("zip bomb", "lying zip bomb", "lying bz2 bomb", "a zlib stream", "bz2 and xz streams"),
        *("a million columns", "a million cells", "a cell without end", "blank lines"),
        *("long integers", "marks of byte order", "a cell in gzip", "rows in gzip"),
        *("rows in Parquet", "a cell in Parquet"),
    ],
)
def test_a_bomb_is_refused_by_the_child_that_reads_it(content, format_):
    """Within its limits on memory and time, and never by the child's death."""
    schema = Schema.model_validate(WIDE)
    refused = outcome(
        content(), format_, schema, ingest.run_ingest, memory_bytes=512 << 20, cpu_seconds=20
    )
    assert isinstance(refused, REFUSALS)


@pytest.mark.parametrize("count", [200, 20_000 if EXAMPLES else 2000])
def test_an_archive_of_many_members_is_read_or_refused(count):
    refused = outcome(npz(**{f"x{i}": np.zeros(2) for i in range(count)}), "npz")
    assert isinstance(refused, ParseError)
