"""The catalog of algorithms, and quotes: what a job would cost."""

from typing import Annotated

import typer

from service.cli.common import Spec, connect, read_json, show


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


def quote(spec: Spec) -> None:
    """The Plan and price of a job, free of charge; of a list of jobs, which of them fit together."""
    asked, client = read_json(spec), connect()
    show(client.quote_batch(asked) if isinstance(asked, list) else client.quote(asked))
