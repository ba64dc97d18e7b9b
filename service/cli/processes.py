"""Run the service: `serve`, `api`, `worker`, `migrate`, `init`."""

import logging
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from service.cli.common import open_database
from service.cli.failures import Fault


def serve(
    data: Annotated[Path, typer.Option(help="Where everything is kept.")] = Path("data"),
    host: str = "127.0.0.1",
    port: int = 8000,
) -> None:
    """The embedded service: API, SQLite and a worker, in one process tree."""
    _check_port(host, port)
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

    _check_port(host, port)
    _log_to_stderr()
    settings = Settings()
    _check_identity(settings)  # what is wrong is said here in one line, not in the first request
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
    from workers.celery_app import app as celery  # noqa: PLC0415

    _check_identity(Settings())
    _log_to_stderr()
    celery.worker_main(["worker", f"--concurrency={concurrency}", "--loglevel=INFO"])


def _check_port(host: str, port: int) -> None:
    """Before anything is made: nobody wants a data folder of a service that cannot start."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OverflowError:
            raise Fault(f"--port {port}: a port is a number from 0 to 65535.") from None
        except OSError as error:
            words = f"{host}:{port} cannot be used ({error.strerror}); try --port."
            raise Fault(words, 1) from None


def _check_identity(settings: Any) -> None:
    from service.db import Database  # noqa: PLC0415
    from service.identity import check_identity  # noqa: PLC0415

    db = Database(settings.url, pool_size=1, patience=settings.database_seconds)
    try:
        check_identity(db, settings)
    finally:
        db.dispose()  # no connection may cross a worker's fork


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
    from sqlalchemy.exc import IntegrityError  # noqa: PLC0415

    from service.api.auth import create_key, create_principal  # noqa: PLC0415

    try:
        with open_database().write() as connection:
            _, key = create_key(connection, create_principal(connection, name, "admin"))
    except IntegrityError:
        raise Fault(
            f"there is a principal named {name!r}: choose another --name, or ask them for a key.",
            1,
        ) from None
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
