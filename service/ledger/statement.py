"""An account as its readers see it: the budget, and every entry with the balance after it.

Units are the truth and add up. The epsilons beside them say how the same amounts read as jobs at the
account's delta, and do not add up.
"""

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, case, func, select

from service.db import iso
from service.ledger.accounts import Account
from service.ledger.admission import standing
from service.planning.conversion import epsilon_of_units, largest_epsilon
from service.tables import entries


def budget(connection: Connection, account: Account, principal_id: str) -> dict[str, Any]:
    """The balance, what adding up the charges' epsilons would read, and the caller's own share."""
    delta = account.terms.delta
    charges = connection.execute(
        select(entries.c.units, func.count().label("times"))
        .where(entries.c.account_id == account.id, entries.c.kind == "post")
        .group_by(entries.c.units)
    )
    summed = sum(row.times * epsilon_of_units(row.units, delta) for row in charges)
    found = standing(connection, account, principal_id)
    share = None
    if found.share_cap is not None and found.share_remaining is not None:
        share = {
            "epsilon_cap": epsilon_of_units(found.share_cap, delta),
            "epsilon_committed": epsilon_of_units(found.share_committed, delta),
            "epsilon_remaining": largest_epsilon(found.share_remaining, delta),
            "units_cap": found.share_cap,
            "units_committed": found.share_committed,
            "units_remaining": found.share_remaining,
        }
    return account.balance() | {"epsilon_summed": round(summed, 6), "share": share}


def statement(account: Account, **filters: str | None) -> Select[Any]:
    """The account's entries that match, each with the sums of everything up to it, matching or not."""
    moves = {
        "cap_after": {"open": 1, "top_up": 1},
        "pending_after": {"reserve": 1, "post": -1, "void": -1},
        "posted_after": {"post": 1},
    }
    sums = (_running(signs).label(name) for name, signs in moves.items())
    selection = select(entries, *sums).where(entries.c.account_id == account.id).subquery()
    query = select(selection)
    for column, value in filters.items():
        if value is not None:
            query = query.where(selection.c[column] == value)
    return query


def entry_view(row: Row[Any], account: Account) -> dict[str, Any]:
    delta = account.terms.delta
    spent, remaining = (
        int(row.posted_after),
        int(row.cap_after - row.posted_after - row.pending_after),
    )
    return {
        "account": row.account_id,
        "seq": row.seq,
        "kind": row.kind,
        "units": row.units,
        "epsilon": epsilon_of_units(row.units, delta),
        "resolves": row.resolves_seq,
        "principal": row.principal_id,
        "dataset": row.dataset_id,
        "job": row.job_id,
        "reason": row.reason,
        "created_at": iso(row.created_ms),
        "units_spent": spent,
        "units_remaining": remaining,
        "epsilon_spent": epsilon_of_units(spent, delta),
        "epsilon_remaining": largest_epsilon(remaining, delta),
    }


def _running(signs: dict[str, int]) -> ColumnElement[int]:
    """The sum of the units of these kinds of entry, by sign, up to and including each entry."""
    moved = case(
        *((entries.c.kind == kind, sign * entries.c.units) for kind, sign in signs.items()), else_=0
    )
    return func.sum(moved).over(order_by=entries.c.seq)
