"""A model that was taken away predicts what its card predicts, in every format."""

import io
import math
import sqlite3
import zipfile
from html.parser import HTMLParser

import numpy as np
import onnxruntime
import pytest
import safetensors.numpy
import skops.io
from hypothesis import given, settings
from hypothesis import strategies as st

from epsilond import Model, export
from epsilond.encode import Encoder
from epsilond.export import safetensors as tensors
from epsilond.export import sql
from epsilond.export.estimator import TRUSTED
from service.datasets.schema import DeclaredSchema
from tests.client.tables import CATEGORIES, COLUMNS, LABELS, card, rows, schemas

LOSSES = {"binary": ("logistic", "hinge"), "categorical": ("softmax",)}


@st.composite
def models(draw):
    """Linear models of every kind of label, and networks."""
    schema = draw(schemas())
    kind = schema.label.kind
    loss = draw(st.sampled_from(LOSSES.get(kind, ("squared", "phase_retrieval"))))
    network = 0 if kind == "categorical" else draw(st.sampled_from([0, 0, 3]))
    return schema, Model(card(schema, loss, network, seed=draw(st.integers(0, 99))))


def cells(kind):
    """As a database or a program has them: numbers, texts, nothing."""
    if kind == "categorical":
        return st.sampled_from([*CATEGORIES, "zz", None])
    return st.one_of(st.floats(-20, 20), st.none())


def drawn(data, schema):
    table = data.draw(rows(schema, cell=cells))
    return [{c.name: row.get(c.name) for c in schema.encoded} for row in table]


def as_inputs(schema, table):
    def column(declared):
        found = [row[declared.name] for row in table]
        if declared.kind == "categorical":
            return np.array([["" if cell is None else cell] for cell in found], dtype=object)
        return np.array([[math.nan if cell is None else cell] for cell in found], dtype=float)

    return {c.name: column(c) for c in schema.encoded}


@settings(max_examples=60, deadline=None)
@given(st.data(), models())
def test_onnx_predicts_what_the_card_does(data, drawn_model):
    schema, model = drawn_model
    table = drawn(data, schema)
    session = onnxruntime.InferenceSession(export.write(model, "onnx"))
    names = [one.name for one in session.get_outputs()]
    found = dict(zip(names, session.run(None, as_inputs(schema, table)), strict=True))
    scores = model.decision_function(table)
    assert found["margin"].reshape(scores.shape) == pytest.approx(scores, rel=1e-6, abs=1e-6)
    if model.probabilistic:
        assert found["probability"] == pytest.approx(model.predict_proba(table), abs=1e-6)
    if model.encoder.classes is None:
        assert found["value"][:, 0] == pytest.approx(model.predict(table), rel=1e-6, abs=1e-6)
    else:
        sure = certain(scores)
        assert list(found["label"][sure]) == list(model.predict(table)[sure])


def certain(scores):
    """Where rounding cannot turn the prediction."""
    if scores.ndim == 1:
        return np.abs(scores) > 1e-6
    first, second = np.sort(scores, axis=1)[:, :-3:-1].T
    return first - second > 1e-6


def database(schema, table):
    connection = sqlite3.connect(":memory:")
    for name, function in {"LN": math.log, "EXP": math.exp, "SQRT": math.sqrt}.items():
        connection.create_function(name, 1, lambda v, f=function: None if v is None else f(v))
    columns = ", ".join(
        f"{sql.name(c.name)} {'TEXT' if c.kind == 'categorical' else 'REAL'}"
        for c in schema.encoded
    )
    connection.execute(f"CREATE TABLE rows ({columns})")
    marks = ", ".join("?" for _ in schema.encoded)
    connection.executemany(
        f"INSERT INTO rows VALUES ({marks})",
        [tuple(row[c.name] for c in schema.encoded) for row in table],
    )
    return connection


def predicted_by(connection, statement):
    found = connection.execute(statement)
    names = [column[0] for column in found.description]
    columns = dict(zip(names, zip(*found.fetchall(), strict=True), strict=True))
    connection.close()
    return columns


@settings(max_examples=100, deadline=None)
@given(st.data(), models())
def test_sql_predicts_what_the_card_does(data, drawn_model):
    schema, model = drawn_model
    table = drawn(data, schema)
    found = predicted_by(database(schema, table), sql.select(model))
    scores = model.decision_function(table)
    margins = np.array([v for name, v in found.items() if name.startswith(sql.MARGIN)])
    assert margins.T.reshape(scores.shape) == pytest.approx(scores, rel=1e-9, abs=1e-9)
    if "y chance" in found:
        assert found["y chance"] == pytest.approx(model.predict_proba(table)[:, 1], abs=1e-9)
    if model.encoder.classes is None:
        assert found["y predicted"] == pytest.approx(model.predict(table), rel=1e-9, abs=1e-9)
    else:
        sure = certain(scores)
        assert list(np.array(found["y predicted"])[sure]) == list(model.predict(table)[sure])


HOSTILE = "x\"; DROP TABLE rows; --'<b>|`"


def hostile(fill):
    columns = [
        {"name": HOSTILE, "kind": "categorical", "categories": [HOSTILE, "B"], "fill": fill},
        {"name": "age", "kind": "numeric", "lower": 0, "upper": 10, "fill": fill and 1},
    ]
    label = {"name": HOSTILE + "y", "kind": "binary", "positive": HOSTILE, "negative": "no"}
    return DeclaredSchema.model_validate({"columns": columns, "label": label})


def test_names_and_values_are_texts_wherever_they_stand():
    schema = hostile("B")
    model = Model(card(schema))
    table = [{HOSTILE: HOSTILE, "age": 3}, {HOSTILE: "B", "age": None}, {HOSTILE: None, "age": 99}]
    found = predicted_by(database(schema, table), sql.select(model))
    assert list(found[f"{HOSTILE}y predicted"]) == list(model.predict(table))
    session = onnxruntime.InferenceSession(export.write(model, "onnx"))
    label = session.run(["label"], as_inputs(schema, table))[0]
    assert list(label) == list(model.predict(table))
    page = export.write(model, "html").decode()
    tags = []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, _: tags.append(tag)
    parser.feed(page)
    assert "b" not in tags and "&lt;b&gt;" in page
    text = export.write(model, "markdown").decode()
    assert "<b>" not in text and "\\|" in text


def test_without_a_fill_a_missing_cell_has_no_prediction():
    schema = hostile(None)
    model, table = Model(card(schema)), [{HOSTILE: None, "age": 3}, {HOSTILE: "B", "age": None}]
    found = predicted_by(database(schema, table), sql.select(model))
    assert found[sql.MARGIN] == found[f"{HOSTILE}y predicted"] == (None, None)
    session = onnxruntime.InferenceSession(export.write(model, "onnx"))
    assert np.isnan(session.run(["margin"], as_inputs(schema, table))[0]).all()


@settings(max_examples=25, deadline=None)
@given(st.data(), models())
def test_a_fitted_estimator_is_read_back_and_predicts_the_same_to_the_bit(data, drawn_model):
    schema, model = drawn_model
    table = drawn(data, schema)
    read = skops.io.loads(export.write(model, "skops"), trusted=TRUSTED)
    assert np.array_equal(read.predict(table).astype(str), model.predict(table).astype(str))
    if hasattr(read, "predict_proba"):
        assert np.array_equal(read.predict_proba(table), model.predict_proba(table))


@settings(max_examples=50, deadline=None)
@given(models())
def test_safetensors_hold_the_whole_card(drawn_model):
    _, model = drawn_model
    data = export.write(model, "safetensors")
    held = safetensors.numpy.load(data)
    if model.network is None:
        assert np.array_equal(held["coef_"], model.coef_)
        assert np.array_equal(held["intercept_"], model.intercept_)
    else:
        assert np.array_equal(held["hidden"], model.network["hidden"])
    assert tensors.read(data).card == model.card


def every_column():
    columns = [{"name": k, "kind": k, **more} for k, more in COLUMNS.items()]
    label = {"name": "y", "kind": "numeric", **LABELS["numeric"]}
    return DeclaredSchema.model_validate({"columns": columns, "label": label})


@pytest.mark.parametrize("format_", ["markdown", "html"])
def test_a_model_card_says_what_goes_in_and_what_was_promised(format_):
    text = export.write(Model(card(every_column(), "squared")), format_).decode()
    for words in ("job_1", "job\\_1"):
        text = text.replace(words, "JOB")
    said = (
        "JOB",
        "epsilon",
        "0.5",
        "1e-06",
        "-3 to 7.5",
        "on a logarithmic scale",
        "taken as 1.25",
    )
    assert [words for words in said if words not in text] == []


def test_what_predicts_nothing_is_refused_and_what_there_is_is_named():
    centre = Model(
        card(every_column()) | {"coef_": None, "intercept_": None, "location": [0.5] * 10}
    )
    for format_ in ("onnx", "sql"):
        with pytest.raises(TypeError, match="only what predicts can be written so"):
            export.write(centre, format_)
    assert b"location" in export.write(centre, "markdown")
    assert tensors.read(export.write(centre, "safetensors")).card == centre.card
    with pytest.raises(ValueError, match="no format 'pickle'; there are onnx, sql"):
        export.write(centre, "pickle")


def test_a_card_of_summaries_shows_itself_and_predicts_nothing():
    told = [{"kind": "counts", "column": "ward", "cells": []}]
    nothing = {"coef_": None, "intercept_": None, "loss": None, "summaries": told}
    model = Model(card(every_column()) | nothing)
    assert "summaries" in repr(model) and "job_1" in model._repr_html_()
    assert b"job" in export.write(model, "html") and model.summaries == told
    with pytest.raises(TypeError, match="predicts nothing"):
        model.predict([])


def test_nothing_is_a_pickle():
    model = Model(card(every_column(), "squared"))
    for format_ in export.EXPORTERS:
        parts = [export.write(model, format_)]
        if zipfile.is_zipfile(file := io.BytesIO(parts[0])):
            with zipfile.ZipFile(file) as archive:
                parts += map(archive.read, archive.namelist())
        assert not any(part.startswith(b"\x80") or b"pickle" in part for part in parts)
    assert Encoder(model.card["encoder"]).features == model.feature_names_in_
