"""A model as one SELECT in plain SQL: CASE, EXP, LN, SQRT and ABS, which every database has.

The columns are those of the schema, numbers as numbers and categories as texts (or as integers, if
they are). NULL is a missing cell: it takes the declared fill; without one the prediction is NULL.
"""

import math

import numpy as np

from epsilond.encode import JSON, OTHER, Encoder, Floats
from epsilond.export.weights import linear, predicting
from epsilond.model import Model

MARGIN = "epsilond_margin"


def name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def number(value: float) -> str:
    """Its shortest spelling that reads back as the same float, in brackets if it is negative."""
    spelled = repr(float(value))
    if "." not in spelled:  # 1e-07
        spelled = spelled.replace("e", ".0e")
    return f"({spelled})" if spelled.startswith("-") else spelled


def margins(model: Model) -> list[str]:
    """An expression for every margin of the model."""
    encoder, scale = predicting(model).encoder, _scale(model.encoder)
    if model.network is None:
        return [_times(scale, _sum(encoder, row)) for row in linear(model)]
    units = [_sum(encoder, np.asarray(row)) for row in model.network["hidden"]]
    outer = zip(model.network["outer"], units, strict=True)
    total = " + ".join(f"{number(a / 2)} * (({u}) + ABS({u}))" for a, u in outer)  # max(0, u)
    return [f"{_times(scale, total)} + {number(model.network['offset'])}"]


def select(model: Model, table: str = "rows") -> str:
    """Every column of the table, and beside it the margins, the prediction and, of a logistic model,
    the chance of the positive class."""
    found = margins(model)
    names = [MARGIN] if len(found) == 1 else [f"{MARGIN}_{k}" for k in range(len(found))]
    inner = ",\n    ".join(f"{e} AS {n}" for e, n in zip(found, names, strict=True))
    outer = ",\n  ".join(f"{e} AS {name(n)}" for n, e in _results(model, names).items())
    margins_of = f"SELECT *,\n    {inner}\n  FROM {name(table)}"  # noqa: S608 - every name is quoted
    return f"SELECT *,\n  {outer}\nFROM (\n  {margins_of}\n) AS m\n"


def _results(model: Model, margins: list[str]) -> dict[str, str]:
    label = model.encoder.label
    predicted, classes = f"{label['name']} predicted", model.encoder.classes
    first = margins[0]
    if classes is not None and len(margins) == 1:
        no, yes = map(literal, classes)
        found = {predicted: f"CASE WHEN {first} > 0 THEN {yes} WHEN {first} <= 0 THEN {no} END"}
        if model.probabilistic:
            found[f"{label['name']} chance"] = f"1.0 / (1.0 + EXP(-({first})))"
        return found
    if classes is not None:
        cases = " ".join(
            f"WHEN {' AND '.join(f'{mine} >= {other}' for other in margins if other != mine)} "
            f"THEN {literal(value)}"
            for mine, value in zip(margins, classes, strict=True)
        )
        return {predicted: f"CASE {cases} END"}
    value = f"{first} * {first}" if model.loss == "phase_retrieval" else first
    if label["kind"] == "unbounded":
        return {predicted: f"({value}) * {number(label['scale'])}"}
    half = (label["upper"] - label["lower"]) / 2
    within = _clipped(value, -1.0, 1.0)
    return {predicted: f"{number(label['lower'])} + (({within}) + 1.0) * {number(half)}"}


def _sum(encoder: Encoder, weights: Floats) -> str:
    """The sum of weights times entries, before a row is shortened to l2."""
    unit, terms, j = _unit(encoder), [number(weights[0] * _unit(encoder))], 1
    for column in encoder.columns:
        if column["kind"] == "categorical":
            values = (*column["categories"], OTHER)
            terms.append(_chosen(column, weights[j : j + len(values)] * unit))
            j += len(values)
        else:
            terms.append(f"{number(weights[j])} * ({_entry(encoder, column)})")
            j += 1
    return " + ".join(terms)


def _unit(encoder: Encoder) -> float:
    """What an indicator is worth in an encoded row."""
    return min(1 / math.sqrt(encoder.blocks), encoder.linf) if encoder.fixed else 1.0


def _entry(encoder: Encoder, column: JSON) -> str:
    raw = name(column["name"])
    if column.get("fill") is not None:
        raw = f"COALESCE({raw}, {number(column['fill'])})"
    if column["kind"] == "unbounded":
        return f"{raw} / {number(column['scale'])}"
    lower, upper = float(column["lower"]), float(column["upper"])
    raw = _clipped(raw, lower, upper)
    if column["log1p"]:
        raw, lower, upper = f"LN(1.0 + {raw})", math.log1p(lower), math.log1p(upper)
    width = (upper - lower) * (math.sqrt(encoder.blocks) if encoder.fixed else 1.0)
    share = f"(({raw}) - {number(lower)}) / {number(width)}"
    return _clipped(share, 0.0, encoder.linf) if encoder.clips else share


def _clipped(value: str, lower: float, upper: float) -> str:
    low, high = number(lower), number(upper)
    return (
        f"CASE WHEN {value} < {low} THEN {low} WHEN {value} > {high} THEN {high} ELSE {value} END"
    )


def _chosen(column: JSON, weights: Floats) -> str:
    """The weight of the cell's category."""
    raw, fill = name(column["name"]), column.get("fill")
    worth = dict(zip((*column["categories"], OTHER), map(number, weights), strict=True))
    missing = "NULL" if fill is None else worth[fill]
    cases = [f"WHEN {raw} = {literal(v)} THEN {worth[v]}" for v in column["categories"]]
    return (
        f"CASE WHEN {raw} IS NULL THEN {missing} {' '.join(cases)} ELSE {number(weights[-1])} END"
    )


def _scale(encoder: Encoder) -> str | None:
    """By what a row is shortened to its l2 bound; None if no row can be longer."""
    if not encoder.clips:
        return None
    kinds = [column["kind"] == "categorical" for column in encoder.columns]
    squares = [number(_unit(encoder) ** 2 * (1 + sum(kinds)))]
    for column, categorical in zip(encoder.columns, kinds, strict=True):
        if not categorical:
            entry = _entry(encoder, column)
            squares.append(f"({entry}) * ({entry})")
    total, l2 = " + ".join(squares), encoder.l2
    return f"CASE WHEN {total} > {number(l2**2)} THEN {number(l2)} / SQRT({total}) ELSE 1.0 END"


def _times(scale: str | None, value: str) -> str:
    return value if scale is None else f"({scale}) * ({value})"
