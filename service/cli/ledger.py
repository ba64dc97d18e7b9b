"""`epsilond ledger`: list a dataset's entries, and check every balance against them."""

import typer

from service.cli.common import connect, open_database, show

commands = typer.Typer(no_args_is_help=True, help="Read and check the ledger.")


@commands.command("check")
def ledger_check() -> None:
    """Derive every balance again from the entries (reads the database directly)."""
    from service.ledger.check import check_ledger  # noqa: PLC0415

    with open_database().read() as connection:
        findings = check_ledger(connection)
    for finding in findings:
        typer.echo(finding, err=True)
    if findings:
        raise typer.Exit(1)
    typer.echo("every balance follows from its entries")


@commands.command("list")
def ledger_list(dataset: str) -> None:
    show(connect().ledger(dataset), "seq", "kind", "units", "epsilon", "job", "created_at")
