"""Connections and transactions, alike on PostgreSQL and SQLite.

`write()` is one transaction that may change things: on SQLite it is BEGIN IMMEDIATE, which takes the
database's write lock at once, so what is read inside stays true until the commit; on PostgreSQL the
callers lock the rows they decide on with SELECT ... FOR UPDATE. `read()` is a snapshot.

Nobody waits for a database for long: neither for a connection, an answer or a lock, nor, on
PostgreSQL's side, for a client that has begun a transaction and went silent. Whatever ran out of time
is an OperationalError. If it was a commit, it may have happened.
"""

import secrets
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import (
    BigInteger,
    BindParameter,
    Connection,
    CursorResult,
    Engine,
    Insert,
    Row,
    Select,
    Table,
    Update,
    bindparam,
    create_engine,
    event,
    make_url,
    select,
)
from sqlalchemy import exc as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import visitors
from sqlalchemy.sql.functions import FunctionElement


class now_ms(FunctionElement[int]):  # noqa: N801 - reads as the SQL function that it is
    """Milliseconds since 1970 by the database's clock, so that leases need no synchronised hosts."""

    type = BigInteger()
    inherit_cache = True


@compiles(now_ms, "sqlite")
def _sqlite_now(element: Any, compiler: Any, **kw: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000.0 AS INTEGER)"


@compiles(now_ms, "postgresql")
def _postgresql_now(element: Any, compiler: Any, **kw: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT)"


class Breaker:
    """Whether the database is away. While it is, one caller every RETRY_SECONDS tries it and the
    others are told at once: requests that wait would take all threads, and none would be answered."""

    RETRY_SECONDS = 0.5

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next_try: float | None = None  # None: it answers

    def enter(self) -> None:
        with self._lock:
            if self._next_try is None:
                return
            if time.monotonic() >= self._next_try:
                self._next_try = time.monotonic() + self.RETRY_SECONDS
                return
        raise away("the database did not answer a moment ago")

    def answers(self) -> None:
        self._next_try = None

    def is_away(self) -> None:
        with self._lock:
            self._next_try = time.monotonic() + self.RETRY_SECONDS


def away(why: str) -> sa.OperationalError:
    return sa.OperationalError(None, None, psycopg.OperationalError(why))


class Database:
    """`patience` is how many seconds a statement, a lock, a connection of the pool or an answer is
    waited for."""

    def __init__(self, url: str, pool_size: int = 20, patience: float = 5.0) -> None:
        self.url = url
        self.is_sqlite = url.startswith("sqlite")
        self._breaker = Breaker()
        pool = {
            "pool_size": pool_size,
            "max_overflow": pool_size,
            "pool_timeout": patience,
            "hide_parameters": True,
        }
        if self.is_sqlite:
            self._writer = _sqlite_engine(url, "BEGIN IMMEDIATE", patience, pool)
            self._reader = _sqlite_engine(url, "BEGIN", patience, pool)
        else:
            self._writer = _postgresql_engine(url, patience, self._breaker, pool)
            self._reader = self._writer.execution_options(isolation_level="REPEATABLE READ")

    @property
    def engine(self) -> Engine:
        return self._writer

    @contextmanager
    def write(self) -> Iterator[Connection]:
        with self._transaction(self._writer) as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self._transaction(self._reader) as connection:
            yield connection

    @contextmanager
    def _transaction(self, engine: Engine) -> Iterator[Connection]:
        self._breaker.enter()
        try:
            with engine.begin() as connection:
                yield connection
        except sa.TimeoutError as error:  # of the pool: all connections are in use
            raise away(str(error)) from None
        self._breaker.answers()

    def dispose(self) -> None:
        self._writer.dispose()
        self._reader.dispose()


def _postgresql_engine(url: str, patience: float, breaker: Breaker, pool: dict[str, Any]) -> Engine:
    """The server ends a statement that takes too long, a wait for a lock, and a transaction whose
    client went silent. Whether the server itself still answers, only this side can know: the kernel
    of a stopped server acknowledges all that is sent, so TCP's own time-outs see nothing wrong. A
    connection on which no byte came for longer than the server may take is therefore closed."""
    milliseconds = int(patience * 1000)
    limits = {
        "lock_timeout": milliseconds * 6 // 10,
        "statement_timeout": milliseconds * 8 // 10,
        "idle_in_transaction_session_timeout": milliseconds * 2,
    }
    given = make_url(url).query.get("options", "")
    options = " ".join((str(given), *(f"-c {name}={value}" for name, value in limits.items())))

    class Patient(psycopg.Connection[Any]):
        def wait(self, gen: Generator[Any, Any, Any], *args: Any, **kwargs: Any) -> Any:
            try:
                return super().wait(_until_silent(gen, patience), *args, **kwargs)
            except _SilentError:
                self.close()  # nobody knows what the server would answer next
                breaker.is_away()
                raise

    engine = create_engine(
        url,
        **pool,
        pool_recycle=1800,  # no ping before each use: a lost server empties the pool at once
        connect_args={
            "options": options,
            "connect_timeout": min(10, max(2, int(patience / 2))),  # libpq takes 1 for 2
            "keepalives_idle": 5,  # a peer that is gone: its machine, or the network
            "keepalives_interval": 2,
            "keepalives_count": 3,
            "tcp_user_timeout": 10_000,
        },
    )

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, record: Any, args: Any, kwargs: Any) -> Any:
        try:
            connection = Patient.connect(*args, **kwargs)
        except psycopg.OperationalError:
            breaker.is_away()
            raise
        breaker.answers()
        return connection

    return engine


class _SilentError(psycopg.OperationalError):
    """The server did not answer in time; what it was asked may have been done."""


def _until_silent(gen: Generator[Any, Any, Any], patience: float) -> Generator[Any, Any, Any]:
    """What psycopg waits by: it is resumed when the socket is ready, and every tenth of a second with
    a zero when it is not."""
    deadline = time.monotonic() + patience
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                deadline = time.monotonic() + patience
            elif time.monotonic() > deadline:
                raise _SilentError(f"the server was silent for {patience:g} s")
            wanted = gen.send(ready)
    except StopIteration as done:
        return done.value


def _sqlite_engine(url: str, begin: str, patience: float, pool: dict[str, Any]) -> Engine:
    engine = create_engine(
        url,
        **pool,
        connect_args={"timeout": patience, "isolation_level": None, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def configure(connection: Any, record: Any) -> None:
        for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begin_transaction(connection: Connection) -> None:
        connection.exec_driver_sql(begin)

    return engine


def iso(milliseconds: int | None) -> str | None:
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def migrations_folder() -> Path:
    """Beside this file in an installed wheel, at the repository's top in a checkout."""
    installed = Path(__file__).parent / "migrations"
    return installed if installed.is_dir() else Path(__file__).parent.parent / "migrations"


def migrate(url: str, revision: str = "head") -> None:
    """Bring the database to this version's schema, or to an earlier one's."""
    from alembic import command  # noqa: PLC0415 - only the migrate role needs it
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    config.attributes["url"] = url
    command.upgrade(config, revision)


def lock(connection: Connection, table: Table, id_: str) -> Row[Any]:
    """A row by id, locked until the transaction ends. FOR NO KEY UPDATE: inserting rows that refer
    to it does not wait for it. Transactions that lock several rows take them in the order principal,
    lineage, job, dataset, grant, account, so that none waits in a circle."""
    return connection.execute(_locking(table), {"locked": id_}).one()


@cache
def _locking(table: Table) -> Select[Any]:
    return select(table).where(table.c.id == bindparam("locked")).with_for_update(key_share=True)


class Together:
    """Statements that do not depend on each other, built once and run as one where the database can:
    a round trip and the wait for a processor cost more than what each does."""

    def __init__(self, first: Insert | Update, *others: Insert | Update) -> None:
        self._parts = [(each, _names(each)) for each in (*others, first)]
        ctes = [other.cte(f"also_{number}") for number, other in enumerate(others)]
        self._as_one = first.add_cte(*ctes)

    def execute(self, connection: Connection, **values: Any) -> CursorResult[Any]:
        """With the values of all their named parameters; the result is the first one's."""
        if connection.dialect.name != "sqlite":
            return connection.execute(self._as_one, values)
        for part, names in self._parts:
            result = connection.execute(part, {name: values[name] for name in names})
        return result


def _names(statement: Insert | Update) -> list[str]:
    found = visitors.iterate(statement)
    return [each.key for each in found if isinstance(each, BindParameter) and each.required]


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(12)}"
