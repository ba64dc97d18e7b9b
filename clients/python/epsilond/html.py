"""Small tables for notebooks. Everything in them is escaped: names and texts come from others."""

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

_CELL = "text-align:left;padding:2px 10px"


def as_html(title: str, facts: Mapping[str, Any]) -> str:
    """A title, and a row for each fact."""
    rows = "".join(
        f'<tr><th style="{_CELL}">{escape(str(name).replace("_", " "))}</th>'
        f'<td style="{_CELL}">{_shown(value)}</td></tr>'
        for name, value in facts.items()
    )
    return f"<table><caption>{escape(title)}</caption>{rows}</table>"


def as_table(names: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """A row for each of many."""
    names = list(names)
    head = "".join(f'<th style="{_CELL}">{escape(n.replace("_", " "))}</th>' for n in names)
    body = "".join(
        "<tr>"
        + "".join(f'<td style="{_CELL}">{_shown(row.get(name))}</td>' for name in names)
        + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


def _shown(value: Any) -> str:
    if value is None:
        return "–"
    return escape(f"{value:,.6g}" if isinstance(value, float) else str(value))
