"""Every data format is one file in the list, and the same table is the same data in each of them."""

import csv
import gzip
import io
import pkgutil
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.app import create_app
from service.config import Settings
from service.datasets import formats, ingest, store
from service.datasets.formats import BY_NAME, FORMATS, guess
from service.datasets.read import ParseError
from service.datasets.schema import Schema

SERVICE = Path(formats.__file__).parents[2]
EXPORTS = {"api/budgets.py"}  # the ledger leaves as CSV, which is no data that comes in

TABLE = {
    "age": [10.0, 20.0, 30.5, float("nan")],
    "city": ["Bonn", "Köln", "Rom", "Bonn"],
    "note": ["a", "b, and c", '"d"', "e"],
    "y": [1, 0, 1, 0],
}
SCHEMA = {
    "columns": [
        {"name": "age", "kind": "numeric", "lower": 0, "upper": 100, "fill": 50},
        {"name": "city", "kind": "categorical", "categories": ["Bonn", "Köln"]},
        {"name": "note", "kind": "ignored"},
    ],
    "label": {"name": "y", "kind": "binary", "positive": "1", "negative": "0"},
}


def as_csv(table) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerows([table, *zip(*table.values(), strict=True)])
    return text.getvalue().encode()


def as_npz(table) -> bytes:
    out = io.BytesIO()
    np.savez(out, **table)
    return out.getvalue()


def as_parquet(table) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(table), out)
    return out.getvalue()


def as_arrow_ipc(table) -> bytes:
    rows, out = pa.table(table), io.BytesIO()
    with pa.ipc.new_file(out, rows.schema) as writer:
        writer.write_table(rows)
    return out.getvalue()


def as_stream(table) -> bytes:
    rows, out = pa.table(table), io.BytesIO()
    with pa.ipc.new_stream(out, rows.schema) as writer:
        writer.write_table(rows)
    return out.getvalue()


WRITERS = {
    "csv": as_csv,
    "npz": as_npz,
    "parquet": as_parquet,
    "arrow_ipc": as_arrow_ipc,
}


def stored(folder, format_, content, schema=SCHEMA):
    """(the facts, the bytes of the files) that ingestion leaves."""
    source, out = folder / "source", folder / "out"
    source.write_bytes(content)
    request = ingest.IngestRequest(
        source=source,
        format=format_.name,
        schema=Schema.model_validate(schema),
        out_dir=out,
        content_key="ab" * 32,
        shuffle_key="cd" * 32,
        max_rows=100,
        cpu_seconds=60,
        memory_bytes=2 << 30,
    )
    facts = ingest.ingest(request)
    files = {path.name: path.read_bytes() for path in out.iterdir()}
    store.delete_data(out)
    return facts, files


def test_every_file_of_the_folder_is_in_the_list():
    modules = [module.name for module in pkgutil.iter_modules(formats.__path__)]
    found = [import_module(f"{formats.__name__}.{name}").FORMAT for name in modules]
    assert sorted(modules) == sorted(format_.name for format_ in FORMATS)
    assert {id(format_) for format_ in found} == {id(format_) for format_ in FORMATS}


def test_no_two_formats_share_a_name_a_content_type_or_a_suffix():
    for attribute in ("media_types", "suffixes"):
        values = [value for format_ in FORMATS for value in getattr(format_, attribute)]
        assert values == [value.lower() for value in dict.fromkeys(values)]
    assert all(f.media_types and f.suffixes and f.summary for f in FORMATS)
    assert WRITERS.keys() == {format_.name for format_ in FORMATS}


@pytest.mark.parametrize("format_", FORMATS, ids=lambda f: f.name)
def test_the_same_table_is_stored_as_the_same_bytes(format_, tmp_path):
    reference = stored(tmp_path, FORMATS[0], WRITERS[FORMATS[0].name](TABLE))
    assert stored(tmp_path, format_, WRITERS[format_.name](TABLE)) == reference


TYPES = {
    "age": pa.array(["10", " 20", "3.05e1", "NA"]),
    "city": pa.array(["Bonn", "Köln", "Rom", "Bonn"]).dictionary_encode(),
    "note": pa.array(TABLE["note"], pa.string_view()),
    "y": pa.array([True, False, True, False]),
}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("csv", gzip.compress(as_csv(TABLE))),
        ("csv", pa.compress(as_csv(TABLE), "zstd", asbytes=True)),
        ("csv", as_csv(TABLE | {"age": ["10", " 20", "3.05e1", "NA"]})),
        ("csv", as_csv(TABLE | {"age": ["+10", "20.", "30.5", "\u3000nan"]})),
        ("parquet", as_parquet(TYPES)),
        ("arrow_ipc", as_arrow_ipc(TYPES)),
        ("arrow_ipc", as_stream(TABLE)),
        ("arrow_ipc", as_stream(TYPES)),
    ],
    ids=[
        *("gzip", "zstd", "texts", "signs", "types in Parquet"),
        *("types in a file", "a stream", "types in a stream"),
    ],
)
def test_it_is_so_however_it_is_compressed_typed_and_spelled(name, content, tmp_path):
    schema = SCHEMA | {"compare_by": "value"}
    expected, files = stored(tmp_path, FORMATS[0], as_csv(TABLE), schema)
    facts, found = stored(tmp_path, BY_NAME[name], content, schema)
    assert (found, facts.content_mac) == (files, expected.content_mac)


@pytest.mark.parametrize("write", [as_parquet, as_arrow_ipc, as_stream])
def test_a_column_of_another_type_is_refused_by_name(write, tmp_path):
    days = pa.array([1, 2, 3, 4], pa.date32())
    format_ = BY_NAME["parquet" if write is as_parquet else "arrow_ipc"]
    with pytest.raises(ParseError) as refused:
        stored(tmp_path, format_, write(TABLE | {"note": days}))
    assert refused.value.column == "note"
    assert "numbers, booleans or texts, not date32" in refused.value.reason


def test_numbers_beyond_float64_that_are_compared_as_text_stay_what_they_are(tmp_path):
    codes = [2**62, None, 2**62 + 1, 7]
    schema = SCHEMA | {
        "columns": [
            {"name": "city", "kind": "categorical", "categories": [str(2**62), "7"], "fill": "7"},
        ],
    }
    table = {"city": pa.array(codes), "y": TABLE["y"]}
    reference = stored(tmp_path, FORMATS[0], as_csv({"city": codes, "y": TABLE["y"]}), schema)
    assert reference[0].report.columns[0].other == 1
    for name, write in (("parquet", as_parquet), ("arrow_ipc", as_arrow_ipc)):
        facts, files = stored(tmp_path, BY_NAME[name], write(table), schema)
        assert files == reference[1]
        assert facts.report == reference[0].report


@pytest.mark.parametrize("format_", FORMATS, ids=lambda f: f.name)
@pytest.mark.parametrize(
    ("table", "column", "reason"),
    [
        ({k: v for k, v in TABLE.items() if k != "city"}, "city", "lacks the columns: 'city'"),
        (TABLE | {"zip": [1, 2, 3, 4]}, "zip", "does not name"),
        (TABLE | {"y": [1, 0, 1, 2]}, "y", "neither the positive nor the negative: '2'"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_alike(format_, table, column, reason, tmp_path):
    with pytest.raises(ParseError) as refused:
        stored(tmp_path, format_, WRITERS[format_.name](table))
    assert refused.value.column == column
    assert reason in refused.value.reason


@pytest.mark.parametrize("format_", FORMATS, ids=lambda f: f.name)
def test_a_file_that_is_something_else_is_refused(format_, tmp_path):
    with pytest.raises(ParseError):
        stored(tmp_path, format_, b"\x89\xff\x00\x00 neither text nor an archive\n" * 9)


@pytest.mark.parametrize("format_", FORMATS, ids=lambda f: f.name)
def test_a_name_tells_its_format(format_):
    for suffix in format_.suffixes:
        assert guess(Path(f"rows{suffix}")) is guess(Path(f"ROWS{suffix.upper()}")) is format_


def test_a_name_that_tells_no_format_is_refused_with_those_that_do():
    with pytest.raises(ValueError, match=r"rows\.bin: the name of a data file ends in") as refused:
        guess(Path("secret/rows.bin"))
    assert all(suffix in str(refused.value) for f in FORMATS for suffix in f.suffixes)


def test_an_unknown_format_is_refused_before_a_file_is_opened(tmp_path):
    with pytest.raises(ValueError, match="a format is one of: "):
        stored(tmp_path, type("Format", (), {"name": "xls"}), b"")


def test_the_api_documents_every_format():
    paths = create_app(Settings()).openapi()["paths"]
    body = paths["/v1/datasets/{dataset_id}/data"]["put"]["requestBody"]
    expected = {media: list(f.suffixes) for f in FORMATS for media in f.media_types}
    assert {media: entry["x-suffixes"] for media, entry in body["content"].items()} == expected
    assert all(format_.summary in body["description"] for format_ in FORMATS)


def test_nothing_else_names_a_content_type_or_a_suffix_of_a_format():
    words = [f'"{word}"' for f in FORMATS for word in (*f.media_types, *f.suffixes)]
    for path in SERVICE.rglob("*.py"):
        if path.parent.name != "formats" and str(path.relative_to(SERVICE)) not in EXPORTS:
            assert not [word for word in words if word in path.read_text()], path
