"""`epsilond datasets`: declare and upload, grant and revoke, delete."""

from pathlib import Path
from typing import Annotated

import typer

from service.cli.common import connect, read_json, show
from service.datasets.formats import SUFFIXES, guess

commands = typer.Typer(no_args_is_help=True, help="Declare, upload, grant, delete.")


@commands.command("list")
def datasets_list() -> None:
    show(connect().datasets(), "id", "name", "state", "rows", "columns", "created_at")


@commands.command("show")
def datasets_show(dataset: str) -> None:
    show(connect().dataset(dataset))


@commands.command("upload")
def datasets_upload(
    name: str,
    schema: Annotated[Path, typer.Argument(help="The schema, a JSON file.")],
    file: Annotated[Path, typer.Argument(help=f"The data, {SUFFIXES}.")],
    same_people_as: Annotated[str | None, typer.Option()] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and report; store nothing.")
    ] = False,
    refuse_above: Annotated[
        float | None,
        typer.Option(help="Refuse if more than this share of a column is clipped or unknown."),
    ] = None,
) -> None:
    """Check schema and file, declare a dataset and upload its data; what was clipped, filled and
    unknown is reported. An upload that broke off is taken up again."""
    from service.datasets.schema import DeclaredSchema  # noqa: PLC0415

    facts = read_json(schema)  # all that can be checked here, before anything is declared
    DeclaredSchema.model_validate(facts)
    media_type = guess(file).media_types[0]
    client = connect()
    show(
        client.upload(
            name,
            file,
            schema=facts,
            same_people_as=same_people_as,
            dry_run=dry_run,
            refuse_above=refuse_above,
            media_type=media_type,
        )
    )


@commands.command("delete")
def datasets_delete_empty(dataset: str) -> None:
    """Delete a dataset that never had data."""
    connect().delete_dataset(dataset)


@commands.command("report")
def datasets_report(dataset: str) -> None:
    """What ingestion did to the rows of a dataset of yours, in exact counts."""
    show(connect().report(dataset))


@commands.command("delete-data")
def datasets_delete(dataset: str) -> None:
    connect().delete_data(dataset)


@commands.command("grant")
def datasets_grant(
    dataset: str, principal: str, epsilon_cap: Annotated[float | None, typer.Option()] = None
) -> None:
    show(connect().grant(dataset, principal, ... if epsilon_cap is None else epsilon_cap))


@commands.command("share-ledger")
def datasets_share_ledger(
    dataset: str, shared: Annotated[bool, typer.Option("--yes/--no")] = True
) -> None:
    """Whether analysts see each other's ledger entries and audit records."""
    show(connect().share_ledger(dataset, shared))


@commands.command("grants")
def datasets_grants(dataset: str) -> None:
    show(connect().grants(dataset), "principal", "name", "epsilon_cap", "fraction_committed")


@commands.command("revoke")
def datasets_revoke(dataset: str, principal: str) -> None:
    connect().revoke_grant(dataset, principal)
