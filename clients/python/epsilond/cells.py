"""What a cell is compared by and which number it spells: as the service does it, cell for cell.

The service's own code is service/datasets/cells.py; tests/client/test_encode.py compares the two.
"""

import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?"})
BOOLEANS = {"false": "0", "true": "1"}
_DECIMAL = re.compile(r"([+-]?)([0-9]*)\.?([0-9]*)(?:[eE]([+-]?[0-9]{1,9}))?")


def text_of(cell: object) -> str:
    """A cell as text: stripped strings, "3" for 3.0, repr of other floats, "" for None and NaN."""
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
    """One text for all cells that are one value: "2", 2.0 and "02"; "true", True and 1."""
    if isinstance(cell, np.generic):
        cell = cell.item()
    text = repr(cell) if isinstance(cell, float) else text_of(cell)
    return BOOLEANS.get(text.lower()) or _same_number(text) or text


def _same_number(text: str) -> str | None:
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


KEYS = {"spelling": text_of, "value": by_value}


def number_of(cell: object) -> float | None:
    """The number a cell spells, a boolean's being 0 or 1; NaN where it is missing; else None."""
    text = text_of(cell)
    text = BOOLEANS.get(text.lower(), text)
    if text.lower() in MISSING:
        return math.nan
    try:
        return None if "_" in text else float(text)  # float("1_0") is 10, which nobody means
    except ValueError:
        return None


def numbers_of(values: NDArray[Any]) -> list[float | None] | NDArray[np.float64]:
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    return [number_of(cell) for cell in values.tolist()]
