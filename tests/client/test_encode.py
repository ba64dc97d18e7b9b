"""The client encodes rows for prediction as the service encoded those it fitted on: bit for bit."""

import numpy as np
import pandas
import polars
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epsilond import Model
from epsilond.encode import EncodeError, Encoder
from epsilond.tables import for_prediction
from service.datasets import encode
from service.datasets.schema import DeclaredSchema, Schema
from tests.client.tables import CATEGORIES, COLUMNS, LABELS, card, cells, rows, schemas


def theirs(schema, rows):
    """What the service makes of the rows: numbers, or the column that it refuses."""
    try:
        return encode.encode_features(schema, encode.columns_from_rows(schema, rows))
    except encode.EncodeError as refused:
        return refused.column


def ours(schema, table):
    encoder = Encoder(schema.model_dump(mode="json"))
    try:
        return encoder.encode(for_prediction(encoder, table))
    except EncodeError as refused:
        return refused.column


def same(one, other):
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    return (
        one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    )


@settings(max_examples=300)
@given(st.data(), schemas())
def test_rows_of_every_kind_of_column_are_encoded_alike(data, schema):
    drawn = data.draw(rows(schema))
    assert same(ours(schema, drawn), theirs(schema, drawn))


@settings(max_examples=200)
@given(st.sampled_from(list(COLUMNS)), st.lists(cells("categorical"), min_size=1), st.booleans())
def test_columns_without_a_fill_refuse_the_same_cells(kind, values, by_value):
    declared = {k: v for k, v in COLUMNS[kind].items() if k != "fill"}
    made = {
        "columns": [{"name": "c", "kind": kind, **declared}],
        "label": {"name": "y", "kind": "binary", **LABELS["binary"]},
    }
    schema = (DeclaredSchema if by_value else Schema).model_validate(made)
    table = [{"c": value} for value in values]
    assert same(ours(schema, table), theirs(schema, table))


NEAR = [1, True, 1.0, "True", "1", np.bool_(True), np.int8(1), False, 0, 0.0, "1_0", 10, 2e15, 2e16]
NEAR += [
    2 * 10**15,
    "2e15",
    "2000000000000000",
    np.float32(2e15),
    "1e1",
    -0.0,
    "-0",
    "é",
    "e\u0301",
]


@pytest.mark.parametrize("by", [Schema, DeclaredSchema])
@pytest.mark.parametrize("declared", [["1"], ["True", "0"], ["10"], ["2000000000000000"], ["é"]])
def test_cells_that_are_nearly_the_same_are_told_apart_alike(declared, by):
    column = {"name": "c", "kind": "categorical", "categories": declared, "fill": declared[0]}
    label = {"name": "y", "kind": "binary", **LABELS["binary"]}
    schema = by.model_validate({"columns": [column], "label": label})
    for cells_ in (NEAR, NEAR[::-1]):
        table = [{"c": cell} for cell in cells_]
        assert same(ours(schema, table), theirs(schema, table))


SCHEMA = DeclaredSchema.model_validate(
    {
        "columns": [
            {"name": "age", "kind": "numeric", "lower": 0, "upper": 100, "fill": 40},
            {"name": "rooms", "kind": "categorical", "categories": [1, 2, 3], "fill": "<other>"},
            {"name": "ward", "kind": "categorical", "categories": CATEGORIES, "fill": "A"},
            {
                "name": "flag",
                "kind": "categorical",
                "categories": ["true", "false"],
                "fill": "true",
            },
        ],
        "label": {"name": "y", "kind": "binary", "positive": "1", "negative": "0"},
    }
)
TABLE = {
    "age": [41.5, None, 7.0, 300.0],
    "rooms": [1, 2, None, 9],
    "ward": ["A", None, "2.50", "é"],
    "flag": [True, False, None, True],
}
ROWS = [dict(zip(TABLE, row, strict=True)) for row in zip(*TABLE.values(), strict=True)]


@pytest.mark.parametrize(
    "made",
    [
        lambda: pandas.DataFrame(TABLE),
        lambda: pandas.DataFrame(TABLE).convert_dtypes(),
        lambda: pandas.DataFrame(TABLE).astype({"ward": "category"}),
        lambda: pandas.DataFrame(TABLE)[list(reversed(TABLE))],
        lambda: polars.DataFrame(TABLE),
        lambda: polars.DataFrame(TABLE).with_columns(polars.col("ward").cast(polars.Categorical)),
        lambda: pyarrow.table(TABLE),
        lambda: pyarrow.RecordBatch.from_pydict(TABLE),
        lambda: {name: np.array(values, dtype=object) for name, values in TABLE.items()},
        lambda: TABLE,
        lambda: ROWS,
        lambda: np.array([list(row.values()) for row in ROWS], dtype=object),
        lambda: [list(row.values()) for row in ROWS],
    ],
)
def test_a_table_means_the_same_in_every_library(made):
    assert same(ours(SCHEMA, made()), theirs(SCHEMA, ROWS))


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({**TABLE, "agee": [1] * 4}, "column 'agee': the schema has no such column"),
        ({**TABLE, "age": [1]}, "column 'rooms': the columns differ in length"),
        ({**TABLE, "age": [1, 2, object(), 4]}, "cells are strings or numbers, not object"),
        ({**TABLE, "age": ["x"] * 4}, "row 0, column 'age': not a number: 'x'"),
        (np.ones((2, 3)), "X has 3 features, but Model is expecting 4 features as input"),
        (np.ones(4), "Reshape your data"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_would_work(table, says):
    with pytest.raises(ValueError, match=says.replace("(", r"\(")):
        Model(card(SCHEMA)).predict(table)


def test_the_label_and_ignored_columns_may_be_there():
    schema = Schema.model_validate({**SCHEMA.model_dump(), "compare_by": "value"})
    assert same(ours(schema, {**TABLE, "y": [1] * 4}), theirs(schema, ROWS))
