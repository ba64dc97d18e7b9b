"""The ledger's entries are append-only: a row once written is never changed. A reservation is resolved
by a new row that posts or voids it, at most once."""

from typing import Any

from sqlalchemy import (
    BindParameter,
    Connection,
    Insert,
    Row,
    bindparam,
    func,
    insert,
    select,
    update,
)

from service.db import now_ms
from service.tables import accounts, changes, entries

_GIVEN = (
    "kind",
    "units",
    "epsilon",
    "costs",
    "resolves_seq",
    "principal_id",
    "dataset_id",
    "job_id",
    "reason",
)


def _entry(name: str) -> BindParameter[Any]:
    return bindparam(f"entry_{name}", type_=entries.c[name].type)


_MOVE = (
    update(accounts)
    .where(accounts.c.id == bindparam("moved_account"))
    .values(
        entries=accounts.c.entries + 1,
        pending_units=accounts.c.pending_units + bindparam("more_pending"),
        posted_units=accounts.c.posted_units + bindparam("more_posted"),
        spent=func.coalesce(bindparam("new_spent", type_=accounts.c.spent.type), accounts.c.spent),
    )
    .returning(accounts)
)


def _rows(account_id: Any, number: Any) -> tuple[Insert, Insert]:
    """The new entry of this number, and that there is one."""
    entry = {name: _entry(name) for name in _GIVEN}
    change = {"account_id": account_id, "number": number, "type": _entry("kind")}
    both = (
        (entries, {"account_id": account_id, "seq": number, **entry, "created_ms": now_ms()}),
        (changes, {**change, "created_ms": now_ms()}),
    )
    made, said = (insert(t).from_select(list(row), select(*row.values())) for t, row in both)
    return made, said


_NUMBER = bindparam("entry_number", type_=entries.c.seq.type)
_ENTRY, _CHANGE = _rows(bindparam("moved_account", type_=entries.c.account_id.type), _NUMBER)
_MOVED = _MOVE.cte("moved")
_AT_ONCE = select(_MOVED).add_cte(
    *(row.cte(f"also_{i}") for i, row in enumerate(_rows(_MOVED.c.id, _MOVED.c.entries)))
)


def append_entry(
    connection: Connection,
    account_id: str,
    *,
    pending: int = 0,
    posted: int = 0,
    spent: str | None = None,
    **given: Any,
) -> Row[Any]:
    """Write the next entry of an account whose row the caller has locked, and move its running
    balances by `pending` and `posted`; `spent`, where given, replaces the account's. The entry has at
    least a kind, units and a reason. Returns the account's row, whose `entries` is its number."""
    move = {
        "moved_account": account_id,
        "more_pending": pending,
        "more_posted": posted,
        "new_spent": spent,
    }
    entry = {f"entry_{name}": given.pop(name, None) for name in _GIVEN}
    if given:
        raise TypeError(f"an entry has no {', '.join(given)}")
    if connection.dialect.name != "sqlite":
        return connection.execute(_AT_ONCE, {**move, **entry}).one()
    account = connection.execute(_MOVE, move).one()
    row = {"moved_account": account_id, "entry_number": account.entries, **entry}
    connection.execute(_ENTRY, row)
    connection.execute(_CHANGE, row)
    return account
