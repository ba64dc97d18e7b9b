"""Connections and transactions, alike on PostgreSQL and SQLite.

`write()` is one transaction that may change things: on SQLite it is BEGIN IMMEDIATE, which takes the
database's write lock at once, so what is read inside stays true until the commit; on PostgreSQL the
callers lock the rows they decide on with SELECT ... FOR UPDATE. `read()` is a snapshot.
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

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
    select,
)
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


class Database:
    def __init__(self, url: str, pool_size: int = 20) -> None:
        self.url = url
        self.is_sqlite = url.startswith("sqlite")
        if self.is_sqlite:
            self._writer = _sqlite_engine(url, "BEGIN IMMEDIATE", pool_size)
            self._reader = _sqlite_engine(url, "BEGIN", pool_size)
        else:
            self._writer = create_engine(
                url,
                pool_size=pool_size,
                max_overflow=pool_size,
                pool_recycle=1800,  # no ping before each use: a lost server empties the pool at once
                hide_parameters=True,
            )
            self._reader = self._writer.execution_options(isolation_level="REPEATABLE READ")

    @property
    def engine(self) -> Engine:
        return self._writer

    @contextmanager
    def write(self) -> Iterator[Connection]:
        with self._writer.begin() as connection:
            yield connection

    @contextmanager
    def read(self) -> Iterator[Connection]:
        with self._reader.begin() as connection:
            yield connection

    def dispose(self) -> None:
        self._writer.dispose()
        self._reader.dispose()


def _sqlite_engine(url: str, begin: str, pool_size: int) -> Engine:
    engine = create_engine(
        url,
        pool_size=pool_size,
        max_overflow=pool_size,
        hide_parameters=True,
        connect_args={"timeout": 60, "isolation_level": None, "check_same_thread": False},
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


def migrate(url: str) -> None:
    """Bring the database to this version's schema."""
    from alembic import command  # noqa: PLC0415 - only the migrate role needs it
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    config.attributes["url"] = url
    command.upgrade(config, "head")


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
