"""The service in production's form (APIs, Celery workers, PostgreSQL, Redis) and embedded in one
process tree on SQLite, each part of it a program that can be killed and is started again."""

import os
import signal
import sqlite3
import sys
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import httpx
import psycopg
import redis
from sqlalchemy import select

from service.api.auth import create_key, create_principal
from service.config import Settings
from service.db import Database, migrate, now_ms
from service.tables import processes
from tests.chaos.ground import Ground, Postgres, Redis
from tests.chaos.programs import Keeper, Program, children, running
from tests.harness import free_port, until

COMMAND = [sys.executable, "-c", "from service.cli import main; main()"]
LEASE_SECONDS, LOOP_SECONDS = 3.0, 0.5
SETTINGS = {
    "EPSILOND_LEASE_SECONDS": str(LEASE_SECONDS),
    "EPSILOND_LOOP_SECONDS": str(LOOP_SECONDS),
}
# The service forgets a job's noise key when the job ends; whoever wants to know whether a retry was
# the same to the bit has to keep it.
KEEP_KEYS = {
    "postgresql": """
        CREATE TABLE kept_keys (job_id text PRIMARY KEY, wrapped_key bytea NOT NULL);
        CREATE FUNCTION keep_key() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            INSERT INTO kept_keys VALUES (NEW.id, NEW.wrapped_key); RETURN NULL; END $$;
        CREATE TRIGGER keep_key AFTER INSERT ON jobs
            FOR EACH ROW EXECUTE FUNCTION keep_key();
    """,
    "sqlite": """
        CREATE TABLE kept_keys (job_id text PRIMARY KEY, wrapped_key blob NOT NULL);
        CREATE TRIGGER keep_key AFTER INSERT ON jobs BEGIN
            INSERT INTO kept_keys VALUES (NEW.id, NEW.wrapped_key); END;
    """,
}


class Cluster:
    """What both forms have; `programs` are kept running by a keeper until they are told to stop."""

    engine: str

    def __init__(self, ground: Ground, stack: ExitStack):
        self.ground, self.programs, self.db = ground, [], None
        self.urls, self._serving, self.processes = [], [], 0
        self.keeper = Keeper(self.programs)
        stack.callback(self.stop)

    def _add(self, name, words, place, settings):
        environment = os.environ | SETTINGS | settings
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # or each start compiles every module anew
        prefix = self.ground.inside(place)
        program = Program(name, [*COMMAND, *words], self.ground.log, environment, prefix)
        self.programs.append(program)
        return program

    def _serve(self, name, words, settings):
        port = free_port()
        program = self._add(name, [*words, "--port", str(port)], "apis", settings)
        self.urls.append(f"http://127.0.0.1:{port}")
        self._serving.append(program)
        return program

    def _settle(self, settings):
        self.settings = Settings(
            **{name.removeprefix("EPSILOND_").lower(): value for name, value in settings.items()}
        )
        self.db = Database(self.settings.url, pool_size=4, patience=30.0)

    def named(self, prefix):
        return [p for p in self.programs if p.name.startswith(prefix)]

    def ingestions(self):
        """The processes that read uploads, for as long as they are at it."""
        serving = [p for p in self._serving if p.alive]
        return [pid for p in serving for pid in children(p.pid, "service.datasets.ingest")]

    def start(self):
        for program in self.programs:
            if not program.alive:
                program.start()
        self.keeper.start()
        for url in self.urls:
            until(lambda url=url: ready(url), "the service's start", 120)

    def administrator(self):
        """The key of a new one."""
        with self.db.write() as connection:
            principal = create_principal(connection, "chaos", "admin")
            return create_key(connection, principal, None)[1]

    def listed_processes(self):
        """(role, process) of all that have said so within two heartbeats: that they can work."""
        lately = select(processes).where(processes.c.seen_ms > now_ms() - 20_000)
        with self.look() as connection:
            return {(row.role, row.pid) for row in connection.execute(lately)}

    @contextmanager
    def look(self):
        """A snapshot, by a connection that no earlier fault has cut."""
        self.db.dispose()
        with self.db.read() as connection:
            yield connection

    def stop(self):
        self.keeper.stop()
        if self.db is not None:
            self.db.dispose()
        for program in reversed(self.programs):
            program.kill()
        end_orphans(self.ground.folder)


class Celery(Cluster):
    engine = "celery"

    def __init__(self, ground, stack, apis=2, workers=2, concurrency=2):
        super().__init__(ground, stack)
        inside, network = ground.inside("servers"), ground.network is not None
        self.postgres = Postgres(ground.servers, ground.log, inside, network)
        self.redis = Redis(ground.servers, ground.log, inside, network)
        self.programs += [self.postgres, self.redis]
        for program in (self.postgres, self.redis):
            program.start()
        until(self._postgres_answers, "PostgreSQL's start")
        with psycopg.connect(self._libpq("postgres"), autocommit=True) as connection:
            connection.execute("CREATE DATABASE epsilond")
        migrate(self.postgres.own_url())
        with psycopg.connect(self._libpq(), autocommit=True) as connection:
            connection.execute(KEEP_KEYS["postgresql"])
        self._settle(self._environment("apis") | {"EPSILOND_DATABASE_URL": self.postgres.own_url()})
        for number in range(apis):
            self._serve(f"api {number + 1}", ["api"], self._environment("apis"))
        for number in range(workers):
            words = ["worker", "--concurrency", str(concurrency)]
            self._add(f"worker {number + 1}", words, "workers", self._environment("workers"))
        self.processes = apis + workers * concurrency

    def _environment(self, place):
        host = self.ground.host(place)
        return {
            "EPSILOND_ENGINE": "celery",
            "EPSILOND_DATA_DIR": str(self.ground.data),
            "EPSILOND_DATABASE_URL": self.postgres.url(host),
            "EPSILOND_BROKER_URL": self.redis.url(host),
        }

    def _libpq(self, database="epsilond"):
        return self.postgres.own_url(database).replace("+psycopg", "")

    def _postgres_answers(self):
        with suppress(psycopg.Error), psycopg.connect(self._libpq("postgres")):
            return True
        return False

    def backends(self):
        """PostgreSQL's processes that serve the service's connections."""
        query = """SELECT pid FROM pg_stat_activity WHERE datname = 'epsilond'
                   AND backend_type = 'client backend' AND client_addr IS NOT NULL"""
        with suppress(psycopg.Error), psycopg.connect(self._libpq("postgres")) as connection:
            return sorted(pid for (pid,) in connection.execute(query))
        return []

    def cut_database_connections(self):
        query = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE datname = 'epsilond' AND client_addr IS NOT NULL"""
        with psycopg.connect(self._libpq("postgres")) as connection:
            return len(connection.execute(query).fetchall())

    def broker(self):
        return closing(redis.Redis(unix_socket_path=str(self.redis.socket), socket_timeout=10))

    def workers_children(self):
        return [(w, pid) for w in self.named("worker") if w.alive for pid in children(w.pid)]


class Embedded(Cluster):
    """`epsilond serve`."""

    engine = "embedded"

    def __init__(self, ground, stack):
        super().__init__(ground, stack)
        self.file = ground.data / "epsilond.db"
        settings = {
            "EPSILOND_ENGINE": "embedded",
            "EPSILOND_DATA_DIR": str(ground.data),
            "EPSILOND_WORKERS": "2",
        }
        migrate(f"sqlite:///{self.file}")
        with closing(sqlite3.connect(self.file)) as connection:
            connection.executescript(KEEP_KEYS["sqlite"])
        self._settle(settings)
        words = ["serve", "--data", str(ground.data)]
        self.service = self._serve("service", words, settings)
        self.processes = 3

    def workers(self):
        """Its processes that run jobs."""
        return children(self.service.pid, "workers.local") if self.service.alive else []

    @contextmanager
    def locked(self):
        """Another program has the database's write lock: a back-up, or somebody's shell."""
        with closing(sqlite3.connect(self.file, timeout=30, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute("ROLLBACK")


def end_orphans(folder):
    """Of a parent that was killed alone, children may be left that are at a job. They end by
    themselves, on Linux at once."""
    mine = f"EPSILOND_DATA_DIR={folder}".encode()
    for pid, _, _ in running():
        with suppress(OSError):
            if mine in Path(f"/proc/{pid}/environ").read_bytes():
                os.kill(pid, signal.SIGKILL)


def ready(url):
    with suppress(httpx.TransportError):
        return httpx.get(f"{url}/readyz", timeout=10).status_code == 200
    return False
