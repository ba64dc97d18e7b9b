"""A file becomes arrays, or a refusal that leaves nothing behind."""

import math
import stat

import numpy as np
import pytest

from service.datasets import encode, ingest, read, store
from service.datasets.read import ParseError
from tests.datasets.files import CSV, GOOD, HEADER, SCHEMA, content_mac, left_behind, npz

# --- what is stored ------------------------------------------------------------------------------


def test_a_csv_becomes_read_only_arrays_and_public_facts(request_for, tmp_path):
    request = request_for("\ufeff" + CSV)
    result = ingest.run_ingest(request)
    assert (result.rows, result.columns, result.storage) == (4, 5, "fixed")
    assert (result.linf_units, result.label_kind, result.classes) == (4095, "binary", None)
    assert result.feature_step == encode.feature_step(request.schema)
    assert result.l2_units == encode.l2_units(request.schema)
    modes = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "out").iterdir()}
    assert modes == {"x.npy": 0o440, "y.npy": 0o440, "report.json": 0o440}
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
        (HEADER + GOOD + '1,"Bonn,a,1\n', 2, None, "2 cells where the header has 4"),
        ("y,age,city,note\n" + '1,1,Bonn,a\n1,1,Bonn,"a\n1,1,Bonn,a\n', None, None, "line 4"),
        (HEADER + GOOD + f"1,{'x' * 70_000},a,1\n", None, "city", "more than 65,536 bytes"),
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
