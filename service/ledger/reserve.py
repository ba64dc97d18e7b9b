"""Reserve, post, void: the only code that moves a balance.

Each locks the account's row first, decides on what it then reads, writes an entry and the running
balance, and leaves the commit to its caller, whose transaction also holds the job. Two requests can
therefore not both spend the same remainder; and should this file be wrong, the table's CHECK still
refuses an overspent account.
"""

from sqlalchemy import Connection, insert, select, update

from service.errors import InvalidRequest
from service.ledger.accounts import Account, account_from, lock_account
from service.ledger.admission import admission, standing
from service.ledger.entries import append_entry
from service.tables import entries, shares


class AlreadyResolvedError(RuntimeError):
    """A reservation was posted or voided a second time: a bug, never an outcome."""


def reserve(
    connection: Connection,
    account_id: str,
    *,
    units: int,
    principal_id: str,
    dataset_id: str,
    job_id: str,
    delta: float,
) -> int:
    """Admit a job, or raise why it is refused (see admission.py); returns the entry's number."""
    account = lock_account(connection, account_id)
    refusal = admission(standing(connection, account, principal_id), units, delta)
    if refusal is not None:
        raise refusal
    _commit_share(connection, account_id, principal_id, units)
    row = append_entry(
        connection,
        account_id,
        kind="reserve",
        units=units,
        pending=units,
        principal_id=principal_id,
        dataset_id=dataset_id,
        job_id=job_id,
        reason="job submitted",
    )
    return int(row.entries)


def post(connection: Connection, account_id: str, seq: int, reason: str) -> Account:
    """Turn a reservation into a charge, for ever. Returns the account as it then stands."""
    return _resolve(connection, account_id, seq, "post", reason)


def void(connection: Connection, account_id: str, seq: int, reason: str) -> None:
    """Give a reservation back. Only for a job whose data was never opened: the caller has checked
    that under the job's lock."""
    _resolve(connection, account_id, seq, "void", reason)


def set_share(
    connection: Connection, account_id: str, principal_id: str, cap_units: int | None
) -> None:
    """Bound what one analyst may commit in an account (None: only the account's own cap)."""
    lock_account(connection, account_id)
    mine = (shares.c.account_id == account_id) & (shares.c.principal_id == principal_id)
    row = connection.execute(select(shares).where(mine)).first()
    if row is None:
        connection.execute(
            insert(shares).values(
                account_id=account_id, principal_id=principal_id, cap_units=cap_units
            )
        )
        return
    if cap_units is not None and row.committed_units > cap_units:
        raise InvalidRequest("the analyst has already committed more than this share.")
    connection.execute(update(shares).where(mine).values(cap_units=cap_units))


def _resolve(connection: Connection, account_id: str, seq: int, kind: str, reason: str) -> Account:
    lock_account(connection, account_id)
    resolution = entries.alias()
    row = connection.execute(
        select(entries, resolution.c.seq.label("resolved_by"))
        .outerjoin(
            resolution,
            (resolution.c.account_id == entries.c.account_id)
            & (resolution.c.resolves_seq == entries.c.seq),
        )
        .where(
            entries.c.account_id == account_id, entries.c.seq == seq, entries.c.kind == "reserve"
        )
    ).one()
    if row.resolved_by is not None:
        raise AlreadyResolvedError(
            f"entry {seq} of account {account_id} was already resolved by entry {row.resolved_by}; "
            "a reservation is posted or voided once."
        )
    if kind == "void":
        connection.execute(
            update(shares)
            .where(shares.c.account_id == account_id, shares.c.principal_id == row.principal_id)
            .values(committed_units=shares.c.committed_units - row.units)
        )
    account = append_entry(
        connection,
        account_id,
        kind=kind,
        units=row.units,
        pending=-row.units,
        posted=row.units if kind == "post" else 0,
        resolves_seq=seq,
        principal_id=row.principal_id,
        dataset_id=row.dataset_id,
        job_id=row.job_id,
        reason=reason,
    )
    return account_from(account)


def _commit_share(connection: Connection, account_id: str, principal_id: str, units: int) -> None:
    """Count the job against the analyst's own cap, under the account's lock."""
    mine = (shares.c.account_id == account_id) & (shares.c.principal_id == principal_id)
    counted = connection.execute(
        update(shares).where(mine).values(committed_units=shares.c.committed_units + units)
    )
    if counted.rowcount == 0:
        connection.execute(
            insert(shares).values(
                account_id=account_id, principal_id=principal_id, committed_units=units
            )
        )
