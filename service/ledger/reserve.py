"""Reserve, post, void: the only code that moves a balance.

Each locks the account's row first, decides on what it then reads, writes an entry and the running
balances of the account and of every limit that applies, and leaves the commit to its caller, whose
transaction also holds the job. Two requests can therefore not both spend the same remainder; and
should this file be wrong, the tables' CHECKs still refuse an overspent account or limit.
"""

import json
from collections import Counter

from sqlalchemy import Connection, select

from service.ledger.accounts import Account, account_from, lock_account
from service.ledger.admission import admission, standing
from service.ledger.costs import cost_of
from service.ledger.entries import append_entry
from service.ledger.limits import Price, move_balances, open_limits
from service.planning.price import measures
from service.tables import entries


class AlreadyResolvedError(RuntimeError):
    """A reservation was posted or voided a second time: a bug, never an outcome."""


def reserve(
    connection: Connection,
    account_id: str,
    *,
    price: Price,
    epsilon: float,
    delta: float,
    principal_id: str,
    dataset_id: str | None,
    job_id: str,
) -> int:
    """Admit a job of this (epsilon, delta), or raise why it is refused (see admission.py); returns
    the entry's number."""
    account = lock_account(connection, account_id)
    found = standing(connection, account, principal_id)
    refusal = admission(found, price, delta)
    if refusal is not None:
        raise refusal
    terms = {one.key: one for one in measures(account.terms)}
    terms |= {limit.terms.key: limit.terms for limit in found.limits}
    units = price(account.terms)
    move_balances(connection, found.limits[1:], price, pending=1, posted=0)
    row = append_entry(
        connection,
        account_id,
        kind="reserve",
        units=units,
        epsilon=epsilon,
        costs=json.dumps({key: price(one) for key, one in sorted(terms.items())}),
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


def _resolve(connection: Connection, account_id: str, seq: int, kind: str, reason: str) -> Account:
    account = lock_account(connection, account_id)
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
    posted, cost = int(kind == "post"), cost_of(connection, row.job_id, row.costs)
    applying = open_limits(connection, account_id, row.principal_id)
    move_balances(connection, applying, cost, pending=-1, posted=posted)
    spent = None
    if posted:
        sums = Counter(account.spent)
        sums.update({one.key: cost(one) for one in measures(account.terms)})
        spent = json.dumps(dict(sorted(sums.items())))
    after = append_entry(
        connection,
        account_id,
        kind=kind,
        units=row.units,
        epsilon=row.epsilon,
        pending=-row.units,
        posted=posted * row.units,
        spent=spent,
        resolves_seq=seq,
        principal_id=row.principal_id,
        dataset_id=row.dataset_id,
        job_id=row.job_id,
        reason=reason,
    )
    return account_from(after)
