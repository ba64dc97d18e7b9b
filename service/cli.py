"""The `epsilond` command: run the service, ask it things, and check its books.

Commands that talk to a service read EPSILOND_URL and EPSILOND_KEY and print JSON."""

import json
import logging
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from service.client import ApiError, Client
from service.datasets.formats import SUFFIXES

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
ledger = typer.Typer(no_args_is_help=True, help="Read the books.")
datasets = typer.Typer(no_args_is_help=True, help="Declare, upload, grant, delete.")
budget = typer.Typer(no_args_is_help=True, help="Set and read a dataset's budget.")
jobs = typer.Typer(no_args_is_help=True, help="Submit, watch, cancel, fetch.")
keys = typer.Typer(no_args_is_help=True, help="API keys.")
principals = typer.Typer(no_args_is_help=True, help="Who may do what.")
for name, group in (
    ("datasets", datasets),
    ("budget", budget),
    ("ledger", ledger),
    ("jobs", jobs),
    ("principals", principals),
    ("keys", keys),
):
    app.add_typer(group, name=name)

Spec = Annotated[Path, typer.Argument(help="A JSON file, or - for standard input.")]


def _show(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _read(path: Path) -> Any:
    return json.loads(sys.stdin.read() if str(path) == "-" else path.read_text())


def _client() -> Client:
    return Client(
        os.environ.get("EPSILOND_URL", "http://127.0.0.1:8000"), os.environ.get("EPSILOND_KEY")
    )


def main() -> None:
    """The console script: a refusal of the service is printed as it came, and fails."""
    try:
        app()
    except ApiError as error:
        typer.echo(json.dumps(error.problem, indent=2), err=True)
        raise SystemExit(1) from None


# --- run the service -----------------------------------------------------------------------------


@app.command()
def serve(
    data: Annotated[Path, typer.Option(help="Where everything is kept.")] = Path("data"),
    host: str = "127.0.0.1",
    port: int = 8000,
) -> None:
    """The embedded service: API, SQLite and a worker, in one process tree."""
    os.environ["EPSILOND_DATA_DIR"] = str(data.resolve())
    os.environ.setdefault("EPSILOND_ENGINE", "embedded")
    migrate()
    from service.config import Settings  # noqa: PLC0415 - after the environment is set
    from service.db import Database  # noqa: PLC0415

    settings = Settings()
    _ensure_first_key(Database(settings.url), settings.data_dir)
    api(host=host, port=port)


@app.command()
def api(host: str = "127.0.0.1", port: int = 8000) -> None:
    """The API alone (production: one or more of these beside `worker`)."""
    import uvicorn  # noqa: PLC0415 - the client commands start faster without it

    from service.app import create_app  # noqa: PLC0415
    from service.config import Settings  # noqa: PLC0415

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            typer.echo(f"{host}:{port} cannot be used ({error.strerror}); try --port.", err=True)
            raise typer.Exit(1) from None
    _log_to_stderr()
    settings = Settings()
    settings.keys  # noqa: B018 - a missing or malformed secret fails here, not in the first request
    application = create_app(settings)

    class Server(uvicorn.Server):
        def handle_exit(self, sig: int, frame: Any) -> None:
            """Open streams would keep a stopping server waiting: tell them first."""
            if (context := getattr(application.state, "context", None)) is not None:
                context.feed.stopping = True
            super().handle_exit(sig, frame)

    config = uvicorn.Config(application, host=host, port=port, log_config=None, access_log=False)
    server = Server(config)
    with suppress(KeyboardInterrupt):  # as uvicorn.run does; it has stopped by then
        server.run()
    if not server.started:
        raise typer.Exit(3)


@app.command()
def worker(concurrency: int = 1) -> None:
    """A Celery worker (production)."""
    from service.config import Settings  # noqa: PLC0415
    from service.db import Database  # noqa: PLC0415
    from service.identity import WrongIdentityError, check_identity  # noqa: PLC0415
    from workers.celery_app import app as celery  # noqa: PLC0415

    settings = Settings()
    db = Database(settings.url, pool_size=1)
    try:
        check_identity(db, settings)
    except WrongIdentityError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(1) from None
    finally:
        db.dispose()  # no connection may cross the fork
    _log_to_stderr()
    celery.worker_main(["worker", f"--concurrency={concurrency}", "--loglevel=INFO"])


@app.command()
def migrate() -> None:
    """Bring the database to this version's schema."""
    from service.config import Settings  # noqa: PLC0415
    from service.db import migrate as run  # noqa: PLC0415

    settings = Settings()
    settings.data_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
    run(settings.url)


@app.command()
def init(name: Annotated[str, typer.Option(help="Of the administrator.")] = "admin") -> None:
    """Create an administrator and print its key: how the first key comes to be."""
    from service.api.auth import create_key, create_principal  # noqa: PLC0415
    from service.config import Settings  # noqa: PLC0415
    from service.db import Database  # noqa: PLC0415

    with Database(Settings().url).write() as connection:
        _, key = create_key(connection, create_principal(connection, name, "admin"))
    typer.echo(key)


def _ensure_first_key(db: Any, data_dir: Path) -> None:
    """A fresh embedded service has nobody to ask for a key: write one where its user can read it."""
    from sqlalchemy import select  # noqa: PLC0415

    from service.api.auth import create_key, create_principal  # noqa: PLC0415
    from service.tables import principals as table  # noqa: PLC0415

    with db.write() as connection:
        if connection.execute(select(table.c.id).limit(1)).first() is not None:
            return
        _, key = create_key(connection, create_principal(connection, "admin", "admin"))
        path = data_dir / "keys" / "admin.key"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(key)
    typer.echo(f"The administrator's key is in {path}", err=True)


def _log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")


# --- check the books -----------------------------------------------------------------------------


@ledger.command("check")
def ledger_check() -> None:
    """Derive every balance again from the entries (reads the database directly)."""
    from service.config import Settings  # noqa: PLC0415
    from service.db import Database  # noqa: PLC0415
    from service.ledger.check import check_ledger  # noqa: PLC0415

    with Database(Settings().url).read() as connection:
        findings = check_ledger(connection)
    for finding in findings:
        typer.echo(finding, err=True)
    if findings:
        raise typer.Exit(1)
    typer.echo("every balance follows from its entries")


@app.command()
def verify(
    chain: Annotated[Path, typer.Argument(help="A chain as `epsilond chain` printed it.")],
    public_key: Annotated[str, typer.Option(help="64 hex digits, from GET /v1/audit/public-key.")],
    head: Annotated[str | None, typer.Option(help="A hash that the chain must contain.")] = None,
) -> None:
    """Verify a dataset's audit chain offline: hashes, signatures, links, prices, Plans."""
    from service.audit.verify import verify_chain  # noqa: PLC0415

    records = _read(chain)
    findings = verify_chain(records, public_key, head) if isinstance(records, list) else ["no list"]
    for finding in findings:
        typer.echo(finding, err=True)
    if findings:
        raise typer.Exit(1)
    last = records[-1]["hash"] if records else "none"
    typer.echo(f"{len(records)} records verify; head {last}")


# --- ask the service -----------------------------------------------------------------------------


@app.command()
def algorithms(
    as_json: Annotated[bool, typer.Option("--json", help="The whole catalog as JSON.")] = False,
) -> None:
    """The catalog: what can be fitted, by which paper's algorithm, at what cost."""
    from service.planning.catalog import CATALOG  # noqa: PLC0415

    if as_json:
        _show([algorithm.card() for algorithm in CATALOG.values()])
        return
    for algorithm in CATALOG.values():
        typer.echo(
            f"{algorithm.name}: {algorithm.title}\n  {algorithm.problem}\n  {algorithm.cost}"
        )


@app.command()
def quote(spec: Spec) -> None:
    """The Plan and price of a job, for nothing."""
    _show(_client().quote(_read(spec)))


@app.command()
def chain(dataset: str) -> None:
    """A dataset's audit chain, for `epsilond verify`."""
    _show(_client().chain(dataset))


@app.command("public-key")
def public_key_() -> None:
    """The key that signs audit records."""
    typer.echo(_client().public_key())


@datasets.command("list")
def datasets_list() -> None:
    _show(_client().datasets())


@datasets.command("show")
def datasets_show(dataset: str) -> None:
    _show(_client().dataset(dataset))


@datasets.command("upload")
def datasets_upload(
    name: str,
    schema: Annotated[Path, typer.Argument(help="The schema, a JSON file.")],
    file: Annotated[Path, typer.Argument(help=f"The data, {SUFFIXES}.")],
    same_people_as: Annotated[str | None, typer.Option()] = None,
) -> None:
    """Declare a dataset and upload its data."""
    client = _client()
    declared = client.declare_dataset(name, _read(schema), same_people_as)
    _show(client.upload(declared["id"], file))


@datasets.command("delete-data")
def datasets_delete(dataset: str) -> None:
    _client().delete_data(dataset)


@datasets.command("grant")
def datasets_grant(
    dataset: str, principal: str, epsilon_cap: Annotated[float | None, typer.Option()] = None
) -> None:
    _show(_client().grant(dataset, principal, ... if epsilon_cap is None else epsilon_cap))


@datasets.command("grants")
def datasets_grants(dataset: str) -> None:
    _show(_client().grants(dataset))


@datasets.command("revoke")
def datasets_revoke(dataset: str, principal: str) -> None:
    _client().revoke_grant(dataset, principal)


@budget.command("set")
def budget_set(
    dataset: str,
    epsilon: float,
    delta: float,
    epsilon_cap: Annotated[float | None, typer.Option()] = None,
) -> None:
    """Fix the ceiling, once and for ever."""
    _show(_client().set_budget(dataset, epsilon, delta, epsilon_cap))


@budget.command("show")
def budget_show(dataset: str) -> None:
    _show(_client().budget(dataset))


@budget.command("top-up")
def budget_top_up(dataset: str, epsilon_cap: float, reason: str) -> None:
    """Raise the cap, at most to the ceiling."""
    _show(_client().top_up(dataset, epsilon_cap, reason))


@budget.command("freeze")
def budget_freeze(dataset: str, reason: str) -> None:
    """Admit no more jobs."""
    _show(_client().freeze(dataset, reason))


@budget.command("unfreeze")
def budget_unfreeze(dataset: str, reason: str) -> None:
    _show(_client().unfreeze(dataset, reason))


@ledger.command("list")
def ledger_list(dataset: str) -> None:
    _show(_client().ledger(dataset))


@jobs.command("submit")
def jobs_submit(
    spec: Spec,
    wait: Annotated[bool, typer.Option(help="Until it has ended.")] = False,
    idempotency_key: Annotated[str | None, typer.Option()] = None,
) -> None:
    client = _client()
    job = client.submit(_read(spec), idempotency_key)
    _show(client.wait(job["id"]) if wait else job)


@jobs.command("list")
def jobs_list(
    dataset: Annotated[str | None, typer.Option()] = None,
    state: Annotated[str | None, typer.Option()] = None,
) -> None:
    _show(_client().jobs(dataset, state))


@jobs.command("show")
def jobs_show(job: str) -> None:
    _show(_client().job(job))


@jobs.command("events")
def jobs_events(job: str) -> None:
    _show(_client().events(job))


@jobs.command("plan")
def jobs_plan(job: str) -> None:
    _show(_client().plan(job))


@jobs.command("cancel")
def jobs_cancel(job: str) -> None:
    _show(_client().cancel(job))


@jobs.command("model")
def jobs_model(job: str) -> None:
    _show(_client().model(job).card)


@jobs.command("audit")
def jobs_audit(job: str) -> None:
    _show(_client().record(job))


@jobs.command("certify")
def jobs_certify(
    job: str,
    rows: Annotated[Path, typer.Argument(help="Rows that you have, .csv with the label.")],
    radius: Annotated[float, typer.Option(help="Of a ball about the model (Goldstein).")] = 0.0,
) -> None:
    """How near a job's model is to a stationary point on rows of your own: free, and run here."""
    import csv  # noqa: PLC0415

    from service.planning.spec import JobSpec  # noqa: PLC0415
    from workers.certificate import certify  # noqa: PLC0415 - compiles kernels

    client = _client()
    with rows.open(newline="") as file:
        table = list(csv.DictReader(file))
    spec = JobSpec.model_validate(client.job(job)["spec"])
    _show(certify(client.model(job), table, spec, radius))


@principals.command("add")
def principals_add(name: str, role: str) -> None:
    _show(_client().add_principal(name, role))


@principals.command("list")
def principals_list() -> None:
    _show(_client().principals())


@keys.command("add")
def keys_add(
    principal: Annotated[str | None, typer.Option()] = None,
    expires_days: Annotated[int | None, typer.Option()] = None,
) -> None:
    _show(_client().add_key(principal, expires_days))


@keys.command("list")
def keys_list() -> None:
    _show(_client().keys())


@keys.command("rotate")
def keys_rotate(key: str) -> None:
    _show(_client().rotate_key(key))


@keys.command("revoke")
def keys_revoke(key: str) -> None:
    _client().revoke_key(key)
