"""What an owner may declare, and what follows from it without looking at a row."""

import math

import pytest
from pydantic import ValidationError

from service.datasets.schema import Schema

AGE = {"name": "age", "kind": "numeric", "lower": 0, "upper": 100}
INCOME = {"name": "income", "kind": "unbounded", "scale": 1000}
CITY = {"name": "city", "kind": "categorical", "categories": ["Bonn", "Köln"]}
NOTE = {"name": "note", "kind": "ignored"}
LABEL = {"name": "y", "kind": "binary", "positive": "yes", "negative": "no"}
CLASSES = {"name": "y", "kind": "categorical", "classes": ["a", "b", "c"]}


def schema(*columns: dict, label: dict = LABEL, **bounds: float) -> Schema:
    return Schema.model_validate({"columns": columns, "label": label, **bounds})


def test_features_are_named_in_encoded_order_with_the_intercept_first():
    s = schema(AGE, NOTE, CITY)
    assert s.feature_names == ("(intercept)", "age", "city=Bonn", "city=Köln", "city=<other>")
    assert (s.width, s.blocks, s.storage) == (5, 3, "fixed")


@pytest.mark.parametrize(
    ("declared", "l2", "linf"),
    [
        ({}, 1.0, 1 / math.sqrt(3)),
        ({"l2": 0.5}, 0.5, 0.5),  # no entry exceeds the row's norm
        ({"linf": 0.1}, 1.0, 0.1),
        ({"l2": 7.0, "linf": 7.0}, 1.0, 1 / math.sqrt(3)),  # unattainable bounds are tightened
    ],
)
def test_norm_bounds_follow_from_the_declaration(declared, l2, linf):
    s = schema(AGE, CITY, **declared)
    assert (s.l2_bound, s.linf_bound) == (l2, linf)


def test_one_unbounded_column_makes_the_storage_float64_without_norm_bounds():
    s = schema(AGE, INCOME)
    assert s.storage == "float64"
    with pytest.raises(ValueError, match="no row-norm bound"):
        _ = s.l2_bound


def test_an_unbounded_label_leaves_the_rows_their_bounds():
    s = schema(AGE, label={"name": "y", "kind": "unbounded"})
    assert (s.storage, s.label.scale) == ("fixed", 1.0)
    with pytest.raises(ValidationError, match=r'never inferred.*kind: "unbounded"'):
        schema(AGE, label={"name": "y", "kind": "numeric"})


def test_the_number_of_classes_is_the_declared_one():
    assert (schema(AGE, label=CLASSES).classes, schema(AGE).classes) == (3, None)


@pytest.mark.parametrize(
    ("columns", "extra", "message"),
    [
        ([{"name": "a", "kind": "numeric"}], {}, 'never inferred.*kind: "unbounded"'),
        ([{"name": "a", "kind": "numeric", "lower": 0}], {}, "bounds must be declared"),
        ([AGE | {"lower": 100}], {}, "lower must be below upper"),
        ([AGE | {"upper": math.inf}], {}, "finite number"),
        ([AGE | {"lower": -1e308, "upper": 1e308}], {}, "overflows"),
        ([AGE | {"lower": -1, "log1p": True}], {}, "log1p needs lower > -1"),
        ([AGE | {"lower": 1e17, "upper": 1e17 + 16, "log1p": True}], {}, "coincide"),
        ([AGE | {"uper": 3}], {}, "Extra inputs"),
        ([INCOME | {"scale": 0}], {}, "greater than 0"),
        ([CITY | {"categories": []}], {}, "at least 1 item"),
        ([CITY | {"categories": ["a", " a "]}], {}, "categories repeat: 'a'"),
        ([CITY | {"categories": ["<other>"]}], {}, "reserved"),
        ([CITY | {"fill": "Bon"}], {}, "fill must be one of"),
        ([NOTE], {}, "at least one column must not be ignored"),
        ([AGE, AGE], {}, "column names repeat: 'age'"),
        ([AGE | {"name": "y"}], {}, "column names repeat: 'y'"),
        ([AGE | {"name": "city=Bonn"}, CITY], {}, "feature names collide"),
        ([AGE | {"name": "(intercept)"}], {}, "feature names collide"),
        ([INCOME], {"l2": 1.0}, "only clipping of each gradient protects"),
        ([INCOME], {"linf": 1.0}, "only clipping of each gradient protects"),
        ([AGE], {"l2": 0}, "greater than or equal"),
        ([AGE], {"label": LABEL | {"negative": "yes"}}, "must differ"),
        ([AGE], {"label": {"name": "y", "kind": "numeric"}}, "bounds must be declared"),
        ([AGE], {"label": CLASSES | {"classes": ["a"]}}, "at least 2 items"),
        ([AGE], {"label": CLASSES | {"classes": ["a", "b", " a "]}}, "classes repeat: 'a'"),
        ([AGE], {"label": CLASSES | {"classes": ["a", " "]}}, "at least 1 character"),
        (
            [AGE],
            {"label": CLASSES | {"classes": [str(k) for k in range(1001)]}},
            "at most 1000 items",
        ),
        (
            [
                {**CITY, "categories": [str(j) for j in range(999)]}
            ],  # and <other>, and the intercept
            {"label": CLASSES | {"classes": [str(k) for k in range(1000)]}},
            "1001000 features times classes; the most is 1000000",
        ),
        (
            [
                {**CITY, "name": f"c{i}", "categories": [str(j) for j in range(9999)]}
                for i in range(11)
            ],
            {},
            "the most is 100000",
        ),
    ],
)
def test_a_declaration_is_refused(columns, extra, message):
    with pytest.raises(ValidationError, match=message):
        Schema.model_validate({"columns": columns, "label": LABEL} | extra)


def test_a_schema_survives_json_and_cannot_be_changed():
    s = schema(AGE, CITY, l2=0.5)
    assert Schema.model_validate_json(s.model_dump_json()) == s
    classes = schema(AGE, label=CLASSES)
    assert Schema.model_validate_json(classes.model_dump_json()) == classes
    with pytest.raises(ValidationError, match="frozen"):
        s.l2 = 1.0
