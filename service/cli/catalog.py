"""The catalog of algorithms."""

from typing import Annotated

import typer

from service.cli.common import show


def algorithms(
    as_json: Annotated[bool, typer.Option("--json", help="The whole catalog as JSON.")] = False,
) -> None:
    """The catalog: what can be fitted, by which paper's algorithm, at what cost."""
    from service.planning.catalog import CATALOG  # noqa: PLC0415

    if as_json:
        show([algorithm.card() for algorithm in CATALOG.values()])
        return
    for algorithm in CATALOG.values():
        typer.echo(
            f"{algorithm.name}: {algorithm.title}\n  {algorithm.problem}\n  {algorithm.cost}"
        )
