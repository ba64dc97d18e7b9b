"""The public facts an owner declares about a dataset, and all that follows from them.

Everything in a Schema may be published, and nothing in it is ever inferred from the data: a
minimum, a maximum or a list of categories read off the rows would itself be a release, made
without noise and charged to nobody. So a numeric column without bounds is an error, not a scan.

From the declaration follow, without looking at a row, the encoded width d, the names of the d
features, and the row-norm bounds on which every sensitivity rests:

    blocks   b   the intercept plus one per column in use; an encoded row has at most b entries
                 that are not zero, each in [0, 1] before scaling
    linf         every entry is divided by the public constant sqrt(b), hence linf = 1/sqrt(b)
    l2           sqrt(b * (1/sqrt(b))^2) = 1

Owners may declare smaller bounds; rows are then clipped to them when they are encoded.
"""

import math
from collections import Counter
from functools import cached_property
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from service.datasets.cells import EXACT, KEYS, CompareBy, declared_text

MAX_WIDTH = 100_000
MAX_CATEGORIES = 10_000
MAX_CLASSES = 1000
MAX_WEIGHTS = 1_000_000
MAX_NAMES = 4_000_000
INTERCEPT = "(intercept)"
OTHER = "<other>"
"""The indicator of values outside the declared categories; no category may have this name."""

_NO_BOUNDS = (
    "bounds must be declared: give lower and upper. They are never inferred from the data, "
    "because a bound read off the rows is a release without noise"
)

Text = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=200),
    Field(json_schema_extra={"pattern": r"\S"}),  # what is left of it must not be empty
]
Value = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=200),
    BeforeValidator(declared_text),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "minLength": 1, "maxLength": 200, "pattern": r"\S"},
                {"type": "number", "minimum": -EXACT, "maximum": EXACT},
                {"type": "boolean"},
            ]
        }
    ),
]
"""A category or a label's value: text. A number or a boolean may be declared and is kept as text."""
NormBound = Annotated[float, Field(ge=1e-9)]
"""Positive; the floor keeps the fixed-point step far away from subnormal numbers."""


class _Declared(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _require_bounds(data: Any, advice: str) -> Any:
    if isinstance(data, dict) and (data.get("lower") is None or data.get("upper") is None):
        raise ValueError(_NO_BOUNDS + advice)
    return data


def _check_interval(lower: float, upper: float) -> None:
    if not lower < upper:
        raise ValueError("lower must be below upper")
    if not math.isfinite(upper - lower):
        raise ValueError("upper - lower overflows a float64; declare a narrower interval")


class NumericColumn(_Declared):
    """A number clipped to [lower, upper] and scaled to [0, 1], on a log scale if log1p.

    `fill` stands in for missing cells and is clipped like any other value.
    """

    name: Text
    kind: Literal["numeric"] = "numeric"
    lower: float
    upper: float
    log1p: bool = False
    fill: float | None = None

    @model_validator(mode="before")
    @classmethod
    def _bounds_are_declared(cls, data: Any) -> Any:
        return _require_bounds(data, '; or declare kind: "unbounded"')

    @model_validator(mode="after")
    def _interval_is_usable(self) -> Self:
        _check_interval(self.lower, self.upper)
        if self.log1p and self.lower <= -1:
            raise ValueError("log1p needs lower > -1")
        if self.log1p and not math.log1p(self.lower) < math.log1p(self.upper):
            raise ValueError("log1p(lower) and log1p(upper) coincide; declare a wider interval")
        return self


class UnboundedColumn(_Declared):
    """A number without declared bounds, divided by the public `scale`; see Schema.storage."""

    name: Text
    kind: Literal["unbounded"] = "unbounded"
    scale: float = Field(default=1.0, gt=0)
    fill: float | None = None


class CategoricalColumn(_Declared):
    """One indicator per category and one more, <other>, for every value outside them."""

    name: Text
    kind: Literal["categorical"] = "categorical"
    categories: Annotated[tuple[Value, ...], Field(min_length=1, max_length=MAX_CATEGORIES)]
    fill: Value | None = None

    @model_validator(mode="after")
    def _categories_are_distinct(self) -> Self:
        if len(set(self.categories)) != len(self.categories):
            raise ValueError(f"categories repeat: {_repeated(self.categories)}")
        if OTHER in self.categories:
            raise ValueError(f"{OTHER} is reserved for values outside the categories")
        if self.fill is not None and self.fill not in {*self.categories, OTHER}:
            raise ValueError(f"fill must be one of the categories or {OTHER}")
        return self


class IgnoredColumn(_Declared):
    """A column of the file that is not encoded. Declared, so that nothing is dropped silently."""

    name: Text
    kind: Literal["ignored"] = "ignored"


class BinaryLabel(_Declared):
    """y = +1 for `positive`, -1 for `negative`; any other value refuses the file."""

    name: Text
    kind: Literal["binary"] = "binary"
    positive: Value
    negative: Value

    @model_validator(mode="after")
    def _values_differ(self) -> Self:
        if self.positive == self.negative:
            raise ValueError("positive and negative must differ")
        return self


class NumericLabel(_Declared):
    """y = 2 (v - lower)/(upper - lower) - 1 in [-1, 1], with v clipped to [lower, upper]."""

    name: Text
    kind: Literal["numeric"] = "numeric"
    lower: float
    upper: float

    @model_validator(mode="before")
    @classmethod
    def _bounds_are_declared(cls, data: Any) -> Any:
        return _require_bounds(data, '; or declare kind: "unbounded"')

    @model_validator(mode="after")
    def _interval_is_usable(self) -> Self:
        _check_interval(self.lower, self.upper)
        return self


class UnboundedLabel(_Declared):
    """y = v/scale for a number v without declared bounds: only clipping protects such a label."""

    name: Text
    kind: Literal["unbounded"] = "unbounded"
    scale: float = Field(default=1.0, gt=0)


class CategoricalLabel(_Declared):
    """y = the position of the value among `classes`, from 0; any other value refuses the file."""

    name: Text
    kind: Literal["categorical"] = "categorical"
    classes: Annotated[tuple[Value, ...], Field(min_length=2, max_length=MAX_CLASSES)]

    @model_validator(mode="after")
    def _classes_are_distinct(self) -> Self:
        if len(set(self.classes)) != len(self.classes):
            raise ValueError(f"classes repeat: {_repeated(self.classes)}")
        return self


EncodedColumn = NumericColumn | UnboundedColumn | CategoricalColumn
Column = Annotated[EncodedColumn | IgnoredColumn, Field(discriminator="kind")]
Label = Annotated[
    BinaryLabel | NumericLabel | UnboundedLabel | CategoricalLabel, Field(discriminator="kind")
]


class Schema(_Declared):
    """All public facts of one dataset. `l2` and `linf` bound the norms of an encoded row.

    `compare_by` says when a cell is a declared category or label value: by `value`, where "2", "2.0"
    and 2 are one and so are "true" and 1; by `spelling` in datasets from before there was a choice.

    `holdout` is the share of the rows that is held out: no fit reads them, and models are evaluated on
    them. Which rows these are is settled by their positions after a secret shuffle, not by what they
    say, and how many is public. 0, which datasets have from before there was a choice, holds out none.
    """

    columns: Annotated[tuple[Column, ...], Field(min_length=1, max_length=MAX_WIDTH)]
    label: Label
    l2: NormBound | None = None
    linf: NormBound | None = None
    compare_by: CompareBy = "spelling"  # this and the next: what stored schemas mean without them
    holdout: float = Field(default=0.0, ge=0, le=0.5)

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        names = [column.name for column in self.columns] + [self.label.name]
        if len(set(names)) != len(names):
            raise ValueError(f"column names repeat: {_repeated(names)}")
        if not self.encoded:
            raise ValueError("at least one column must not be ignored")
        if self.width > MAX_WIDTH:
            raise ValueError(f"{self.width} features; the most is {MAX_WIDTH}")
        if (weights := self.width * (self.classes or 1)) > MAX_WEIGHTS:
            raise ValueError(f"{weights} features times classes; the most is {MAX_WEIGHTS}")
        if sum(map(len, self.feature_names)) > MAX_NAMES:
            raise ValueError(f"the features' names take more than {MAX_NAMES} characters in all")
        if len(set(self.feature_names)) != self.width:
            raise ValueError(f"feature names collide: {_repeated(self.feature_names)}")
        for declared in (*self.encoded, self.label):
            self._check_values(declared)
        if self.storage == "float64" and not (self.l2 is None and self.linf is None):
            raise ValueError(
                "l2 and linf cannot be declared beside an unbounded column: rows with unbounded "
                "entries have no norm bound, only clipping of each gradient protects them"
            )
        return self

    def _check_values(self, declared: "EncodedColumn | Label") -> None:
        """No two declared values of a column may be one value to a cell."""
        if isinstance(declared, CategoricalColumn):
            values = declared.categories
        elif isinstance(declared, CategoricalLabel):
            values = declared.classes
        elif isinstance(declared, BinaryLabel):
            values = (declared.negative, declared.positive)
        else:
            return
        firsts: dict[str, str] = {}
        for value in values:
            first = firsts.setdefault(KEYS[self.compare_by](value), value)
            if first != value:
                raise ValueError(
                    f"{declared.name!r}: {first!r} and {value!r} are one value, because numbers and "
                    'true and false are compared by value; declare one, or compare_by: "spelling"'
                )

    @cached_property
    def encoded(self) -> tuple[EncodedColumn, ...]:
        """The columns in use, in declared order."""
        return tuple(c for c in self.columns if not isinstance(c, IgnoredColumn))

    @cached_property
    def storage(self) -> Literal["fixed", "float64"]:
        """int16 fixed point under exact norm bounds; float64 once any column is unbounded."""
        unbounded = any(isinstance(c, UnboundedColumn) for c in self.encoded)
        return "float64" if unbounded else "fixed"

    @cached_property
    def feature_names(self) -> tuple[str, ...]:
        """The d names, in the order of the encoded entries."""
        names = [INTERCEPT]
        for column in self.encoded:
            if isinstance(column, CategoricalColumn):
                names += [f"{column.name}={value}" for value in (*column.categories, OTHER)]
            else:
                names.append(column.name)
        return tuple(names)

    @property
    def width(self) -> int:
        """d, the number of encoded entries per row, the intercept included."""
        widths = (
            len(c.categories) + 1 if isinstance(c, CategoricalColumn) else 1 for c in self.encoded
        )
        return 1 + sum(widths)

    @property
    def classes(self) -> int | None:
        """How many classes a categorical label has; None for any other label."""
        return len(self.label.classes) if isinstance(self.label, CategoricalLabel) else None

    @property
    def blocks(self) -> int:
        """The intercept plus one per column in use: the most nonzero entries of a row."""
        return 1 + len(self.encoded)

    @property
    def l2_bound(self) -> float:
        """The l2 norm no encoded row exceeds (fixed storage). Never above 1: see the module."""
        self._require_fixed()
        return min(self.l2 or 1.0, 1.0)

    @property
    def linf_bound(self) -> float:
        """The bound on each encoded entry (fixed storage).

        A declared linf above 1/sqrt(blocks) or above l2 would only coarsen the fixed-point step,
        since no entry can reach it; the smallest of the three is taken.
        """
        attainable = min(1.0 / math.sqrt(self.blocks), self.l2_bound)
        return min(self.linf or attainable, attainable)

    def held_out(self, rows: int) -> int:
        """How many of so many rows are held out: the last ones, once they are shuffled."""
        return round(rows * self.holdout)

    @property
    def constant(self) -> float:
        """The encoded value of the intercept in a row that no norm bound clipped."""
        return self.linf_bound if self.storage == "fixed" else 1.0

    def _require_fixed(self) -> None:
        if self.storage != "fixed":
            raise ValueError("a dataset with unbounded columns has no row-norm bound")


class DeclaredSchema(Schema):
    compare_by: CompareBy = "value"
    holdout: float = Field(default=0.2, ge=0, le=0.5)


DeclaredSchema.__doc__ = Schema.__doc__


def _repeated(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(repr(name) for name, count in Counter(names).items() if count > 1)[:200]
