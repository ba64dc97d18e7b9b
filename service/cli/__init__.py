"""The `epsilond` command: run the service, call its API, check its ledger and its audit chains.

One module per noun. Commands that call a service go by EPSILOND_URL and EPSILOND_KEY, or by a profile
that `epsilond login` made, and print JSON; on a terminal, lists are tables unless --json is given.
Commands import what they run inside their function, so that `epsilond --help` starts at once.
"""

import json
import os
from typing import Annotated

import typer

from epsilond import ApiError
from service import __version__
from service.cli import (
    budget,
    common,
    datasets,
    jobs,
    keys,
    ledger,
    model,
    principals,
    profiles,
    quotes,
    schema,
)
from service.cli.audit import chain, public_key, verify
from service.cli.catalog import algorithms
from service.cli.failures import explain
from service.cli.processes import api, health, init, migrate, serve, worker
from service.cli.profiles import login, logout
from service.cli.quotes import quote

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)
for command in (
    *(serve, api, worker, health, migrate, init),
    *(login, logout),
    *(verify, algorithms, quote, chain, public_key),
):
    app.command()(command)
for noun, module in (
    ("datasets", datasets),
    ("budget", budget),
    ("ledger", ledger),
    ("quotes", quotes),
    ("jobs", jobs),
    ("model", model),
    ("principals", principals),
    ("keys", keys),
    ("schema", schema),
):
    app.add_typer(module.commands, name=noun)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"epsilond {__version__}")
        raise typer.Exit


@app.callback()
def options(
    url: Annotated[
        str | None, typer.Option(envvar="EPSILOND_URL", help="Where the service is.")
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(envvar="EPSILOND_PROFILE", help="A service that you logged in to."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON on a terminal too, where lists are tables.")
    ] = False,
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
) -> None:
    """Fit models on data you may not see, within a privacy budget nobody can overspend."""
    kept = profiles.chosen(profile)
    common.options.url = url or kept.get("url", common.URL)
    common.options.key = os.environ.get("EPSILOND_KEY")
    if common.options.key is None and common.options.url == kept.get("url"):
        common.options.key = kept["key"]  # to the service that it is for, and to no other
    common.options.as_json = as_json


def main() -> None:
    """The console script. A refusal by the service is printed as it came, with exit code 1; for what
    goes wrong otherwise there is a line that says what to do."""
    try:
        app()
    except ApiError as error:
        typer.echo(json.dumps(error.problem, indent=2), err=True)
        raise SystemExit(1) from None
    except Exception as error:
        fault = explain(error)
        if fault is None:
            raise
        typer.echo(fault.words, err=True)
        raise SystemExit(fault.code) from None
