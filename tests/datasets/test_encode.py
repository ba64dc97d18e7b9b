"""Cells become numbers by the schema alone; stored rows keep their norm bounds exactly."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from service.datasets import encode
from service.datasets.cells import parse_number, parse_numbers
from service.datasets.encode import EncodeError, encode_features, encode_label
from service.datasets.schema import Schema

NUM = {"name": "a", "kind": "numeric", "lower": -1.0, "upper": 3.0}
LOG = {"name": "a", "kind": "numeric", "lower": 0.0, "upper": math.e - 1, "log1p": True}
CAT = {"name": "a", "kind": "categorical", "categories": ["x", "3", "?"]}
RAW = {"name": "a", "kind": "unbounded", "scale": 10.0}
BINARY = {"name": "y", "kind": "binary", "positive": "1", "negative": "no"}
NUMERIC = {"name": "y", "kind": "numeric", "lower": 0, "upper": 10}
FREE = {"name": "y", "kind": "unbounded", "scale": 10.0}
CLASSES = {"name": "y", "kind": "categorical", "classes": ["red", "7", "NA"]}


def schema(*columns: dict, label: dict = BINARY, **bounds: float) -> Schema:
    return Schema.model_validate({"columns": columns, "label": label, **bounds})


def objects(*cells: object) -> np.ndarray:
    out = np.empty(len(cells), dtype=object)
    out[:] = cells
    return out


@pytest.mark.parametrize(
    ("column", "cell", "entries"),
    [
        (NUM, "1", [0.5]),
        (NUM, " 1.0 ", [0.5]),
        (NUM, "+.1e1", [0.5]),
        (NUM, 1, [0.5]),
        (NUM, True, [0.5]),
        (NUM, " true", [0.5]),
        (NUM, "FALSE", [0.25]),
        (NUM, "-7", [0.0]),
        (NUM, 1e300, [1.0]),
        (NUM | {"fill": 1}, "N/A", [0.5]),
        (NUM | {"fill": 1}, math.nan, [0.5]),
        (NUM | {"fill": 99}, "", [1.0]),
        (LOG, str(math.sqrt(math.e) - 1), [0.5]),
        (CAT, "x", [1, 0, 0, 0]),
        (CAT, " x ", [1, 0, 0, 0]),
        (CAT, 3.0, [0, 1, 0, 0]),
        (CAT, 3, [0, 1, 0, 0]),
        (CAT, 3.5, [0, 0, 0, 1]),
        (CAT, "3.0", [0, 0, 0, 1]),  # text is compared as it is spelled: the earlier rule
        (CAT, "X", [0, 0, 0, 1]),
        (CAT, "?", [0, 0, 1, 0]),  # declared, hence not missing
        (CAT | {"fill": "x"}, "null", [1, 0, 0, 0]),
        (CAT | {"fill": "<other>"}, math.nan, [0, 0, 0, 1]),
    ],
)
@pytest.mark.parametrize("as_array", [objects, lambda *cells: np.array(cells)])
def test_a_cell_is_encoded(column, cell, entries, as_array):
    X = encode_features(schema(column), {"a": as_array(cell, cell)})
    expected = np.array([1.0, *entries]) / math.sqrt(2)
    np.testing.assert_allclose(X, [expected, expected], rtol=1e-15)


def test_none_is_a_missing_cell():
    X = encode_features(schema(NUM | {"fill": 1}), {"a": objects(None)})
    np.testing.assert_allclose(X, [[math.sqrt(0.5), 0.5 * math.sqrt(0.5)]], rtol=1e-15)


def test_unbounded_columns_are_divided_by_their_scale_and_nothing_is_normalised():
    s = schema(RAW, NUM | {"name": "b"})
    X = encode_features(s, {"a": np.array([5.0, -1e6]), "b": np.array([3.0, 1.0])})
    assert X.tolist() == [[1.0, 0.5, 1.0], [1.0, -1e5, 0.5]]


@pytest.mark.parametrize(
    ("column", "cell", "reason"),
    [
        (NUM, "", "declare `fill`"),
        (NUM, "?", "declare `fill`"),
        (NUM, "NaN", "declare `fill`"),
        (NUM, "inf", "not finite"),
        (NUM, "1e999", "not finite"),
        (NUM, "9" * 400, "not finite"),
        (NUM, "1_000", "not a number: '1_000'"),
        (NUM, "1,5", "not a number: '1,5'"),
        (NUM, "Truth", "not a number: 'Truth'"),
        (NUM, '"7"', "not a number"),
        (NUM, "[1]", "not a number"),
        (NUM, "0x10", "not a number"),
        (RAW, "-inf", "not finite"),
        (RAW | {"scale": 1e-300}, "1e300", "value/scale is not finite"),
        (CAT, "NA", "declare `fill`"),
    ],
)
def test_a_cell_is_refused_with_its_row(column, cell, reason):
    good = "x" if column is CAT else "1"
    with pytest.raises(EncodeError) as refused:
        encode_features(schema(column), {"a": objects(good, good, cell, cell)})
    assert (refused.value.row, refused.value.column) == (2, "a")
    assert reason in refused.value.reason


def test_a_reason_quotes_at_most_forty_characters_of_a_cell():
    with pytest.raises(EncodeError) as refused:
        encode_features(schema(NUM), {"a": objects("s3cret" * 1000)})
    assert len(refused.value.reason) <= len("not a number: ") + 40


@pytest.mark.parametrize(
    ("label", "cells", "y"),
    [
        (BINARY, ["1", " no "], [1, -1]),
        (BINARY | {"negative": "0"}, [1.0, 0.0], [1, -1]),
        (BINARY | {"negative": "none"}, ["1", "none"], [1, -1]),  # declared, hence not missing
        (NUMERIC, ["0", "2.5", "10", "-4", "1e9"], [-1, -0.5, 1, -1, 1]),
        (FREE, ["5", "-1e300", "0"], [0.5, -1e299, 0]),
        (CLASSES, ["7", " red ", "NA", "7"], [1, 0, 2, 1]),  # declared, hence not missing
        (CLASSES, [7.0, 7.0], [1, 1]),
        (CLASSES | {"classes": ["3", "2", "1"]}, [1, 2, 3], [2, 1, 0]),  # by declaration, not value
    ],
)
def test_labels_are_mapped_to_numbers(label, cells, y):
    assert encode_label(schema(NUM, label=label), np.array(cells)).tolist() == y


@pytest.mark.parametrize(
    ("label", "cell", "reason"),
    [
        (BINARY, "yes", "neither the positive nor the negative: 'yes'"),
        (BINARY, "", "the label is missing"),
        (NUMERIC, "", "the label is missing"),
        (CLASSES | {"classes": ["1", "2"]}, "3", "none of the classes: '3'"),
        (CLASSES | {"classes": ["1", "2"]}, "1.0", "none of the classes: '1.0'"),
        (CLASSES | {"classes": ["1", "2"]}, "NA", "the label is missing"),
        (NUMERIC, "inf", "not finite"),
        (NUMERIC, "x", "not a number"),
        (FREE, "NA", "the label is missing"),
        (FREE, "-inf", "not finite"),
        (FREE | {"scale": 1e-300}, "1e300", "value/scale is not finite"),
    ],
)
def test_a_label_is_refused(label, cell, reason):
    with pytest.raises(EncodeError, match=reason):
        encode_label(schema(NUM, label=label), objects("1", cell))


def test_a_point_is_decoded_into_the_columns_own_units():
    columns = [NUM, LOG | {"name": "l"}, CAT | {"name": "c"}]
    raw = {"a": objects(2.0), "l": objects(0.3), "c": objects("3")}
    fixed = schema(*columns)
    (x,) = encode_features(fixed, raw)
    np.testing.assert_allclose(encode.decode_point(fixed, x), [2.0, 0.3, 0, 1, 0, 0], atol=1e-12)
    unbounded = schema(*columns, RAW | {"name": "r"})
    (x,) = encode_features(unbounded, raw | {"r": objects(-70.0)})
    decoded = encode.decode_point(unbounded, x)
    np.testing.assert_allclose(decoded, [2.0, 0.3, 0, 1, 0, 0, -70.0], atol=1e-12)


@pytest.mark.parametrize("entry", [-1e300, -1.0, 0.0, 1.0, 1e300])
def test_a_decoded_point_is_finite_and_within_the_bounds(entry):
    widest = 1.7976931348623157e308
    columns = [
        LOG | {"upper": widest},
        LOG | {"name": "b", "lower": -0.9},
        {"name": "c", "kind": "numeric", "lower": 0.1, "upper": 0.7},
    ]
    for s in (schema(*columns), schema(*columns, RAW | {"name": "r", "scale": widest})):
        point = encode.decode_point(s, [entry] * s.width)
        assert np.isfinite(point).all()
        assert 0 <= point[0] <= widest and -0.9 <= point[1] <= math.e - 1
        assert 0.1 <= point[2] <= 0.7


cells = st.one_of(
    st.floats().map(repr),
    st.integers().map(str),
    st.sampled_from(["", "NA", "1_0", "007", "+5", ".5", "5.", "1e5", "1,2", "true", "[1", "2]"]),
    st.text(max_size=5),
)


@given(st.lists(cells, min_size=1, max_size=6))
def test_parsing_a_column_equals_parsing_its_cells(column):
    one_by_one = [parse_number(cell) for cell in column]
    together = parse_numbers(column)
    if None in one_by_one:
        assert together is None
    else:
        np.testing.assert_array_equal(together, np.array(one_by_one, dtype=float))


bounds = st.one_of(st.none(), st.floats(1e-9, 10.0))
adversarial = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(-1.0, 1.0),
    st.sampled_from([0.5, -0.5, 0.1, 1e-5, np.nextafter(0.5, 1), np.nextafter(0.5, 0), 1e308]),
)


@settings(max_examples=300)
@given(
    hnp.arrays(np.float64, st.tuples(st.integers(1, 5), st.just(4)), elements=adversarial),
    bounds,
    bounds,
)
def test_stored_rows_keep_both_norm_bounds_in_exact_arithmetic(X, l2, linf):
    s = schema(*(NUM | {"name": n} for n in "abc"), l2=l2, linf=linf)
    Z = encode.quantise(s, X)
    L = encode.l2_units(s)
    for row in Z.tolist():  # Python integers
        assert sum(z * z for z in row) <= L * L
        assert max(map(abs, row)) <= encode.LINF_UNITS
    assert Z.dtype == np.int16
    with np.errstate(over="ignore"):
        assert (np.abs(Z) <= np.abs(X) / encode.feature_step(s)).all(), "not towards zero"


@given(bounds, bounds, st.integers(1, 40))
def test_the_bound_in_units_never_exceeds_the_declared_one(l2, linf, columns):
    s = schema(*(NUM | {"name": f"c{j}"} for j in range(columns)), l2=l2, linf=linf)
    num, den = encode.feature_step(s).as_integer_ratio()
    l2_num, l2_den = s.l2_bound.as_integer_ratio()
    assert encode.l2_units(s) * num * l2_den <= l2_num * den
    assert encode.l2_units(s) >= encode.LINF_UNITS - 1


def test_quantising_loses_less_than_two_units_per_entry():
    s = schema(NUM, CAT | {"name": "c"})
    n = 500
    columns = {"a": np.linspace(-1, 3, n), "c": np.array(["x", "3", "?", "z"] * (n // 4))}
    X = encode_features(s, columns)
    error = np.abs(encode.quantise(s, X) * encode.feature_step(s) - X)
    assert error.max() < 2 * encode.feature_step(s)


def test_declared_bounds_clip_rows():
    s = schema(NUM, NUM | {"name": "b"}, l2=0.3, linf=0.25)
    X = encode_features(s, {"a": np.array([3.0, -1.0]), "b": np.array([3.0, 0.0])})
    assert np.abs(X).max() <= 0.25
    assert np.linalg.norm(X, axis=1).max() <= 0.3 * (1 + 1e-15)


def test_blocks_of_rows_encode_like_the_whole():
    s = schema(NUM, CAT | {"name": "c"})
    columns = {"a": np.linspace(-2, 4, 50), "c": np.array(list("x3?zy" * 10))}
    whole = encode_features(s, columns)
    parts = [
        encode_features(s, {k: v[i : i + 7] for k, v in columns.items()}) for i in range(0, 50, 7)
    ]
    assert np.array_equal(np.vstack(parts), whole)


def test_rows_that_are_not_finite_are_never_stored():
    with pytest.raises(ValueError, match="finite"):
        encode.quantise(schema(NUM), np.array([[1.0, math.nan]]))


def test_mappings_become_columns_and_absent_keys_are_missing_cells():
    s = schema(NUM | {"fill": 1}, CAT | {"name": "c"}, {"name": "skip", "kind": "ignored"})
    rows = [{"a": 3, "c": "x", "y": "no", "skip": 0}, {"c": 3.0}]
    X = encode_features(s, encode.columns_from_rows(s, rows)) * math.sqrt(3)
    np.testing.assert_allclose(X, [[1, 1, 1, 0, 0, 0], [1, 0.5, 0, 1, 0, 0]])


@pytest.mark.parametrize(
    ("row", "column", "reason"),
    [
        ({"a": 1, "b": 2}, "b", "no such column"),
        ({"a": [1]}, "a", "cells are strings or numbers"),
    ],
)
def test_a_mapping_is_refused(row, column, reason):
    with pytest.raises(EncodeError, match=reason) as refused:
        encode.columns_from_rows(schema(NUM), [{"a": 1}, row])
    assert (refused.value.row, refused.value.column) == (1, column)


def test_an_absent_column_is_refused():
    with pytest.raises(EncodeError, match="absent"):
        encode_features(schema(NUM), {})
