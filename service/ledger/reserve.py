"""Reserve, post, void: the only code that moves a balance.

Each locks the account's row first, decides on what it then reads, writes an entry and the running
balance, and leaves the commit to its caller, whose transaction also holds the job. Two requests can
therefore not both spend the same remainder; and should this file be wrong, the table's CHECK still
refuses an overspent account.
"""

from sqlalchemy import Connection, insert, select, update

from service.errors import AnalystCapExceeded, BudgetExceeded, BudgetFrozen, InvalidRequest
from service.ledger.accounts import Account, account_from, lock_account
from service.ledger.entries import append_entry
from service.planning.price import largest_fitting_epsilon
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
    """Admit a job iff the account is not frozen and posted + pending + units stays within the cap, and
    the analyst's own sum within theirs; returns the entry's number."""
    account = lock_account(connection, account_id)
    if account.frozen:
        raise BudgetFrozen(why_frozen(connection, account_id))
    if units > account.remaining_units:
        raise BudgetExceeded(
            "the job costs more than the budget has left. "
            + _what_fits(account, account.remaining_units, delta),
            **_refusal(account, units, account.remaining_units, delta),
        )
    _take_share(connection, account, principal_id, units, delta)
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


def analyst_share(
    connection: Connection, account: Account, principal_id: str
) -> tuple[int | None, int]:
    """An analyst's cap in an account (None: the account's own), and what they have committed of it."""
    row = connection.execute(
        select(shares.c.cap_units, shares.c.committed_units).where(
            shares.c.account_id == account.id, shares.c.principal_id == principal_id
        )
    ).first()
    return (None, 0) if row is None else (row.cap_units, row.committed_units)


def available_units(connection: Connection, account: Account, principal_id: str) -> int:
    """The units that this analyst could still reserve: within the cap and their own share of it."""
    cap, committed = analyst_share(connection, account, principal_id)
    left = account.remaining_units
    return left if cap is None else min(left, cap - committed)


def why_frozen(connection: Connection, account_id: str) -> str:
    reason = connection.execute(
        select(entries.c.reason)
        .where(entries.c.account_id == account_id, entries.c.kind == "freeze")
        .order_by(entries.c.seq.desc())
        .limit(1)
    ).scalar_one()
    return f"its owner froze it ({reason}); no job is admitted until they unfreeze it."


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


def _take_share(
    connection: Connection, account: Account, principal_id: str, units: int, delta: float
) -> None:
    """Count the job against the analyst's own cap, under the account's lock."""
    mine = (shares.c.account_id == account.id) & (shares.c.principal_id == principal_id)
    row = connection.execute(select(shares).where(mine)).first()
    if row is None:
        connection.execute(
            insert(shares).values(
                account_id=account.id, principal_id=principal_id, committed_units=units
            )
        )
        return
    if row.cap_units is not None and row.committed_units + units > row.cap_units:
        left = row.cap_units - row.committed_units
        raise AnalystCapExceeded(
            "the job costs more than your share of this budget has left. "
            + _what_fits(account, left, delta),
            **_refusal(account, units, left, delta),
        )
    connection.execute(
        update(shares).where(mine).values(committed_units=shares.c.committed_units + units)
    )


def _refusal(account: Account, units: int, left: int, delta: float) -> dict[str, object]:
    return {
        "requested_units": units,
        "spent_units": account.posted_units,
        "reserved_units": account.pending_units,
        "remaining_units": left,
        "largest_epsilon": _fitting(account, left, delta),
    }


def _fitting(account: Account, left: int, delta: float) -> float:
    return largest_fitting_epsilon(min(left, account.remaining_units), delta, account.terms)


def _what_fits(account: Account, left: int, delta: float) -> str:
    epsilon = _fitting(account, left, delta)
    return f"epsilon {epsilon} still fits." if epsilon > 0 else "Nothing more fits."
