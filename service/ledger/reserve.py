"""Reserve, post, void: the only code that moves a balance.

Each locks the account's row first, decides on what it then reads, writes an entry and the running
balances of the account and of every limit that applies, and leaves the commit to its caller, whose
transaction also holds the job. Two requests can therefore not both spend the same remainder; and
should this file be wrong, the tables' CHECKs still refuse an overspent account or limit.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from service.changes import record_changes
from service.db import now_ms
from service.errors import Problem
from service.ledger.accounts import Account, account_from, lock_account
from service.ledger.admission import Standing, admission, standings
from service.ledger.costs import cost_of
from service.ledger.entries import append_entry
from service.ledger.limits import Limit, Price, applying, move_balances
from service.planning.price import AccountTerms, measures
from service.tables import accounts, entries, limits


class AlreadyResolvedError(RuntimeError):
    """A reservation was posted or voided a second time: a bug, never an outcome."""


class Outdated(Exception):  # noqa: N818 - no error: whoever asked begins anew
    """A reservation was asked for on the strength of something that is no longer so."""


@dataclass(frozen=True)
class Wanted:
    """A job of this (epsilon, delta) that asks to be admitted."""

    price: Price
    epsilon: float
    delta: float
    principal_id: str
    dataset_id: str | None
    job_id: str
    only_at: tuple[AccountTerms, ...] | None = None  # what it was planned for, beside the ceiling


def reserve(
    connection: Connection, account_id: str, wanted: Sequence[Wanted]
) -> list[int | Problem | Outdated]:
    """Admit each job in this order, or say why it is refused (see admission.py); the numbers of the
    entries of those that are admitted."""
    account = lock_account(connection, account_id)
    people = {one.principal_id for one in wanted}
    found = standings(connection, account, people)
    reserved: dict[str | None, Limit] = {}  # the limits as they come to stand, by id
    more: Counter[str | None] = Counter()  # and the units by which they grow
    rows: list[dict[str, Any]] = []
    outcomes: list[int | Problem | Outdated] = []
    for one in wanted:
        now = replace(
            found[one.principal_id],
            limits=tuple(reserved.get(lim.id, lim) for lim in found[one.principal_id].limits),
        )
        at = {limit.terms for limit in now.limits} - {account.terms}
        if one.only_at is not None and at != set(one.only_at):
            outcomes.append(Outdated())
            continue
        refusal = admission(now, one.price, one.delta)
        if refusal is not None:
            outcomes.append(refusal)
            continue
        for limit in now.limits:
            units = one.price(limit.terms)
            reserved[limit.id] = limit.with_reserved(units)
            more[limit.id] += units
        rows.append(_entry(account, now, one, account.entries + len(rows) + 1))
        outcomes.append(rows[-1]["seq"])
    if rows:
        _write(connection, account, rows, more)
    return outcomes


def _entry(account: Account, found: Standing, one: Wanted, seq: int) -> dict[str, Any]:
    terms = {each.key: each for each in measures(account.terms)}
    terms |= {limit.terms.key: limit.terms for limit in found.limits}
    return {
        "account_id": account.id,
        "seq": seq,
        "kind": "reserve",
        "units": one.price(account.terms),
        "epsilon": one.epsilon,
        "costs": json.dumps({key: one.price(each) for key, each in sorted(terms.items())}),
        "principal_id": one.principal_id,
        "dataset_id": one.dataset_id,
        "job_id": one.job_id,
        "reason": "job submitted",
    }


_ENTRIES = insert(entries).values(created_ms=now_ms())
_GROW_ACCOUNT = (
    update(accounts)
    .where(accounts.c.id == bindparam("grown"))
    .values(
        entries=accounts.c.entries + bindparam("written"),
        pending_units=accounts.c.pending_units + bindparam("more"),
    )
)
_GROW_LIMIT = (
    update(limits)
    .where(limits.c.id == bindparam("grown"))
    .values(pending_units=limits.c.pending_units + bindparam("more"))
)


def _write(
    connection: Connection,
    account: Account,
    rows: list[dict[str, Any]],
    more: Counter[str | None],
) -> None:
    """The entries, and by how many units the ceiling (None) and each cap and share grow."""
    grown = {"grown": account.id, "written": len(rows), "more": more.pop(None)}
    connection.execute(_GROW_ACCOUNT, grown)
    for limit_id, units in more.items():
        connection.execute(_GROW_LIMIT, {"grown": limit_id, "more": units})
    connection.execute(_ENTRIES, rows)
    record_changes(
        connection,
        [{"account_id": account.id, "number": row["seq"], "type": "reserve"} for row in rows],
    )


_resolution = entries.alias()
_RESERVATION = (
    select(entries, _resolution.c.seq.label("resolved_by"))
    .outerjoin(
        _resolution,
        (_resolution.c.account_id == entries.c.account_id)
        & (_resolution.c.resolves_seq == entries.c.seq),
    )
    .where(
        entries.c.account_id == bindparam("account"),
        entries.c.seq == bindparam("number"),
        entries.c.kind == "reserve",
    )
)


def post(
    connection: Connection, account_id: str, seq: int, reason: str
) -> tuple[Account, list[Limit]]:
    """Turn a reservation into a charge, for ever. Returns the account, and the limits that the job
    counts in, as they then stand."""
    return _resolve(connection, account_id, seq, "post", reason)


def void(connection: Connection, account_id: str, seq: int, reason: str) -> None:
    """Give a reservation back. Only for a job whose data was never opened: the caller has checked
    that under the job's lock."""
    _resolve(connection, account_id, seq, "void", reason)


def _resolve(
    connection: Connection, account_id: str, seq: int, kind: str, reason: str
) -> tuple[Account, list[Limit]]:
    account = lock_account(connection, account_id)
    row = connection.execute(_RESERVATION, {"account": account_id, "number": seq}).one()
    if row.resolved_by is not None:
        raise AlreadyResolvedError(
            f"entry {seq} of account {account_id} was already resolved by entry {row.resolved_by}; "
            "a reservation is posted or voided once."
        )
    posted, cost = int(kind == "post"), cost_of(connection, row.job_id, row.costs)
    covering = applying(connection, account_id, row.principal_id)
    moved = move_balances(connection, covering, cost, pending=-1, posted=posted)
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
    return account_from(after), moved
