"""What the commands share: where the service is, reading a JSON file, printing JSON."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from epsilond import Client
from service.cli.failures import Fault

Spec = Annotated[Path, typer.Argument(help="A JSON file, or - for standard input.")]


URL = "http://127.0.0.1:8000"


@dataclass
class Options:
    """What was said before the noun."""

    url: str = URL
    key: str | None = None
    as_json: bool = False


options = Options()


def show(value: Any, *columns: str) -> None:
    """As JSON; a list, on a terminal, as a table of these columns."""
    if columns and sys.stdout.isatty() and not options.as_json:
        typer.echo(as_table([{name: row.get(name) for name in columns} for row in value]))
    else:
        typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def as_table(rows: list[dict[str, Any]]) -> str:
    """Columns as wide as their widest cell."""
    if not rows:
        return "none"
    lines = [[name.replace("_", " ") for name in rows[0]]]
    lines += [["-" if v is None else str(v) for v in row.values()] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def read_json(path: Path) -> Any:
    text = sys.stdin.read() if str(path) == "-" else path.read_text()
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        at = f"line {error.lineno}, column {error.colno}"
        raise Fault(f"{path} is not JSON: {error.msg} at {at}.") from None


def open_database() -> Any:
    """The database of a service on this machine; none is made by looking for one."""
    from service.config import Settings  # noqa: PLC0415
    from service.db import Database  # noqa: PLC0415

    settings = Settings()
    url, prefix = settings.url, "sqlite:///"
    if url.startswith(prefix) and not Path(url.removeprefix(prefix).partition("?")[0]).is_file():
        raise Fault(
            f"there is no database at {url.removeprefix(prefix)}; set EPSILOND_DATA_DIR or "
            "EPSILOND_DATABASE_URL to the service's, or make one: epsilond migrate",
            1,
        )
    return Database(url, patience=3600.0)


def connect() -> Client:
    return Client(options.url, options.key, retries=1)
