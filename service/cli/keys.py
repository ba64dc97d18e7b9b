"""`epsilond keys`: API keys."""

from typing import Annotated

import typer

from service.cli.common import connect, show

commands = typer.Typer(no_args_is_help=True, help="API keys.")


@commands.command("add")
def keys_add(
    principal: Annotated[str | None, typer.Option()] = None,
    expires_days: Annotated[int | None, typer.Option()] = None,
) -> None:
    show(connect().add_key(principal, expires_days))


@commands.command("list")
def keys_list() -> None:
    show(connect().keys())


@commands.command("rotate")
def keys_rotate(key: str) -> None:
    show(connect().rotate_key(key))


@commands.command("revoke")
def keys_revoke(key: str) -> None:
    connect().revoke_key(key)
