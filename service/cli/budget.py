"""`epsilond budget`: fix the ceiling, read the balance, raise the cap, freeze."""

from typing import Annotated

import typer

from service.cli.common import connect, show

commands = typer.Typer(no_args_is_help=True, help="Set and read a dataset's budget.")


@commands.command("set")
def budget_set(
    dataset: str,
    epsilon: float,
    delta: float,
    epsilon_cap: Annotated[float | None, typer.Option()] = None,
    kind: Annotated[
        str | None, typer.Option(help="renyi, gaussian or pure; docs/budgets.md says which.")
    ] = None,
) -> None:
    """Fix the ceiling, once and for ever."""
    show(connect().set_budget(dataset, epsilon, delta, epsilon_cap, kind))


@commands.command("show")
def budget_show(dataset: str) -> None:
    show(connect().budget(dataset))


@commands.command("top-up")
def budget_top_up(dataset: str, epsilon_cap: float, reason: str) -> None:
    """Raise the cap, at most to the ceiling."""
    show(connect().top_up(dataset, epsilon_cap, reason))


@commands.command("freeze")
def budget_freeze(dataset: str, reason: str) -> None:
    """Admit no more jobs."""
    show(connect().freeze(dataset, reason))


@commands.command("unfreeze")
def budget_unfreeze(dataset: str, reason: str) -> None:
    show(connect().unfreeze(dataset, reason))
