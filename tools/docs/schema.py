"""docs/schema.md: how a dataset is declared, and the formats that it may be sent in."""

from typing import Any, get_args

from pydantic import BaseModel

from service.datasets import encode
from service.datasets import schema as declared
from service.datasets.cells import MISSING
from service.datasets.formats import FORMATS
from service.datasets.schema import Column, DeclaredSchema, Label
from tools.docs.markdown import doc, escaped, example, names, own_fields, table, written

PAGE = "docs/schema.md"
SOURCE = "service/datasets/schema.py"
INTRODUCTION = """# The schema of a dataset

An owner declares the public facts of a dataset before its rows are sent: `POST /v1/datasets` with a
`name` and a `schema`. Everything in a schema may be published and nothing of it is ever inferred from
the data, because a minimum, a maximum or a list of categories that was read off the rows would be a
release without noise. Analysts see the schema; they never see a row.

"""
ENCODING = f"""## From cells to numbers

- A row has an intercept and one block per column in use; `ignored` columns are not encoded.
- A numeric column is clipped to its bounds and scaled to [0, 1]. A categorical column is one
  indicator per category and one more, `{declared.OTHER}`. An unbounded column is divided by its scale.
- With b blocks, every entry is divided by sqrt(b), so that an entry is at most 1/sqrt(b) and a row's
  l2 norm at most 1. Smaller bounds may be declared as `l2` and `linf`; rows are then clipped to them.
- Rows are stored as integers of up to {encode.LINF_UNITS} units per entry, with their norm checked in
  integers. As soon as one column is `unbounded`, rows are stored as float64 and have no norm bound;
  only algorithms that clip each gradient take them ([heavy tails](heavy-tails.md)).
- A missing cell is empty, NaN or one of {names(sorted(MISSING - {""}))} (in any
  case), unless that word was declared as a value. It refuses the file unless the column has a `fill`;
  a missing label always does.
- Categories, classes and the values of a binary label are compared by value, in every file format and
  in the rows of a prediction alike: `2`, `2.0`, `02` and `"2"` are one, and so are `1`, `true` and
  `TRUE`. Texts are compared as they are, without the blanks around them. They may be declared as
  numbers or booleans, and are kept as text. In a numeric column true is 1 and false 0. Datasets that
  were declared before `compare_by` was there compare texts as they are spelled (`spelling`).
- At most {declared.MAX_WIDTH:,} features, {declared.MAX_CATEGORIES:,} categories per column,
  {declared.MAX_CLASSES:,} classes, and {declared.MAX_WEIGHTS:,} features times classes.

"""
FORMATS_TAKEN = """## Formats

`PUT /v1/datasets/ID/data` takes the rows, by their content type:

"""
NAMES = """
The order of columns does not matter. A column that the schema does not name refuses the file, as does
one that is missing, unless it is `ignored`.
"""
EXAMPLES: dict[type[BaseModel], dict[str, Any]] = {
    declared.NumericColumn: {
        "name": "income",
        "kind": "numeric",
        "lower": 0,
        "upper": 250000,
        "log1p": True,
        "fill": 20000,
    },
    declared.UnboundedColumn: {"name": "claim", "kind": "unbounded", "scale": 1000.0, "fill": 0},
    declared.CategoricalColumn: {
        "name": "ward",
        "kind": "categorical",
        "categories": ["A", "B", "C"],
        "fill": declared.OTHER,
    },
    declared.IgnoredColumn: {"name": "note", "kind": "ignored"},
    declared.BinaryLabel: {
        "name": "returned",
        "kind": "binary",
        "positive": "yes",
        "negative": "no",
    },
    declared.NumericLabel: {"name": "days", "kind": "numeric", "lower": 0, "upper": 60},
    declared.UnboundedLabel: {"name": "cost", "kind": "unbounded", "scale": 1000.0},
    declared.CategoricalLabel: {
        "name": "outcome",
        "kind": "categorical",
        "classes": ["home", "care", "died"],
    },
}


def pages() -> dict[str, str]:
    whole = {
        "columns": [EXAMPLES[column] for column in kinds(Column)],
        "label": EXAMPLES[declared.BinaryLabel],
    }
    DeclaredSchema.model_validate(whole)
    fields = own_fields(DeclaredSchema)
    text = (
        written(f"{SOURCE} and service/datasets/formats")
        + INTRODUCTION
        + f"{escaped(doc(DeclaredSchema))}\n\n{fields}\n{example(whole)}\n"
        + f"## Columns\n\n{''.join(map(section, kinds(Column)))}"
        + f"## Labels\n\n{''.join(map(section, kinds(Label)))}"
        + ENCODING
        + f"{FORMATS_TAKEN}{formats()}{NAMES}"
    )
    return {PAGE: text}


def section(model: type[BaseModel]) -> str:
    kind = model.model_fields["kind"].default
    shown = EXAMPLES[model]
    model.model_validate(shown)
    return f"### `{kind}`\n\n{escaped(doc(model))}\n\n{own_fields(model)}\n{example(shown)}\n"


def formats() -> str:
    rows = [[one.name, one.summary, names(one.media_types), names(one.suffixes)] for one in FORMATS]
    return table(["format", "a file of it", "content types", "names end in"], rows)


def kinds(union: Any) -> tuple[type[BaseModel], ...]:
    """The members of a union that its kind tells apart."""
    return get_args(get_args(union)[0])
