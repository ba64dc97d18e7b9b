"""One table means one thing: in a CSV, in an NPZ, and in the rows of a prediction."""

import csv
import io
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from service.datasets import ingest, store
from service.datasets.cells import by_value
from service.datasets.content import ContentMac
from service.datasets.encode import columns_from_rows, encode_features, encode_label, quantise
from service.datasets.schema import DeclaredSchema, Schema
from tests.datasets.files import npz

TWO = ["2", "2.0", "2.", "+2", "02", " 2 ", "2e0", "0.2E1", 2, 2.0, np.int8(2), np.float32(2)]
SAME = [
    TWO,
    ["0", "-0", "-0.0", "false", "False", "FALSE", False, np.False_, 0, -0.0],
    ["1", "1.00", "true", "TRUE", " True", True, np.True_, 1],
    ["0.1", ".1", "1e-1", "0.10000000000000001", 0.1],
    ["1e22", "10000000000000000000000", 1e22, 10**22],
    ["nan", math.nan, np.float32("nan")],
    ["", "  ", None],
    ["Bonn", " Bonn"],
]
APART = [
    *(
        "2.5",
        "3",
        "20",
        "x2",
        "2 2",
        "2_0",
        "bonn",
        "yes",
        "tru",
        "e5",
        ".",
        "-",
        "1e",
        "--1",
        "inf",
    ),
    *("9007199254740993", "9007199254740992", "12345e6789", "12345e6788", "1" * 400 + ".5"),
    *("9" * 5000, "9" * 5000 + "8", "1e" + "9" * 5000, "1e-999999999"),
]


@pytest.mark.parametrize("spellings", SAME, ids=lambda group: repr(group[0]))
def test_spellings_of_a_value_are_one(spellings):
    assert len({by_value(cell) for cell in spellings}) == 1


def test_values_that_differ_stay_apart():
    firsts = [group[0] for group in SAME if group[0] != "0"]
    keys = [by_value(cell) for cell in (*APART, *firsts)]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("values", [["1", "2", "x"], [1, 2, "x"], [1.0, 2.0, "x"], [True, 2, "x"]])
def test_declared_numbers_and_texts_give_the_same_rows(values):
    s = declared(values)
    for i, spellings in enumerate((SAME[2], TWO, ["x"])):
        X = encode_features(s, columns_from_rows(s, [{"a": cell} for cell in spellings]))
        assert (X[:, 1 + i] > 0).all(), s
    assert (encode_label(s, np.array(["yes", "1"], dtype=object)) == [1, -1]).all()


def declared(categories, **more):
    return DeclaredSchema.model_validate(
        {
            "columns": [{"name": "a", "kind": "categorical", "categories": categories} | more],
            "label": {"name": "y", "kind": "binary", "positive": "yes", "negative": True},
        }
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(1, "1"), (1.0, "1"), (-2.5, "-2.5"), (True, "True"), (10**15, "1" + "0" * 15)],
)
def test_a_declared_number_is_kept_as_text(value, text):
    assert declared([value, "x"], fill=value).columns[0].categories == (text, "x")


@pytest.mark.parametrize(
    ("categories", "reason"),
    [
        (["2", "2.0"], "'2' and '2.0' are one value"),
        ([True, "1"], "'True' and '1' are one value"),
        (["TRUE", "true"], "are one value"),
        ([1, 1.0], "categories repeat: '1'"),
        ([10**15 + 1], "declare a number beyond 10.15 as text"),
        ([[1]], "valid string"),
        ([None], "valid string"),
    ],
)
def test_declared_values_that_are_one_are_refused(categories, reason):
    with pytest.raises(ValidationError, match=reason):
        declared(categories)


@pytest.mark.parametrize(
    "label",
    [
        {"name": "y", "kind": "binary", "positive": 1, "negative": "1.0"},
        {"name": "y", "kind": "categorical", "classes": ["0", "1", False]},
    ],
)
def test_so_are_labels(label):
    columns = [{"name": "a", "kind": "unbounded"}]
    with pytest.raises(ValidationError, match="are one value"):
        DeclaredSchema.model_validate({"columns": columns, "label": label})


def test_a_stored_schema_compares_by_spelling_as_ever():
    stored = {
        "columns": [{"name": "a", "kind": "categorical", "categories": ["2", "2.0", "True"]}],
        "label": {"name": "y", "kind": "binary", "positive": "1", "negative": "01"},
    }
    s = Schema.model_validate(stored)
    cells = np.array(["2", "2.0", "2.00", 2.0, True, "true", 1], dtype=object)
    hot = encode_features(s, {"a": cells})[:, 1:].argmax(axis=1)
    assert hot.tolist() == [0, 1, 3, 0, 2, 3, 3]
    assert encode_label(s, np.array(["1", "01", 1.0], dtype=object)).tolist() == [1, -1, 1]
    assert Schema.model_validate_json(s.model_dump_json()) == s


# --- every path ---

SCHEMA = {
    "columns": [
        {"name": "grade", "kind": "categorical", "categories": [1, 2, 2.5, "A", "nan"]},
        {"name": "flag", "kind": "numeric", "lower": 0, "upper": 1},
        {"name": "note", "kind": "ignored"},
    ],
    "label": {"name": "y", "kind": "categorical", "classes": [0, 1, "no"]},
    "holdout": 0,
}
written = {  # as csv.writer, pandas and polars spell them
    bool: [str, lambda v: str(v).lower(), lambda v: str(int(v))],
    float: [repr, "{:.17g}".format, "{:.3f}".format],
    int: [str, "{:.1f}".format, "{:02d}".format],
    str: [str],
}
grades = st.sampled_from([True, 1, 2, 2.0, 2.5, 3.5, "A", "B", 1.0, math.nan])
tables = st.lists(
    st.tuples(
        grades, st.sampled_from([True, False]), st.booleans(), st.sampled_from([0, 1.0, True, "no"])
    ),
    min_size=2,
    max_size=6,
)


def stored(folder, content, format_):
    source, out = folder / "source", folder / "out"
    source.write_bytes(content)
    request = ingest.IngestRequest(
        source=source,
        format=format_,
        schema=DeclaredSchema.model_validate(SCHEMA),
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
    return facts.content_mac, files


@settings(deadline=None, max_examples=50)  # it writes files
@given(rows=tables, data=st.data())
@example(rows=[(2.0, True, False, 1.0), (1, False, True, "no")], data=None)
def test_a_table_is_stored_and_predicted_alike_on_every_path(rows, data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("table")
    text = io.StringIO()
    writer = csv.writer(text)
    names = ["grade", "flag", "note", "y"]
    writer.writerow(names)
    for row in rows:
        spelled = [written[type(v)] for v in row]
        writer.writerow(
            [
                (data.draw(st.sampled_from(ways)) if data else ways[0])(v)
                for v, ways in zip(row, spelled, strict=True)
            ]
        )
    arrays = {
        name: np.array([row[i] for row in rows])
        if len({type(row[i]) for row in rows}) == 1
        else np.array([str(row[i]) for row in rows])
        for i, name in enumerate(names)
    }
    from_csv = stored(folder, text.getvalue().encode(), "csv")
    assert stored(folder, npz(**arrays), "npz") == from_csv
    s = DeclaredSchema.model_validate(SCHEMA)
    as_rows = [dict(zip(names, row, strict=True)) for row in rows]
    X = encode_features(s, columns_from_rows(s, as_rows))
    read = list(csv.DictReader(io.StringIO(text.getvalue())))
    assert np.array_equal(encode_features(s, columns_from_rows(s, read)), X)
    order = ingest.secret_order(bytes.fromhex("cd" * 32), len(rows))
    x = np.load(io.BytesIO(from_csv[1]["x.npy"]))
    assert np.array_equal(x, quantise(s, X[order]))


# --- the fingerprint ---


def macs(*columns):
    mac = ContentMac(bytes(32))
    mac.add(dict(enumerate(np.array(column, dtype=object) for column in columns)))
    return mac.hexdigest(), mac.earlier()


cells = st.sampled_from([cell for group in SAME for cell in group] + APART)


@given(cells, cells)
def test_cells_that_are_one_have_one_fingerprint(one, other):
    if by_value(one) == by_value(other):
        assert macs([one, 5])[0] == macs([other, 5])[0]


def test_booleans_are_what_changed_in_the_fingerprint():
    """Digests of contents with and without booleans, as earlier versions stored them."""
    plain = "73d73c74d7f4684200702990cad65b59883272b04168d97081daa1e19743dd4d"
    boolean = "0f2b2e4d5189b13d864dd0fc64b930ae363e2b1fc677bdb5485f78a1a989d906"
    assert macs(["1", "2.0"], ["a", None]) == (plain, plain)
    ones, words = macs([1, 0], ["a", "b"]), macs(["True", "False"], ["a", "b"])
    assert words == (ones[0], boolean)
    assert macs([True, False], ["a", "b"]) == words
    assert ones[0] == ones[1] != boolean
