"""Audit: a dataset's chain of records, the key that signs them, and offline verification."""

from pathlib import Path
from typing import Annotated

import typer

from service.cli.common import connect, read_json, show


def verify(
    chain: Annotated[Path, typer.Argument(help="A chain as `epsilond chain` printed it.")],
    public_key: Annotated[str, typer.Option(help="64 hex digits, from GET /v1/audit/public-key.")],
    head: Annotated[str | None, typer.Option(help="A hash that the chain must contain.")] = None,
    partial: Annotated[
        bool, typer.Option(help="An analyst's export, without the records of others.")
    ] = False,
) -> None:
    """Verify a dataset's audit chain offline: hashes, signatures, links, prices, Plans."""
    from service.audit.verify import verify_chain  # noqa: PLC0415

    records = read_json(chain)
    if isinstance(records, list):
        findings = verify_chain(records, public_key, head, partial=partial)
    else:
        findings = ["the file must hold a JSON list of records"]
    for finding in findings:
        typer.echo(finding, err=True)
    if findings:
        raise typer.Exit(1)
    last = records[-1]["hash"] if records else "none"
    typer.echo(f"{len(records)} records verify; head {last}")


def chain(dataset: str) -> None:
    """A dataset's audit chain, for `epsilond verify`."""
    show(connect().chain(dataset))


def public_key() -> None:
    """The key that signs audit records."""
    typer.echo(connect().public_key())
