"""Real servers, a real service in its own processes, and people who use it."""

import atexit
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psycopg
from sqlalchemy import make_url

from epsilond import Client
from service.config import Settings
from service.db import Database, migrate

ENGINES = ("embedded", "celery")
DATABASES = ("sqlite", "postgresql")


def server(variable):
    """The URL of a server that tools/dev.py found or started."""
    url = os.environ.get(variable)
    if not url:
        raise RuntimeError(
            f"{variable} is not set, and these tests need a real server. "
            "Run them with `make test`, which finds or starts one."
        )
    return url


@cache
def template(kind):
    """One migrated database of each kind, copied for every test: migrating takes much longer."""
    if kind == "sqlite":
        path = Path(tempfile.mkdtemp(prefix="epsilond-template-")) / "template.db"
        migrate(f"sqlite:///{path}")
        atexit.register(shutil.rmtree, path.parent)
        return path
    name = f"epsilond_template_{secrets.token_hex(6)}"
    administer(f"CREATE DATABASE {name}")
    atexit.register(administer, f"DROP DATABASE {name} WITH (FORCE)")
    migrate(database_named(name))
    return name


def administer(statement):
    base = make_url(server("EPSILOND_TEST_POSTGRES_URL")).set(drivername="postgresql")
    url = base.render_as_string(hide_password=False)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


def database_named(name):
    base = make_url(server("EPSILOND_TEST_POSTGRES_URL"))
    return base.set(database=name).render_as_string(hide_password=False)


@contextmanager
def fresh_database(kind, folder):
    """The URL of a new, migrated database."""
    if kind == "sqlite":
        path = Path(folder) / "test.db"
        shutil.copy(template(kind), path)
        yield f"sqlite:///{path}"
        return
    name = f"epsilond_test_{secrets.token_hex(6)}"
    administer(f"CREATE DATABASE {name} TEMPLATE {template(kind)}")
    try:
        yield database_named(name)
    finally:
        administer(f"DROP DATABASE {name} WITH (FORCE)")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def until(condition, what, seconds=60):
    """Wait for a fact; a watchdog, not a measurement."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen within {seconds} s")
        time.sleep(0.02)
    return value


class Service:
    """A running epsilond: API and workers in processes of their own, on a database of its own."""

    def __init__(self, engine, folder, database_url, **settings):
        self.engine, self.folder = engine, folder
        self.environment = {
            "EPSILOND_ENGINE": engine,
            "EPSILOND_DATA_DIR": str(folder / "data"),
            "EPSILOND_DATABASE_URL": database_url,
            "EPSILOND_LOOP_SECONDS": "0.2",
            "EPSILOND_LEASE_SECONDS": "3",
            **{f"EPSILOND_{name.upper()}": str(value) for name, value in settings.items()},
        }
        if engine == "celery":
            prefix = os.environ.get("EPSILOND_TEST_REDIS_PREFIX", "epsilond-test:")
            self.environment |= {
                "EPSILOND_BROKER_URL": server("EPSILOND_TEST_REDIS_URL"),
                "EPSILOND_BROKER_PREFIX": f"{prefix}{secrets.token_hex(4)}:",
            }
        self.settings = Settings(
            **{k.removeprefix("EPSILOND_").lower(): v for k, v in self.environment.items()}
        )
        (folder / "data").mkdir(exist_ok=True)
        self.db = Database(self.settings.url, pool_size=2)
        self.log = folder / "service.log"
        self.processes = {}
        self.clients = []

    def spawn(self, name, *arguments):
        with self.log.open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-c", "from service.cli import main; main()", *arguments],
                env=os.environ | self.environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self.processes[name]

    def start(self, workers=True):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.spawn("api", "api", "--port", str(self.port))
        if self.engine == "celery" and workers:
            self.spawn("worker", "worker", "--concurrency", "1")
        until(self._ready, "the service's start")
        self.admin = self.client(self.init_key())
        return self

    def _ready(self):
        import httpx  # noqa: PLC0415 - only here

        try:
            return httpx.get(f"{self.url}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def init_key(self):
        from service.api.auth import create_key, create_principal  # noqa: PLC0415

        with self.db.write() as connection:
            principal = create_principal(connection, f"admin {secrets.token_hex(4)}", "admin")
            return create_key(connection, principal, None)[1]

    def client(self, key):
        client = Client(self.url, key, retries=0)
        self.clients.append(client)
        return client

    def person(self, role):
        """A new principal with a client of their own."""
        principal = self.admin.add_principal(f"{role} {secrets.token_hex(4)}", role)
        key = self.admin.add_key(principal["id"])["key"]
        client = self.client(key)
        client.id, client.key = principal["id"], key
        return client

    def scene(self, epsilon=2.0, delta=1e-6, rows=2000, columns=4, **kwargs):
        """An owner with a ready dataset and a budget, and an analyst who may use it."""
        owner, analyst = self.person("owner"), self.person("analyst")
        dataset = owner.declare_dataset("numbers", numeric_schema(columns, **kwargs))["id"]
        owner.upload(dataset, numbers(self.folder, rows, columns))
        owner.set_budget(dataset, epsilon, delta)
        owner.grant(dataset, analyst.id)
        return SimpleNamespace(owner=owner, analyst=analyst, dataset=dataset)

    def kill(self, name):
        """kill -9, with every process that it started."""
        os.killpg(self.processes[name].pid, signal.SIGKILL)
        self.processes.pop(name).wait()

    def stop(self):
        for process in self.processes.values():
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        for client in self.clients:
            client.close()
        self.db.dispose()

    def fact(self, query, *values):
        """One value straight from the database."""
        with self.db.read() as connection:
            return connection.exec_driver_sql(query, values or None).scalar()


@contextmanager
def running(engine, folder, **settings):
    with fresh_database("sqlite" if engine == "embedded" else "postgresql", folder) as url:
        service = Service(engine, folder, url, **settings)
        try:
            yield service.start()
        except BaseException:
            print(service.log.read_text()[-4000:] if service.log.exists() else "no log")
            raise
        finally:
            service.stop()


def numeric_schema(columns=4, label="binary", kind="numeric", holdout=0):
    bounds = {"lower": -1.0, "upper": 1.0} if kind == "numeric" else {}
    labels = {
        "binary": {"name": "y", "kind": "binary", "positive": "1", "negative": "0"},
        "numeric": {"name": "y", "kind": "numeric", "lower": -1.0, "upper": 1.0},
        "unbounded": {"name": "y", "kind": "unbounded", "scale": 0.01},
    }
    return {
        "columns": [{"name": f"x{j}", "kind": kind, **bounds} for j in range(columns)],
        "label": labels[label],
        "holdout": holdout,
    }


def numbers(folder, rows, columns, seed=None, label="binary"):
    """A file of generated rows whose first column decides the label; a new one each time."""
    rng = np.random.default_rng(secrets.randbits(64) if seed is None else seed)
    x = rng.uniform(-1, 1, (rows, columns))
    y = (x[:, 0] > 0).astype(np.int64) if label == "binary" else np.clip(x[:, 0], -1, 1)
    path = Path(folder) / f"numbers-{secrets.token_hex(4)}.npz"
    np.savez(path, X=x, y=y)
    return path


def job(dataset, epsilon=0.1, algorithm="gradient-descent", **changes):
    return {
        "dataset": dataset,
        "algorithm": algorithm,
        "loss": "logistic",
        "privacy": {"epsilon": epsilon},
        "parameters": {"steps": 3},
        **changes,
    }
