"""What the commands share: where the service is, reading a JSON file, printing JSON."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.failures import Fault
from service.client import Client

Spec = Annotated[Path, typer.Argument(help="A JSON file, or - for standard input.")]


def show(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


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
    return Client(
        os.environ.get("EPSILOND_URL", "http://127.0.0.1:8000"), os.environ.get("EPSILOND_KEY")
    )
