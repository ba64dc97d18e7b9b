"""Accounts: a ceiling fixed once, a cap at or below it, and what is left.

The ceiling (epsilon, delta) fixes the account's kind, its Renyi order and its largest budget for
ever, and is the only unconditional claim: raising a budget after seeing outputs is not covered by a
privacy filter. Operations run under the cap.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from service.db import lock, new_id, now_ms
from service.errors import BudgetAlreadySet, InvalidRequest
from service.ledger.entries import append_entry
from service.planning.conversion import budget_units, epsilon_of_units, largest_epsilon
from service.planning.price import AccountTerms
from service.tables import accounts


@dataclass(frozen=True)
class Account:
    id: str
    lineage_id: str
    terms: AccountTerms
    epsilon: float
    cap_epsilon: float
    ceiling_units: int
    cap_units: int
    posted_units: int
    pending_units: int
    entries: int
    frozen: bool

    @property
    def remaining_units(self) -> int:
        return self.cap_units - self.posted_units - self.pending_units

    def balance(self) -> dict[str, Any]:
        """The account as the API shows it. Units are exact and add up; an epsilon is that of a single
        job of the same cost, and epsilons do not add up."""
        delta = self.terms.delta
        return {
            "account": self.id,
            "kind": self.terms.kind,
            "order": self.terms.order,
            "epsilon": self.epsilon,
            "delta": delta,
            "epsilon_cap": self.cap_epsilon,
            "epsilon_spent": epsilon_of_units(self.posted_units, delta),
            "epsilon_reserved": epsilon_of_units(self.pending_units, delta),
            "epsilon_remaining": largest_epsilon(self.remaining_units, delta),
            "units_ceiling": self.ceiling_units,
            "units_cap": self.cap_units,
            "units_spent": self.posted_units,
            "units_reserved": self.pending_units,
            "units_remaining": self.remaining_units,
            "entries": self.entries,
            "frozen": self.frozen,
        }


def open_account(
    connection: Connection,
    *,
    lineage_id: str,
    principal_id: str,
    epsilon: float,
    delta: float,
    cap_epsilon: float | None = None,
) -> Account:
    """Fix a lineage's ceiling. The caller holds the lineage's lock; a second ceiling is refused."""
    if find_account(connection, lineage_id) is not None:
        raise BudgetAlreadySet(
            "the people in this dataset already have an account; its ceiling cannot be changed."
        )
    cap_epsilon = epsilon if cap_epsilon is None else cap_epsilon
    if cap_epsilon > epsilon:
        raise InvalidRequest("epsilon_cap must be at most epsilon, the ceiling.")
    ceiling_units, cap_units = budget_units(epsilon, delta), budget_units(cap_epsilon, delta)
    if cap_units == 0:
        raise InvalidRequest("the budget is below the ledger's smallest unit; use epsilon 0.0001.")
    terms = AccountTerms.for_ceiling(epsilon, delta)
    account_id = new_id("acc")
    connection.execute(
        insert(accounts).values(
            id=account_id,
            lineage_id=lineage_id,
            terms=terms.model_dump_json(),
            epsilon=epsilon,
            cap_epsilon=cap_epsilon,
            ceiling_units=ceiling_units,
            cap_units=cap_units,
            created_ms=now_ms(),
        )
    )
    row = append_entry(
        connection,
        account_id,
        kind="open",
        units=cap_units,
        principal_id=principal_id,
        reason="ceiling and cap fixed by the owner",
    )
    return account_from(row)


def find_account(connection: Connection, lineage_id: str | None) -> Account | None:
    row = connection.execute(select(accounts).where(accounts.c.lineage_id == lineage_id)).first()
    return None if row is None else account_from(row)


def lock_account(connection: Connection, account_id: str) -> Account:
    """The account with its row locked: what it says stays true until this transaction ends.

    On SQLite the write transaction already holds the database's only write lock.
    """
    return account_from(lock(connection, accounts, account_id))


def account_from(row: Row[Any]) -> Account:
    return Account(
        id=row.id,
        lineage_id=row.lineage_id,
        terms=AccountTerms.model_validate_json(row.terms),
        epsilon=row.epsilon,
        cap_epsilon=row.cap_epsilon,
        ceiling_units=row.ceiling_units,
        cap_units=row.cap_units,
        posted_units=row.posted_units,
        pending_units=row.pending_units,
        entries=row.entries,
        frozen=row.frozen,
    )
