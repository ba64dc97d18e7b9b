"""A cell of a table: whether it is missing, which number it spells, and what it is compared by.

Where declared values are told apart (categories, classes, positive and negative), a schema says how,
by `compare_by`:

    value      numbers by their value: "2", "2.0", "+2", "02", 2, 2.0 and np.float32(2) are one value,
               whole ones exactly and others as float64; "true", "TRUE", True and 1 are one too, and so
               are "false" and 0; all else by its stripped text. The same table then means the same in
               every file format and on every way to a prediction.
    spelling   of datasets declared before there was a choice: texts as they are spelled, so that the
               text "2.0" is not "2", but the number 2.0 is. Their rows are stored, so it stays.

Equal by value implies equal words of the content fingerprint (content.py).
"""

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic_core import from_json

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
BOOLEANS = {"false": 0, "true": 1}
EXACT = 10**15  # beyond 2^53, a number in JSON may not be the one that was meant

Floats = NDArray[np.float64]
CompareBy = Literal["spelling", "value"]
_DECIMAL = re.compile(r"([+-]?)([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]{1,9}))?")


def canonical_text(cell: object) -> str:
    """A cell as text: stripped strings, "3" for 3.0, repr of other floats."""
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, np.generic):
        cell = cell.item()
    if cell is None or cell != cell:  # noqa: PLR0124  # NaN is the value that differs from itself
        return ""
    if isinstance(cell, float):
        return str(int(cell)) if abs(cell) < 1e16 and cell.is_integer() else repr(cell)
    if isinstance(cell, (bool, int)):
        return repr(cell)
    raise TypeError(f"cells are strings or numbers, not {type(cell).__name__}")


def by_value(cell: object) -> str:
    """What a cell is compared by where numbers are compared by value."""
    if isinstance(cell, np.generic):
        cell = cell.item()
    # NaN is "nan", as CSV writers spell it: missing, unless that is declared
    text = repr(cell) if isinstance(cell, float) else canonical_text(cell)
    truth = BOOLEANS.get(text.lower())
    return str(truth) if truth is not None else _same_number(text) or text


def _same_number(text: str) -> str | None:
    """One text for all spellings of a number; None for what spells none."""
    decimal = _decimal(text)
    if decimal is None:
        return None
    if decimal[2] < 0:
        decimal = _decimal(repr(float(text))) or decimal  # an infinite one stays as it is spelled
    sign, digits, exponent = decimal
    return f"{sign}{digits}" if exponent == 0 else f"{sign}{digits}e{exponent}"


def _decimal(text: str) -> tuple[str, str, int] | None:
    """(sign, digits without zeros around them, exponent of ten) of a number in plain decimals."""
    match = _DECIMAL.fullmatch(text)
    if match is None or not match[2] + match[3]:
        return None
    sign, whole, part, power = match.groups()
    digits = (whole + part).lstrip("0")
    significant = digits.rstrip("0")
    if not significant:
        return "", "0", 0
    exponent = int(power or 0) - len(part) + len(digits) - len(significant)
    return sign.replace("+", ""), significant, exponent


KEYS: dict[CompareBy, Callable[[object], str]] = {"spelling": canonical_text, "value": by_value}


def declared_text(value: object) -> object:
    """A category or label value that was declared as a number or a boolean, as text: 1 as "1"."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) > EXACT:
        raise ValueError('declare a number beyond 10^15 as text, in quotes: "9007199254740993"')
    return canonical_text(value) if isinstance(value, (bool, int, float)) else value


def parse_number(cell: str) -> float | None:
    """The number a cell spells; NaN where it is missing, None where it spells no number."""
    if cell.strip().lower() in MISSING:
        return math.nan
    try:
        return None if "_" in cell else float(cell)  # float("1_0") is 10, which no CSV means
    except ValueError:
        return None


def parse_numbers(cells: Sequence[str]) -> Floats | None:
    """parse_number of every cell, or None if one of them spells no number."""
    numbers = _parse_plain(cells)
    if numbers is not None:
        return numbers
    try:
        spelled = ("nan" if c.strip().lower() in MISSING else c for c in cells)
        numbers = np.fromiter(map(float, spelled), np.float64, len(cells))
    except ValueError:
        return None
    return None if "_" in "".join(cells) else numbers


def _parse_plain(cells: Sequence[str]) -> Floats | None:
    """The numbers, if every cell is one in JSON's grammar: the common case, three times faster.

    A JSON parser must not see anything else, or `true` and `"7"` would be numbers: what is left of
    the text without the characters of numbers has to be the commas between the cells.
    """
    text = ",".join(cells).encode("utf-8", "surrogatepass")
    if text.translate(None, b"0123456789+-.eE") != b"," * (len(cells) - 1):
        return None
    try:
        return np.fromiter(from_json(b"[%b]" % text), np.float64, len(cells))
    except (ValueError, OverflowError):  # "+1", ".5", "007", or an integer beyond float64
        return None


def texts(values: NDArray[Any]) -> list[str]:
    """A column of strings or objects as a list of strings, not necessarily stripped."""
    return [c if type(c) is str else canonical_text(c) for c in values.tolist()]


def as_digit(cell: str) -> str:
    """A boolean in words as the number it stands for, where a number is wanted."""
    truth = BOOLEANS.get(cell.strip().lower())
    return cell if truth is None else str(truth)


def shown(cell: str) -> str:
    """As much of a cell as an error message may carry."""
    return repr(cell)[:40]
