"""Services that were logged in to: an address and a key each, by name, in a file of the user's own."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from epsilond import Client
from service.cli import common
from service.cli.failures import Fault

DEFAULT = "default"


def file() -> Path:
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "epsilond" / "profiles.json"


def read() -> dict[str, dict[str, str]]:
    if not file().is_file():
        return {}
    found: dict[str, dict[str, str]] = common.read_json(file())
    return found


def _write(profiles: dict[str, dict[str, str]]) -> None:
    """Whole or not at all, and readable by nobody else."""
    file().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = file().with_suffix(".partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        json.dump(profiles, out, indent=2)
    partial.replace(file())


def chosen(name: str | None) -> dict[str, str]:
    """The profile of this name, or the default one, if there is any."""
    profiles = read()
    if name is not None and name not in profiles:
        known = f"it has {', '.join(profiles)}" if profiles else "it has none"
        raise Fault(f"{file()} has no profile {name!r}; {known}. Make it: epsilond login")
    return profiles.get(name or DEFAULT, {})


def login(
    key: Annotated[
        str, typer.Option(prompt=True, hide_input=True, help="Asked for if it is not given.")
    ],
    name: Annotated[str, typer.Option("--name", help="Of the profile.")] = DEFAULT,
) -> None:
    """Remember the service at --url and a key of yours, once the service has accepted it."""
    with Client(common.options.url, key.strip(), retries=1) as client:
        me = client.me()
    _write(read() | {name: {"url": common.options.url, "key": key.strip()}})
    typer.echo(f"{common.options.url}: {me['name']}, {me['role']}; kept in {file()}")


def logout(name: Annotated[str, typer.Option("--name", help="Of the profile.")] = DEFAULT) -> None:
    """Forget a profile. The key stays valid: revoke it with `epsilond keys revoke`."""
    chosen(name)
    _write({other: kept for other, kept in read().items() if other != name})
