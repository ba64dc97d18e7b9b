"""Accounts: a ceiling fixed once, and what was spent and reserved under it.

The ceiling (epsilon, delta) fixes the account's kind, its terms and its largest budget for ever:
raising a budget after seeing outputs is not covered by a privacy filter. Caps and shares below it are
limits of their own (limits.py).
"""

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select

from service.db import lock, new_id, now_ms
from service.errors import BudgetAlreadySet, InvalidRequest
from service.ledger.entries import append_entry
from service.ledger.limits import Limit, Purpose, set_limit
from service.planning.conversion import Kind, budget_units
from service.planning.price import AccountTerms
from service.tables import accounts


@dataclass(frozen=True)
class Account:
    id: str
    lineage_id: str
    terms: AccountTerms
    epsilon: float
    ceiling_units: int
    posted_units: int
    pending_units: int
    spent: dict[str, int]  # the sums of posted units, by the key of their terms
    entries: int
    frozen: bool

    @property
    def ceiling(self) -> Limit:
        return Limit(
            purpose="ceiling",
            terms=self.terms,
            epsilon=self.epsilon,
            units=self.ceiling_units,
            posted_units=self.posted_units,
            pending_units=self.pending_units,
            in_advance=True,
        )


def new_limit(
    purpose: Purpose,
    epsilon: float,
    delta: float,
    kind: Kind | None,
    *,
    posted_units: int = 0,
    pending_units: int = 0,
    in_advance: bool = True,
) -> Limit:
    """A limit of this epsilon, at the terms that are best for it."""
    try:
        terms = AccountTerms.for_ceiling(epsilon, delta, kind)
    except ValueError:
        raise InvalidRequest(
            "a pure account has delta 0; a renyi or gaussian one has delta above 0, such as 1e-6."
        ) from None
    units = budget_units(epsilon, delta, terms.kind)
    if units == 0:
        raise InvalidRequest("the budget is below the ledger's smallest unit; use epsilon 0.0001.")
    return Limit(purpose, terms, epsilon, units, posted_units, pending_units, in_advance=in_advance)


def open_account(
    connection: Connection,
    *,
    lineage_id: str,
    principal_id: str,
    epsilon: float,
    delta: float,
    cap_epsilon: float | None = None,
    kind: Kind | None = None,
) -> Account:
    """Fix a lineage's ceiling. The caller holds the lineage's lock; a second ceiling is refused."""
    if find_account(connection, lineage_id) is not None:
        raise BudgetAlreadySet(
            "the people in this dataset already have an account; its ceiling cannot be changed."
        )
    if cap_epsilon is not None and cap_epsilon > epsilon:
        raise InvalidRequest("epsilon_cap must be at most epsilon, the ceiling.")
    ceiling = new_limit("ceiling", epsilon, delta, kind)
    capped = None
    if cap_epsilon is not None and cap_epsilon < epsilon:
        capped = new_limit("cap", cap_epsilon, delta, kind)
    account_id = new_id("acc")
    connection.execute(
        insert(accounts).values(
            id=account_id,
            lineage_id=lineage_id,
            terms=ceiling.terms.model_dump_json(),
            epsilon=epsilon,
            ceiling_units=ceiling.units,
            created_ms=now_ms(),
        )
    )
    row = append_entry(
        connection,
        account_id,
        kind="open",
        units=ceiling.units,
        epsilon=epsilon,
        principal_id=principal_id,
        reason="ceiling and cap fixed by the owner",
    )
    if capped is not None:
        set_limit(connection, account_id, None, capped, row.entries)
    return account_from(row)


_OF_LINEAGE = select(accounts).where(accounts.c.lineage_id == bindparam("lineage"))


def find_account(connection: Connection, lineage_id: str | None) -> Account | None:
    row = connection.execute(_OF_LINEAGE, {"lineage": lineage_id}).first()
    return None if row is None else account_from(row)


def lock_account(connection: Connection, account_id: str) -> Account:
    """The account with its row locked: what it says, and what its limits say, stays true until this
    transaction ends. On SQLite the write transaction already holds the database's only write lock.
    """
    return account_from(lock(connection, accounts, account_id))


def account_from(row: Row[Any]) -> Account:
    return Account(
        id=row.id,
        lineage_id=row.lineage_id,
        terms=AccountTerms.model_validate_json(row.terms),
        epsilon=row.epsilon,
        ceiling_units=row.ceiling_units,
        posted_units=row.posted_units,
        pending_units=row.pending_units,
        spent=json.loads(row.spent),
        entries=row.entries,
        frozen=row.frozen,
    )
