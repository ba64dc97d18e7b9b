"""A file becomes arrays, or a refusal that leaves nothing behind."""

import io
import json
import math
import signal
import stat
import zipfile

import numpy as np
import pytest

from service.datasets import encode, ingest, read, store
from service.datasets.ingest import IngestCrashed, IngestRequest
from service.datasets.read import IngestLimitError, ParseError
from service.datasets.schema import Schema

SCHEMA = {
    "columns": [
        {"name": "age", "kind": "numeric", "lower": 0, "upper": 100, "fill": 50},
        {"name": "city", "kind": "categorical", "categories": ["Bonn", "Köln"]},
        {"name": "note", "kind": "ignored"},
    ],
    "label": {"name": "y", "kind": "binary", "positive": "1", "negative": "0"},
}
CSV = "age,city,note,y\n10,Bonn,a,1\n20,Köln,b,0\n30,Rom,c,1\nNA,Bonn,d,0\n"


@pytest.fixture
def request_for(tmp_path):
    def make(content, schema=SCHEMA, **fields):
        source = tmp_path / "source"
        source.write_bytes(content.encode() if isinstance(content, str) else content)
        defaults = {
            "source": source,
            "format": "csv" if isinstance(content, str) else "npz",
            "schema": Schema.model_validate(schema),
            "out_dir": tmp_path / "out",
            "content_key": "ab" * 32,
            "shuffle_key": "cd" * 32,
            "max_rows": 10**6,
            "cpu_seconds": 60,
            "memory_bytes": 2 << 30,
        }
        return IngestRequest(**(defaults | fields))

    return make


def npz(**arrays) -> bytes:
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


def left_behind(tmp_path) -> list[str]:
    return [path.name for path in tmp_path.iterdir() if path.name != "source"]


def content_mac(request, tmp_path) -> str:
    result = ingest.ingest(request)
    store.delete_data(tmp_path / "out")
    return result.content_mac


# --- what is stored ------------------------------------------------------------------------------


def test_a_csv_becomes_read_only_arrays_and_public_facts(request_for, tmp_path):
    request = request_for("\ufeff" + CSV)
    result = ingest.run_ingest(request)
    assert (result.rows, result.columns, result.storage) == (4, 5, "fixed")
    assert (result.linf_units, result.label_kind, result.classes) == (4095, "binary", None)
    assert result.feature_step == encode.feature_step(request.schema)
    assert result.l2_units == encode.l2_units(request.schema)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "out").iterdir()}
    assert modes == {"x.npy": 0o440, "y.npy": 0o440}
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o750
    assert left_behind(tmp_path) == ["out"]
    x, y = store.open_arrays(tmp_path / "out")
    assert (x.dtype, x.shape, x.flags.c_contiguous) == (np.int16, (4, 5), True)
    assert (y.dtype, sorted(y)) == (np.float64, [-1, -1, 1, 1])


def test_an_unbounded_column_is_stored_as_float64_without_scales(request_for, tmp_path):
    schema = SCHEMA | {"columns": [{"name": "v", "kind": "unbounded"}]}
    result = ingest.ingest(request_for("v,y\n1e9,1\n-2.5,0\n", schema))
    scales = (result.feature_step, result.l2_units, result.linf_units)
    assert (result.storage, scales) == ("float64", (None, None, None))
    x, _ = store.open_arrays(tmp_path / "out")
    assert sorted(x[:, 1]) == [-2.5, 1e9]


def test_an_unbounded_label_is_stored_divided_by_its_scale(request_for, tmp_path):
    schema = {
        "columns": [{"name": "v", "kind": "numeric", "lower": 0, "upper": 1}],
        "label": {"name": "y", "kind": "unbounded", "scale": 1000},
    }
    result = ingest.run_ingest(request_for("v,y\n1,250000\n0,-3e300\n", schema))
    assert (result.label_kind, result.storage, result.classes) == ("unbounded", "fixed", None)
    assert sorted(store.open_arrays(tmp_path / "out")[1]) == [-3e300 / 1000, 250]


def test_classes_are_counted_by_the_schema_and_never_by_the_rows(request_for, tmp_path):
    label = {"name": "y", "kind": "categorical", "classes": ["2", "1", "0", "unseen"]}
    content_of_binary = content_mac(request_for(CSV), tmp_path)
    result = ingest.run_ingest(request_for(CSV, SCHEMA | {"label": label}))
    assert (result.label_kind, result.classes) == ("categorical", 4)
    assert result.content_mac == content_of_binary
    assert sorted(store.open_arrays(tmp_path / "out")[1]) == [1, 1, 2, 2]


def test_a_class_that_was_not_declared_refuses_the_file(request_for, tmp_path):
    label = {"name": "y", "kind": "categorical", "classes": ["1", "2"]}
    with pytest.raises(ParseError, match="none of the classes: '0'") as refused:
        ingest.ingest(request_for(CSV, SCHEMA | {"label": label}))
    assert (refused.value.row, refused.value.column) == (2, "y")
    assert left_behind(tmp_path) == []


def test_the_shuffle_permutes_the_rows_and_keeps_labels_paired(request_for, tmp_path, monkeypatch):
    monkeypatch.setattr(read, "BLOCK_CELLS", 50)
    monkeypatch.setattr(store, "WINDOW_BYTES", 64)  # many windows, the last ones ragged
    n = 203
    schema = {
        "columns": [{"name": "v", "kind": "unbounded"}],
        "label": {"name": "y", "kind": "numeric", "lower": 0, "upper": 2 * n},
    }
    ingest.ingest(request_for(npz(v=np.arange(n), y=2 * np.arange(n)), schema))
    x, y = store.open_arrays(tmp_path / "out")
    rows = x[:, 1].astype(int)
    assert sorted(rows) == list(range(n))
    assert rows.tolist() != list(range(n))
    np.testing.assert_allclose(y, 2 * rows / n - 1, atol=1e-12)
    assert np.array_equal(rows, ingest.secret_order(bytes.fromhex("cd" * 32), n))


def test_predicting_on_raw_rows_encodes_like_ingestion_up_to_quantisation(request_for, tmp_path):
    request = request_for(CSV)
    ingest.ingest(request)
    rows = [
        {"age": 10, "city": "Bonn"},
        {"age": "20", "city": "Köln"},
        {"age": 30.0, "city": "Rom"},
        {"city": "Bonn"},
    ]
    columns = encode.columns_from_rows(request.schema, rows)
    X = encode.encode_features(request.schema, columns)
    order = ingest.secret_order(bytes.fromhex("cd" * 32), 4)
    stored = store.open_arrays(tmp_path / "out")[0] * encode.feature_step(request.schema)
    np.testing.assert_allclose(stored, X[order], atol=2 * encode.feature_step(request.schema))
    assert np.array_equal(
        encode.quantise(request.schema, X[order]), store.open_arrays(tmp_path / "out")[0]
    )


@pytest.mark.parametrize(
    "arrays",
    [
        {"age": [10, 20, 30, math.nan], "city": ["Bonn", "Köln", "Rom", "Bonn"],
         "note": list("abcd"), "y": [1.0, 0.0, 1.0, 0.0]},
        {"age": ["10", "20.0", "30", "?"], "city": ["Bonn ", "Köln", "Rom", "Bonn"],
         "note": list("abcd"), "y": [1, 0, 1, 0]},
    ],
)  # fmt: skip
def test_an_npz_of_columns_equals_the_csv_of_the_same_cells(arrays, request_for, tmp_path):
    from_csv = ingest.ingest(request_for(CSV))
    x, y = (np.array(a) for a in store.open_arrays(tmp_path / "out"))
    store.delete_data(tmp_path / "out")
    from_npz = ingest.ingest(request_for(npz(**arrays)))
    assert from_npz == from_csv
    assert np.array_equal(store.open_arrays(tmp_path / "out")[0], x)
    assert np.array_equal(store.open_arrays(tmp_path / "out")[1], y)


def test_x_and_y_arrays_follow_the_order_of_the_schema(request_for, tmp_path):
    X = np.array([[0.0, 1, 7], [100, 2, 7], [50, 9, 7]])
    columns = [SCHEMA["columns"][0], {"name": "c", "kind": "categorical", "categories": ["1", "2"]},
               SCHEMA["columns"][2]]  # fmt: skip
    schema = SCHEMA | {"columns": columns}
    ingest.ingest(
        request_for(
            npz(X=X, y=np.array([True, False, True])),
            schema
            | {"label": {"name": "y", "kind": "binary", "positive": "True", "negative": "False"}},
        )
    )
    x, y = store.open_arrays(tmp_path / "out")
    rows = sorted((y[i], *np.round(x[i] / 4095, 1)) for i in range(3))
    assert rows == [(-1, 1, 1, 0, 1, 0), (1, 1, 0, 1, 0, 0), (1, 1, 0.5, 0, 0, 1)]


# --- what is refused -----------------------------------------------------------------------------

HEADER = "age,city,note,y\n"
GOOD = "1,Bonn,a,1\n"


@pytest.mark.parametrize(
    ("content", "row", "column", "reason"),
    [
        ("", None, "age", "lacks the columns: 'age', 'city', 'y'"),
        (HEADER, None, None, "0 data rows"),
        (HEADER + GOOD, None, None, "1 data rows"),
        ("age,city,y,zip\n", None, "zip", "declare them ignored to leave them out: 'zip'"),
        ("age,city,age,y\n", None, "age", "repeats the columns: 'age'"),
        ("age,y\n", None, "city", "lacks the columns: 'city'"),
        (HEADER + GOOD + "1,Bonn,a\n", 2, None, "3 cells where the header has 4"),
        (HEADER + GOOD + "\n1,Bonn,a,1,\n", 2, None, "5 cells where the header has 4"),
        (HEADER + GOOD + "old,Bonn,a,1\n", 2, "age", "not a number: 'old'"),
        (HEADER + GOOD + "inf,Bonn,a,1\n", 2, "age", "not finite"),
        (HEADER + GOOD * 9 + "1,null,a,1\n", 10, "city", "declare `fill`"),
        (HEADER + GOOD + "1,Bonn,a,\n", 2, "y", "the label is missing"),
        (HEADER + GOOD + "1,Bonn,a,2\n", 2, "y", "neither the positive nor the negative: '2'"),
        (HEADER + GOOD + '1,"Bonn,a,1\n', None, None, "line 3"),
        (HEADER + GOOD + f"1,{'x' * 70_000},a,1\n", None, None, "field larger than field limit"),
    ],
)
def test_a_csv_is_refused(content, row, column, reason, request_for, tmp_path, monkeypatch):
    monkeypatch.setattr(read, "BLOCK_CELLS", 15)  # three rows: row numbers count across blocks
    with pytest.raises(ParseError) as refused:
        ingest.ingest(request_for(content))
    assert (refused.value.row, refused.value.column) == (row, column)
    assert reason in refused.value.reason
    assert left_behind(tmp_path) == []


def test_text_that_is_not_utf8_is_refused(request_for):
    with pytest.raises(ParseError, match="UTF-8"):
        ingest.ingest(request_for((HEADER + "1,K\u00f6ln,a,1\n").encode("latin-1"), format="csv"))


COLUMNS = {"age": [1.0, 2.0], "city": ["Bonn", "Rom"], "y": [1, 0]}


@pytest.mark.parametrize(
    ("content", "column", "reason"),
    [
        (b"no zip", None, "not a readable npz"),
        (npz(**COLUMNS)[:-30], None, "not a readable npz"),
        (npz(**COLUMNS | {"age": np.array([1, None])}), "age", "no objects"),
        (npz(**COLUMNS | {"age": [1.0]}), "age", "of equal length"),
        (npz(**COLUMNS | {"age": np.ones((2, 2))}), "age", "1-D"),
        (npz(**COLUMNS | {"age": 1.0}), "age", "1-D"),
        (npz(**COLUMNS | {"age": [1j, 2j]}), "age", "numbers, booleans or strings"),
        (npz(**COLUMNS | {"age": [b"1", b"2"]}), "age", "numbers, booleans or strings"),
        (npz(**COLUMNS | {"zip": [1, 2]}), "zip", "does not name"),
        (npz(age=[1.0, 2.0], y=[1, 0]), "city", "lacks"),
        (npz(X=np.ones((2, 2)), y=[1, 0]), "X", "numeric with 3 columns"),
    ],
)
def test_an_npz_is_refused(content, column, reason, request_for, tmp_path):
    with pytest.raises(ParseError) as refused:
        ingest.ingest(request_for(content))
    assert (refused.value.row, refused.value.column) == (None, column) or column == "age"
    assert reason in refused.value.reason
    assert left_behind(tmp_path) == []


# --- the fingerprint -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        "age,city,note,y\nNA,Bonn,d,0\n30,Rom,c,1\n20,Köln,b,0\n10,Bonn,a,1\n",  # rows
        "y,note,city,age\n1,a,Bonn,10\n0,b,Köln,20\n1,c,Rom,30\n0,d,Bonn,NA\n",  # columns
        CSV.replace("Bonn", '"Bonn"').replace("\n", "\r\n"),  # quoting, line ends
        CSV.replace(",", " , "),  # blanks
        CSV.replace("10,", "1e1,").replace("NA", ""),  # spelling
    ],
)
def test_the_mac_ignores_the_arrangement(content, request_for, tmp_path):
    expected = content_mac(request_for(CSV), tmp_path)
    assert content_mac(request_for(content), tmp_path) == expected


def test_the_mac_ignores_schema_shuffle_and_block_size(request_for, tmp_path, monkeypatch):
    expected = content_mac(request_for(CSV), tmp_path)
    other = {
        "columns": [{"name": "note", "kind": "categorical", "categories": ["a"]},
                    {"name": "age", "kind": "ignored"}, {"name": "city", "kind": "ignored"}],
        "label": {"name": "y", "kind": "numeric", "lower": 0, "upper": 1},
    }  # fmt: skip
    monkeypatch.setattr(read, "BLOCK_CELLS", 1)
    assert content_mac(request_for(CSV, other, shuffle_key="ef" * 32), tmp_path) == expected


def test_renaming_the_columns_of_x_does_not_change_the_mac(request_for, tmp_path):
    content = npz(X=np.array([[1.0], [2.0]]), y=[1, 0])
    macs = {
        content_mac(
            request_for(content, SCHEMA | {"columns": [SCHEMA["columns"][0] | n]}), tmp_path
        )
        for n in ({"name": "age"}, {"name": "renamed"})
    }
    assert len(macs) == 1


@pytest.mark.parametrize(
    "content",
    [
        CSV.replace("10,", "11,"),  # a number
        CSV.replace("Rom", "rom"),  # a text
        CSV.replace(",d,", ",e,"),  # an ignored cell
        CSV + "10,Bonn,a,1\n",  # a repeated row
        CSV + "10,Bonn,a,1\n10,Bonn,a,1\n",  # which xor would cancel
        CSV.replace("10,Bonn,a,1\n20,Köln,b,0", "20,Bonn,a,1\n10,Köln,b,0"),  # pairing of cells
        CSV.replace(",note,", ",").replace(",a,", ",").replace(",b,", ",")
        .replace(",c,", ",").replace(",d,", ","),  # a column
    ],
)  # fmt: skip
def test_the_mac_notices_other_content(content, request_for, tmp_path):
    expected = content_mac(request_for(CSV), tmp_path)
    assert content_mac(request_for(content), tmp_path) != expected


def test_the_mac_depends_on_its_key(request_for, tmp_path):
    macs = {content_mac(request_for(CSV, content_key=k * 32), tmp_path) for k in ("00", "01")}
    assert len(macs) == 2


# --- limits of the child -------------------------------------------------------------------------


def bomb(megabytes: int) -> bytes:
    """A small archive whose members claim, and unpack to, a lot of zeros."""
    out = io.BytesIO()
    archive = zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with archive, archive.open("age.npy", "w") as member:
        header = {"descr": "<f8", "fortran_order": False, "shape": (megabytes << 17,)}
        np.lib.format.write_array_header_1_0(member, header)
        for _ in range(megabytes):
            member.write(bytes(1 << 20))
    return out.getvalue()


def claiming(elements: int) -> bytes:
    """A tiny member whose header claims a huge shape, which the directory does not show."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, archive.open("age.npy", "w") as member:
        header = {"descr": "<f8", "fortran_order": False, "shape": (elements,)}
        np.lib.format.write_array_header_1_0(member, header)
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "limits", "limit"),
    [  # made when it is their turn: some are large
        (lambda: bomb(600), {"memory_bytes": 512 << 20}, "memory"),
        (lambda: claiming(1 << 40), {}, "memory"),
        (lambda: CSV, {"max_rows": 3}, "rows"),
        (
            lambda: bomb(450),
            {"memory_bytes": 512 << 20},
            "memory",
        ),  # the directory alone would pass
        (lambda: HEADER + GOOD * 100_000, {"disk_bytes": 100_000}, "disk"),
        (lambda: HEADER + GOOD * 2_000_000, {"cpu_seconds": 1, "max_rows": 10**8}, "cpu"),
    ],
    ids=["zip bomb", "lying header", "rows", "address space", "disk", "cpu"],
)
def test_a_file_beyond_its_limits_leaves_nothing_behind(
    content, limits, limit, request_for, tmp_path
):
    with pytest.raises(IngestLimitError) as refused:
        ingest.run_ingest(request_for(content(), **limits))
    assert refused.value.limit == limit
    assert left_behind(tmp_path) == []


def test_a_parse_error_crosses_the_process_boundary(request_for, tmp_path):
    with pytest.raises(ParseError) as refused:
        ingest.run_ingest(request_for(HEADER + GOOD + "old,Bonn,a,1\n"))
    assert refused.value.args == (2, "age", "not a number: 'old'")
    assert left_behind(tmp_path) == []


def test_a_missing_source_is_a_crash_and_not_a_result(request_for, tmp_path):
    with pytest.raises(IngestCrashed, match="exception"):
        ingest.run_ingest(request_for(CSV, source=tmp_path / "gone"))
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("finished", [False, True])
def test_a_child_killed_before_or_after_its_rename_leaves_nothing_behind(
    finished, request_for, tmp_path, monkeypatch
):
    request = request_for(CSV)

    def killed(request):
        folder = request.out_dir if finished else store.partial_folder(request.out_dir)
        folder.mkdir()
        (folder / "x.npy").touch()
        return ingest.subprocess.CompletedProcess([], -signal.SIGKILL, b"")

    monkeypatch.setattr(ingest, "_spawn", killed)
    with pytest.raises(IngestCrashed, match="signal"):
        ingest.run_ingest(request)
    assert left_behind(tmp_path) == []


def test_an_existing_dataset_is_never_overwritten_or_removed(request_for, tmp_path):
    ingest.ingest(request_for(CSV))
    for attempt in (ingest.ingest, ingest.run_ingest):
        with pytest.raises(FileExistsError):
            attempt(request_for(CSV))
    assert left_behind(tmp_path) == ["out"]


def test_keys_are_not_shown_by_repr_nor_in_the_childs_environment(request_for, monkeypatch):
    request = request_for(CSV)
    assert "abab" not in repr(request)
    assert "cdcd" not in repr(request)
    seen = {}
    monkeypatch.setenv("EPSILOND_SECRET", "s3cret")
    monkeypatch.setattr(ingest.subprocess, "run", lambda args, **kw: seen.update(kw, args=args))
    ingest._spawn(request)
    assert "EPSILOND_SECRET" not in seen["env"]
    assert not any("abab" in argument for argument in seen["args"])
    assert json.loads(seen["input"])["content_key"] == "ab" * 32
