"""`epsilond principals`: people and programs, each with a role."""

import typer

from service.cli.common import connect, show

commands = typer.Typer(no_args_is_help=True, help="Who may do what.")


@commands.command("add")
def principals_add(name: str, role: str) -> None:
    show(connect().add_principal(name, role))


@commands.command("list")
def principals_list() -> None:
    show(connect().principals(), "id", "name", "role", "created_at")
