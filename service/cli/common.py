"""What the commands share: where the service is, reading a JSON file, printing JSON."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from service.client import Client

Spec = Annotated[Path, typer.Argument(help="A JSON file, or - for standard input.")]


def show(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def read_json(path: Path) -> Any:
    return json.loads(sys.stdin.read() if str(path) == "-" else path.read_text())


def connect() -> Client:
    return Client(
        os.environ.get("EPSILOND_URL", "http://127.0.0.1:8000"), os.environ.get("EPSILOND_KEY")
    )
