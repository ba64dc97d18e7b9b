"""Schemas of every kind of column, and rows for them: what the client's tests draw from."""

import numpy as np
from hypothesis import strategies as st

from service.datasets.schema import DeclaredSchema, Schema

CATEGORIES = ["A", "1", "2.5", "false", "NA", "é"]
WORDS = [
    "A",
    " A",
    "1",
    "1.0",
    "01",
    "+1",
    "2.5",
    "2.50",
    "true",
    "TRUE",
    "",
    "NA",
    "nan",
    "?",
    "zz",
]
NUMBERS = st.one_of(
    st.floats(-20, 20),
    st.integers(-20, 20),
    st.sampled_from(
        [0.1, -0.0, 1e-300, 1e15, True, False, np.float32(0.1), np.int8(3), np.bool_(1)]
    ),
)
SPELLED = st.sampled_from(["3", " 3 ", "1e1", "-2.5", "true", "False", "007", ".5", "1e-7", "1_0"])
MISSING = st.sampled_from([None, "", "NA", float("nan"), np.float64("nan")])


def cells(kind):
    if kind == "categorical":
        return st.one_of(st.sampled_from(WORDS), NUMBERS, MISSING)
    return st.one_of(NUMBERS, SPELLED, MISSING)


COLUMNS = {
    "numeric": {"lower": -3.0, "upper": 7.5, "fill": 1.25},
    "logarithmic": {"kind": "numeric", "lower": 0, "upper": 1000, "log1p": True, "fill": 3},
    "unbounded": {"scale": 0.37, "fill": -1.0},
    "categorical": {"categories": CATEGORIES, "fill": "<other>"},
}
LABELS = {
    "binary": {"positive": "yes", "negative": "no"},
    "categorical": {"classes": ["a", "b", "c"]},
    "numeric": {"lower": -2.0, "upper": 9.0},
    "unbounded": {"scale": 3.0},
}


@st.composite
def schemas(draw, columns=tuple(COLUMNS), labels=tuple(LABELS)):
    kinds = draw(st.lists(st.sampled_from(columns), min_size=1, max_size=4))
    label = draw(st.sampled_from(labels))
    fixed = "unbounded" not in kinds
    declared = {
        "columns": [{"name": "skipped", "kind": "ignored"}]
        + [{"name": f"{kind} {i}", "kind": kind, **COLUMNS[kind]} for i, kind in enumerate(kinds)],
        "label": {"name": "y", "kind": label, **LABELS[label]},
        "l2": draw(st.sampled_from([None, 0.7, 0.9])) if fixed else None,
        "linf": draw(st.sampled_from([None, 0.4])) if fixed else None,
    }
    by = draw(st.sampled_from([Schema, DeclaredSchema]))
    return by.model_validate(declared)


@st.composite
def rows(draw, schema, most=6, cell=cells):
    """Some rows as mappings; now and then a cell is absent."""
    row = st.fixed_dictionaries({}, optional={c.name: cell(kind(c)) for c in schema.encoded})
    return draw(st.lists(row, min_size=1, max_size=most))


def kind(column):
    return "categorical" if column.kind == "categorical" else "number"


def card(schema, loss="logistic", network=0, seed=0):
    """A card with drawn weights, as the service would publish it for this schema."""
    rng = np.random.default_rng(seed)
    d, label = schema.width, schema.label
    named = {
        "binary": lambda: [label.negative, label.positive],
        "categorical": lambda: list(label.classes),
    }
    classes = named.get(label.kind, lambda: None)()
    many = len(classes) if label.kind == "categorical" else None
    shape = (d - 1,) if many is None else (many, d - 1)
    linear = not network
    return {
        "object": "model",
        "job": "job_1",
        "algorithm": "clipped-sgd",
        "loss": {"kind": loss},
        "coef_": (5 * rng.normal(size=shape)).tolist() if linear else None,
        "intercept_": rng.normal(size=shape[:-1]).tolist() if linear else None,
        "network": None
        if linear
        else {
            "hidden": rng.normal(size=(network, d)).tolist(),
            "outer": rng.normal(size=network).tolist(),
            "offset": 0.1,
        },
        "classes_": classes,
        "location": None,
        "certificate": None,
        "feature_names_in_": list(schema.feature_names[1:]),
        "encoder": schema.model_dump(mode="json"),
        "guarantee": {"epsilon": 0.5, "delta": 1e-6},
        "plan_digest": "0" * 64,
    }
