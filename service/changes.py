"""The change feed: every job event and every ledger entry, in one order that all processes agree on.

Whoever changes a job or an account adds a row in the same transaction. Its id does not give the
order of commits: a transaction that took a smaller id may commit later, and a reader who remembers
the largest id seen would miss it. A reader therefore first assigns positions to the committed rows,
one reader at a time, and reads by position. Positions follow commits, no writer ever waits for them,
and rows of one job or account, which were written under its lock, keep their order.
"""

from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, or_, select, update

from service.db import Database, now_ms
from service.tables import changes

RETENTION_MS = 7 * 24 * 3600 * 1000
_BATCH = 500
_POSITIONS_LOCK = 0x6570_7369  # PostgreSQL's advisory lock for assigning positions


_CHANGES = insert(changes).values(created_ms=now_ms())


def record_changes(connection: Connection, rows: list[dict[str, Any]]) -> None:
    """Several at once: each names its job or its account, its number and its type."""
    empty = {"job_id": None, "account_id": None}
    connection.execute(_CHANGES, [empty | row for row in rows])


def assign_positions(db: Database) -> None:
    """Give a batch of committed rows without a position, oldest first, the next ones."""
    with db.write() as connection:
        if not db.is_sqlite:
            connection.execute(select(func.pg_advisory_xact_lock(_POSITIONS_LOCK)))
        last = select(func.coalesce(func.max(changes.c.position), 0)).scalar_subquery()
        after = func.row_number().over(order_by=changes.c.id)
        waiting = (
            select(changes.c.id, (last + after).label("position"))
            .where(changes.c.position.is_(None))
            .order_by(changes.c.id)
            .limit(_BATCH)
            .subquery()
        )
        connection.execute(
            update(changes).where(changes.c.id == waiting.c.id).values(position=waiting.c.position)
        )


def unread_changes(connection: Connection, position: int | None) -> list[Row[Any]]:
    """Rows after a position, in order, and rows that have none yet: both in one query, since mostly
    there are neither. Without a position, only the latter."""
    unassigned = changes.c.position.is_(None)
    wanted = unassigned if position is None else or_(unassigned, changes.c.position > position)
    query = select(changes).where(wanted).order_by(changes.c.position).limit(_BATCH)
    return list(connection.execute(query))


def position_range(connection: Connection) -> tuple[int, int]:
    """The oldest and the newest position that the feed still holds; (1, 0) if it is empty."""
    ends = select(func.min(changes.c.position), func.max(changes.c.position))
    oldest, newest = connection.execute(ends).one()
    return (1, 0) if newest is None else (oldest, newest)


def changes_after(connection: Connection, position: int) -> list[Row[Any]]:
    """The next rows of the feed, at most a batch."""
    query = select(changes).where(changes.c.position > position)
    return list(connection.execute(query.order_by(changes.c.position).limit(_BATCH)))


def purge_changes(db: Database) -> None:
    """Delete rows older than a week, but never the newest, from which positions continue."""
    with db.write() as connection:
        newest = select(func.max(changes.c.position)).scalar_subquery()
        connection.execute(
            delete(changes).where(
                changes.c.created_ms < now_ms() - RETENTION_MS,
                or_(changes.c.position.is_(None), changes.c.position < newest),
            )
        )
