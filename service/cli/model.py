"""`epsilond model`: take a published model away, into a file that others read."""

from pathlib import Path
from typing import Annotated

import typer

from epsilond import Model
from epsilond.export import EXPORTERS, write
from service.cli.common import connect, read_json
from service.cli.failures import Fault

commands = typer.Typer(no_args_is_help=True, help="Take a published model away.")


@commands.callback()
def model() -> None:
    """Take a published model away."""


@commands.command("export")
def model_export(
    job: Annotated[str, typer.Argument(help="A job's id, or a file with a model card.")],
    format_: Annotated[str, typer.Option("--format", help=", ".join(EXPORTERS))],
    output: Annotated[Path | None, typer.Option(help="Default: the job's id and a suffix.")] = None,
) -> None:
    """Write a model to a file, in a format that predicts what its card predicts."""
    if format_ not in EXPORTERS:
        raise Fault(f"--format is one of {', '.join(EXPORTERS)}.")
    card = Path(job)
    found = Model(read_json(card)) if card.is_file() else connect().model(job)
    path = output or Path(found.card["job"] + EXPORTERS[format_].suffix)
    try:
        data = write(found, format_)
    except TypeError as refused:
        raise Fault(f"{refused}.") from None
    path.write_bytes(data)
    typer.echo(str(path))
