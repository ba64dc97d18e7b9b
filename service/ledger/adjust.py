"""What an owner may still change about an account: raise its cap up to the ceiling, freeze, unfreeze.

Each is an entry with the owner's reason, written under the account's lock like every other, so the
entries alone tell what the cap was, and whether the account was frozen, at any time. Nothing lowers a
cap: an owner who wants no more spending freezes the account.
"""

from sqlalchemy import Connection, update

from service.errors import BudgetFrozen, BudgetNotFrozen, CeilingExceeded, InvalidRequest
from service.ledger.accounts import Account, account_from, lock_account
from service.ledger.entries import append_entry
from service.planning.conversion import budget_units
from service.tables import accounts


def top_up(
    connection: Connection, account_id: str, *, cap_epsilon: float, principal_id: str, reason: str
) -> Account:
    """Raise the cap. The ceiling stays: the guarantee is stated for it, whatever the cap was."""
    account = lock_account(connection, account_id)
    if cap_epsilon > account.epsilon:
        raise CeilingExceeded(
            f"the ceiling is epsilon {account.epsilon}, fixed when the account was opened; "
            "a cap up to it can be set.",
            epsilon=account.epsilon,
            epsilon_cap=account.cap_epsilon,
        )
    added = budget_units(cap_epsilon, account.terms.delta) - account.cap_units
    if added <= 0:
        raise InvalidRequest(
            f"a top-up raises the cap, which is epsilon {account.cap_epsilon}; to stop spending, "
            "freeze the budget."
        )
    connection.execute(
        update(accounts)
        .where(accounts.c.id == account_id)
        .values(cap_epsilon=cap_epsilon, cap_units=accounts.c.cap_units + added)
    )
    row = append_entry(
        connection,
        account_id,
        kind="top_up",
        units=added,
        principal_id=principal_id,
        reason=reason,
    )
    return account_from(row)


def set_frozen(
    connection: Connection, account_id: str, *, frozen: bool, principal_id: str, reason: str
) -> Account:
    """Freeze: nothing more is reserved, for any dataset of this account, until unfrozen. What was
    reserved before runs on and is charged."""
    account = lock_account(connection, account_id)
    if frozen and account.frozen:
        raise BudgetFrozen("it is frozen already; unfreeze it to admit jobs again.")
    if not frozen and not account.frozen:
        raise BudgetNotFrozen("it already admits jobs, as far as the budget goes.")
    connection.execute(update(accounts).where(accounts.c.id == account_id).values(frozen=frozen))
    row = append_entry(
        connection,
        account_id,
        kind="freeze" if frozen else "unfreeze",
        units=0,
        principal_id=principal_id,
        reason=reason,
    )
    return account_from(row)
