"""Run the service: `serve`, `api`, `worker`, `migrate`, `init`."""

import logging
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer


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

    config = uvicorn.Config(
        application, host=host, port=port, log_config=None, access_log=False, server_header=False
    )
    server = Server(config)
    with suppress(KeyboardInterrupt):  # as uvicorn.run does; it has stopped by then
        server.run()
    if not server.started:
        raise typer.Exit(3)


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


def health() -> None:
    """Exit 0 if a worker of this host has lately shown that it can run jobs, else 1."""
    from sqlalchemy import func, select  # noqa: PLC0415
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415

    from service.config import Settings  # noqa: PLC0415
    from service.db import Database, now_ms  # noqa: PLC0415
    from service.jobs.maintenance import HEARTBEAT_TIMEOUT_MS  # noqa: PLC0415
    from service.tables import processes  # noqa: PLC0415

    able = (
        (processes.c.role == "worker")
        & (processes.c.host == socket.gethostname()[:200])
        & (processes.c.seen_ms > now_ms() - HEARTBEAT_TIMEOUT_MS)
    )
    try:
        with Database(Settings().url, pool_size=1).read() as connection:
            number = connection.execute(select(func.count()).where(able)).scalar_one()
    except SQLAlchemyError as error:
        typer.echo(f"the database does not answer ({type(error).__name__})", err=True)
        raise typer.Exit(1) from None
    typer.echo(f"{number} workers of this host can run jobs")
    raise typer.Exit(0 if number else 1)


def migrate() -> None:
    """Bring the database to this version's schema."""
    from service.config import Settings  # noqa: PLC0415
    from service.db import migrate as run  # noqa: PLC0415

    settings = Settings()
    settings.data_dir.mkdir(mode=0o750, parents=True, exist_ok=True)
    run(settings.url)


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
