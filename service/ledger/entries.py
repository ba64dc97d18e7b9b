"""The ledger's entries are append-only: a row once written is never changed. A reservation is resolved
by a new row that posts or voids it, at most once."""

from typing import Any

from sqlalchemy import Connection, Row, insert, update

from service.changes import record_change
from service.db import now_ms
from service.tables import accounts, entries


def append_entry(
    connection: Connection,
    account_id: str,
    *,
    kind: str,
    units: int,
    reason: str,
    epsilon: float | None = None,
    costs: str | None = None,
    pending: int = 0,
    posted: int = 0,
    spent: str | None = None,
    resolves_seq: int | None = None,
    principal_id: str | None = None,
    dataset_id: str | None = None,
    job_id: str | None = None,
) -> Row[Any]:
    """Write the next entry of an account whose row the caller has locked, and move its running
    balances by `pending` and `posted`; `spent`, where given, replaces the account's. Returns the
    account's row, whose `entries` is the number of the new entry."""
    account = connection.execute(
        update(accounts)
        .where(accounts.c.id == account_id)
        .values(
            entries=accounts.c.entries + 1,
            pending_units=accounts.c.pending_units + pending,
            posted_units=accounts.c.posted_units + posted,
            **({} if spent is None else {"spent": spent}),
        )
        .returning(accounts)
    ).one()
    connection.execute(
        insert(entries).values(
            account_id=account_id,
            seq=account.entries,
            kind=kind,
            units=units,
            epsilon=epsilon,
            costs=costs,
            resolves_seq=resolves_seq,
            principal_id=principal_id,
            dataset_id=dataset_id,
            job_id=job_id,
            reason=reason,
            created_ms=now_ms(),
        )
    )
    record_change(connection, account_id=account_id, number=account.entries, type=kind)
    return account
