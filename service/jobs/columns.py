"""The columns of a schema as a job's summaries name them: how they are stored, and what numbers mean
in the owner's units."""

from collections.abc import Callable
from math import expm1, log1p, sqrt

from service.datasets.schema import (
    OTHER,
    BinaryLabel,
    CategoricalColumn,
    CategoricalLabel,
    EncodedColumn,
    Label,
    NumericColumn,
    NumericLabel,
    Schema,
    UnboundedColumn,
    UnboundedLabel,
)
from service.planning.spec import JobSpec
from service.planning.summaries import ColumnFacts
from service.planning.tables import LABEL

Declared = EncodedColumn | Label


def described(schema: Schema, spec: JobSpec) -> tuple[ColumnFacts, ...]:
    """Those that the job's summaries or evaluation name, in the schema's order; the label last."""
    named = {name for asked in spec.summaries for name in asked.names()}
    named |= {spec.evaluate.by} if spec.evaluate and spec.evaluate.by else set()
    if not named:
        return ()
    named |= {schema.label.name} if None in named else set()
    found, position = [], 1
    for column in schema.encoded:
        width = len(column.categories) + 1 if isinstance(column, CategoricalColumn) else 1
        if column.name in named:
            found.append(_column(schema, column, position, width))
        position += width
    if schema.label.name in named:
        found.append(_label(schema.label))
    return tuple(found)


def _column(schema: Schema, column: EncodedColumn, position: int, cells: int) -> ColumnFacts:
    scale = column.scale if isinstance(column, UnboundedColumn) else 1.0
    high = 1.0
    if schema.storage == "fixed":  # in units of the constant, which a bound may have made smaller
        high = 1 / min(schema.linf_bound * sqrt(schema.blocks), 1.0)
    return ColumnFacts(
        name=column.name, kind=column.kind, position=position, cells=cells, high=high, scale=scale
    )


def _label(label: Label) -> ColumnFacts:
    cells = len(label.classes) if isinstance(label, CategoricalLabel) else 1
    return ColumnFacts(
        name=label.name,
        kind=label.kind,
        position=LABEL,
        cells=2 if isinstance(label, BinaryLabel) else cells,
        low=-1.0,
        scale=label.scale if isinstance(label, UnboundedLabel) else 1.0,
    )


def declared(schema: Schema, name: str | None) -> Declared:
    """The column of this name, or the label."""
    return next((column for column in schema.encoded if column.name == name), schema.label)


def names_of(column: Declared) -> list[str]:
    """Of a column's categories or a label's values, in the order of cells."""
    if isinstance(column, CategoricalColumn):
        return [*column.categories, OTHER]
    if isinstance(column, CategoricalLabel):
        return list(column.classes)
    assert isinstance(column, BinaryLabel)
    return [column.negative, column.positive]


def decoder(column: Declared) -> Callable[[float], float]:
    """From a share of a bounded column's range, as it is stored, to the owner's units."""
    assert isinstance(column, NumericColumn | NumericLabel)
    lower, upper, back = column.lower, column.upper, float
    if isinstance(column, NumericColumn) and column.log1p:
        lower, upper, back = log1p(lower), log1p(upper), expm1  # type: ignore[assignment]
    return lambda share: min(max(back(lower + share * (upper - lower)), column.lower), column.upper)
