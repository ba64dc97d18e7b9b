"""`epsilond keys`: API keys."""

from typing import Annotated

import typer

from service.cli.common import connect, show

commands = typer.Typer(no_args_is_help=True, help="API keys.")


@commands.command("add")
def keys_add(
    principal: Annotated[str | None, typer.Option()] = None,
    expires_days: Annotated[int | None, typer.Option()] = None,
    outlives: Annotated[
        bool | None, typer.Option(help="Whether it outlives the key that it is made with.")
    ] = None,
) -> None:
    show(connect().add_key(principal, expires_days, outlives))


@commands.command("list")
def keys_list() -> None:
    show(connect().keys(), "id", "principal", "prefix", "expires_at", "revoked_at")


@commands.command("rotate")
def keys_rotate(key: str) -> None:
    show(connect().rotate_key(key))


@commands.command("revoke")
def keys_revoke(
    key: str,
    everything: Annotated[
        bool, typer.Option(help="Also the keys made with it that outlive it.")
    ] = False,
) -> None:
    """Revoke a key and the keys that were made with it."""
    connect().revoke_key(key, everything)


@commands.command("revoke-all")
def keys_revoke_all(principal: str) -> None:
    """Revoke all keys of a principal."""
    connect().revoke_keys(principal)
