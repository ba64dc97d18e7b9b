"""`epsilond schema`: a first draft of a schema, from a table's header and types."""

import csv
import re
import tomllib
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.common import show
from service.cli.failures import Fault
from service.datasets.cells import as_digit, parse_numbers

commands = typer.Typer(no_args_is_help=True, help="Draft a dataset's schema.")
SAMPLE = 1000
COMMON = Path(__file__).with_name("common_columns.toml")
CHECKLIST = (
    "Before you declare it:",
    "- give every null a value, and every empty list its values, from what is generally known: a",
    "  bound or a category that was read off the rows would be a release without noise;",
    "- what was suggested is known of such columns in general: is yours one of them, spelled so?",
    "- is every kind right? A code in digits, such as a postcode, is categorical, not numeric;",
    "- what nobody needs is ignored; a column in which cells are missing needs a fill;",
    '- a fifth of the rows is held out of every fit, to evaluate models on; "holdout" names another',
    "  share, up to 0.5, or 0.",
)


@commands.callback()
def schema() -> None:
    """Draft a dataset's schema."""


@commands.command("draft")
def schema_draft(
    table: Annotated[Path, typer.Argument(help="A CSV file with a header.")],
    label: Annotated[str, typer.Option(help="The column that is to be predicted.")],
) -> None:
    """A schema with this table's columns. Bounds and categories that are known of any column of that
    name are suggested, with their source; all others are left to you, for they must not come from the
    rows."""
    with table.open(newline="", encoding="utf-8-sig") as file:
        rows = csv.reader(file)
        header = [name.strip() for name in next(rows, [])]
        sample = [row for row in islice(rows, SAMPLE) if len(row) == len(header)]
    if label not in header:
        raise Fault(f"{table} has no column {label!r}; it has: {', '.join(header[:20])}.")
    drafts = [_column(name, [row[i] for row in sample]) for i, name in enumerate(header)]
    columns = [draft for draft in drafts if draft["name"] != label]
    (found,) = (draft for draft in drafts if draft["name"] == label)
    show({"columns": columns, "label": _label(found)})
    for draft in columns:
        if source := _known().get(_plain(draft["name"]), {}).get("source"):
            typer.echo(f"{draft['name']}: suggested ({source}).", err=True)
    for line in CHECKLIST:
        typer.echo(line, err=True)


@cache
def _known() -> dict[str, dict[str, Any]]:
    """What is known of a column by its name alone."""
    listed = tomllib.loads(COMMON.read_text())["column"]
    return {name: column for column in listed for name in column["names"]}


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def _column(name: str, cells: list[str]) -> dict[str, Any]:
    """By its name, and whether its cells spell numbers, and by nothing else of them."""
    known = _known().get(_plain(name), {})
    if "categories" in known:
        return {"name": name, "kind": "categorical", "categories": known["categories"]}
    if "lower" in known:
        return {"name": name, "kind": "numeric", "lower": known["lower"], "upper": known["upper"]}
    if cells and parse_numbers([as_digit(cell) for cell in cells]) is not None:
        return {"name": name, "kind": "numeric", "lower": None, "upper": None}
    return {"name": name, "kind": "categorical", "categories": []}


def _label(draft: dict[str, Any]) -> dict[str, Any]:
    if draft["kind"] == "numeric":
        return draft
    if draft["categories"]:
        return {"name": draft["name"], "kind": "categorical", "classes": draft["categories"]}
    return {"name": draft["name"], "kind": "binary", "positive": None, "negative": None}
