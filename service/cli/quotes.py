"""`epsilond quote` and `epsilond quotes`: what a job would cost, and which algorithm to take."""

import typer

from service.cli.common import Spec, connect, read_json, show

commands = typer.Typer(no_args_is_help=True, help="What jobs would cost, free of charge.")


def quote(spec: Spec) -> None:
    """The Plan and price of a job, free of charge; of a list of jobs, which of them fit together."""
    asked, client = read_json(spec), connect()
    show(client.quote_batch(asked) if isinstance(asked, list) else client.quote(asked))


commands.command("show")(quote)


@commands.command("compare")
def quotes_compare(spec: Spec) -> None:
    """Every algorithm on one spec, best first: what it predicts, or why it declines."""
    found = connect().compare(read_json(spec))["data"]
    rows = [{**row, "expected": (row["expected"] or {}).get("median")} for row in found]
    show(rows, "algorithm", "expected", "excess_risk", "noise", "steps", "refusal")
