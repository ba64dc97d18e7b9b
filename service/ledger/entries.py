"""Entries: the append-only book. A row once written is never changed; a reservation is resolved by a
new row that posts or voids it, at most once."""

from sqlalchemy import Connection, insert, select, update

from service.db import now_ms
from service.tables import accounts, entries


def append(
    connection: Connection,
    account_id: str,
    *,
    kind: str,
    units: int,
    reason: str,
    resolves_seq: int | None = None,
    principal_id: str | None = None,
    dataset_id: str | None = None,
    job_id: str | None = None,
) -> int:
    """Write the next entry of an account whose row the caller has locked; returns its number."""
    seq: int = connection.execute(
        update(accounts)
        .where(accounts.c.id == account_id)
        .values(entries=accounts.c.entries + 1)
        .returning(accounts.c.entries)
    ).scalar_one()
    connection.execute(
        insert(entries).values(
            account_id=account_id,
            seq=seq,
            kind=kind,
            units=units,
            resolves_seq=resolves_seq,
            principal_id=principal_id,
            dataset_id=dataset_id,
            job_id=job_id,
            reason=reason,
            created_ms=now_ms(),
        )
    )
    return seq


def is_resolved(connection: Connection, account_id: str, seq: int) -> bool:
    query = select(entries.c.seq).where(
        entries.c.account_id == account_id, entries.c.resolves_seq == seq
    )
    return connection.execute(query).first() is not None
