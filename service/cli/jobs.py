"""`epsilond jobs`: submit, watch, cancel, and fetch what a job published."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from epsilond.results import Job
from service.cli.common import Spec, connect, read_json, show

commands = typer.Typer(no_args_is_help=True, help="Submit, watch, cancel, fetch.")


@commands.command("submit")
def jobs_submit(
    spec: Spec,
    wait: Annotated[bool, typer.Option(help="Until it has ended.")] = False,
    idempotency_key: Annotated[str | None, typer.Option()] = None,
) -> None:
    """A job; of a list of jobs, all are reserved or none."""
    client, asked = connect(), read_json(spec)
    if isinstance(asked, list):
        group = client.submit_group(asked, idempotency_key)
        if wait:
            for job in group["data"]:
                client.wait(job["id"])
        show(client.group(group["id"]) if wait else group)
        return
    job = client.submit(asked, idempotency_key)
    show(client.wait(job["id"]) if wait else job)


@commands.command("list")
def jobs_list(
    dataset: Annotated[str | None, typer.Option()] = None,
    state: Annotated[str | None, typer.Option()] = None,
) -> None:
    show(connect().jobs(dataset, state), "id", "dataset", "state", "created_at", "finished_at")


@commands.command("show")
def jobs_show(job: str) -> None:
    show(connect().job(job))


@commands.command("follow")
def jobs_follow(job: str) -> None:
    """Until the job has ended: a bar on a terminal, elsewhere a line for each change. Exit code 1 if
    it did not succeed."""

    def line(view: Job) -> None:
        progress = view["progress"]
        typer.echo(f"{view['state']} {progress['steps_done']}/{progress['steps_total']}")

    ended = connect().wait(job, None if sys.stdout.isatty() else line)
    if ended["state"] != "succeeded":
        typer.echo((ended["error"] or {}).get("message", f"it was {ended['state']}."), err=True)
        raise typer.Exit(1)


@commands.command("events")
def jobs_events(job: str) -> None:
    show(connect().events(job), "id", "type", "created_at")


@commands.command("plan")
def jobs_plan(job: str) -> None:
    show(connect().plan(job))


@commands.command("cancel")
def jobs_cancel(job: str) -> None:
    show(connect().cancel(job))


@commands.command("model")
def jobs_model(job: str) -> None:
    show(connect().model(job).card)


@commands.command("summary")
def jobs_summary(job: str) -> None:
    """What a job's summaries told, each number with its interval."""
    show(connect().summary(job))


@commands.command("evaluation")
def jobs_evaluation(job: str) -> None:
    """How good a job's models are on held-out rows, each number with its interval."""
    show(connect().evaluation(job))


@commands.command("audit")
def jobs_audit(job: str) -> None:
    show(connect().record(job))


@commands.command("certify")
def jobs_certify(
    job: str,
    rows: Annotated[Path, typer.Argument(help="Rows that you have, .csv with the label.")],
    radius: Annotated[float, typer.Option(help="Of a ball about the model (Goldstein).")] = 0.0,
) -> None:
    """How near a job's model is to a stationary point on rows of your own: free, and run here."""
    import csv  # noqa: PLC0415

    from service.planning.spec import JobSpec  # noqa: PLC0415
    from workers.certify import certify  # noqa: PLC0415 - compiles kernels

    client = connect()
    with rows.open(newline="") as file:
        table = list(csv.DictReader(file))
    spec = JobSpec.model_validate(client.job(job)["spec"])
    show(certify(client.model(job).card, table, spec, radius))
