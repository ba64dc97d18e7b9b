"""A model card for people: what it is, what goes in, what was promised about privacy."""

from html import escape
from typing import Any

import numpy as np

from epsilond.encode import JSON
from epsilond.html import as_table
from epsilond.model import Model

SHOWN = 20
Row = dict[str, Any]


def facts(model: Model) -> Row:
    """The head of the card."""
    card, guarantee = model.card, model.card["guarantee"]
    promised = {k: v for k, v in guarantee.items() if isinstance(v, (str, int, float))}
    return {
        "predicts": model.encoder.label["name"],
        "loss": model.loss,
        "algorithm": card["algorithm"],
        **promised,
        "job": card["job"],
        "plan digest": card["plan_digest"],
    }


def columns(model: Model) -> list[Row]:
    """What goes in: every column, its bounds or values, and what stands in for a missing cell."""
    return [
        {"column": c["name"], "kind": c["kind"], "takes": _takes(c), "if missing": _missing(c)}
        for c in model.encoder.columns
    ]


def weights(model: Model) -> list[Row]:
    """The largest of a model with one weight per entry."""
    values = model.location or (model.coef_ if model.coef_.ndim == 1 else [])
    what = "location" if model.location else "weight"
    order = np.argsort(-np.abs(np.asarray(values, dtype=float)), kind="stable")[:SHOWN]
    return [{"entry": model.feature_names_in_[j], what: f"{values[j]:.6g}"} for j in order]


PROMISE = (
    "The model was fitted under differential privacy: had one record been another, each outcome would "
    "have been about as likely, as epsilon and delta bound it. The plan, whose digest is given, "
    "names every noise; the signed record of the job contains it."
)
USE = (
    "Values beyond a column's bounds are moved to them, and values outside its categories count as "
    "one, <other>. Noise was added: small weights may be nothing but noise."
)


def markdown(model: Model) -> str:
    head = [{"": name, " ": value} for name, value in facts(model).items()]
    parts = [f"# Model {model.card['job']}", _table(head), "## Privacy", PROMISE]
    parts += ["## Input", _table(columns(model)), USE]
    if rows := weights(model):
        parts += [f"## Largest weights (at most {SHOWN})", _table(rows)]
    return "\n\n".join(parts) + "\n"


def html(model: Model) -> str:
    title = escape(f"Model {model.card['job']}")
    head = [{"fact": name, "value": value} for name, value in facts(model).items()]
    parts = [f"<h1>{title}</h1>", _html(head), f"<h2>Privacy</h2><p>{escape(PROMISE)}</p>"]
    parts += ["<h2>Input</h2>", _html(columns(model)), f"<p>{escape(USE)}</p>"]
    if rows := weights(model):
        parts += [f"<h2>Largest weights (at most {SHOWN})</h2>", _html(rows)]
    body = "\n".join(parts)
    return f'<!doctype html>\n<meta charset="utf-8">\n<title>{title}</title>\n{body}\n'


def _html(rows: list[Row]) -> str:
    return as_table(rows[0], rows)


def _table(rows: list[Row]) -> str:
    names = list(rows[0])
    lines = [names, ["---"] * len(names), *([row[name] for name in names] for row in rows)]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def _cell(value: Any) -> str:
    """Text that Markdown and the HTML that it becomes take as text."""
    text = escape(str(value), quote=False).replace("\n", " ")
    return "".join(f"\\{c}" if c in "\\|`*_[]" else c for c in text)


def _takes(column: JSON) -> str:
    if column["kind"] == "categorical":
        values = column["categories"]
        return ", ".join(values[:SHOWN]) + (
            f" and {len(values) - SHOWN} more" * (len(values) > SHOWN)
        )
    if column["kind"] == "unbounded":
        return f"any number, divided by {column['scale']:g}"
    logarithmic = ", on a logarithmic scale" if column["log1p"] else ""
    return f"{column['lower']:g} to {column['upper']:g}{logarithmic}"


def _missing(column: JSON) -> str:
    fill = column.get("fill")
    return "refused" if fill is None else f"taken as {fill}"
