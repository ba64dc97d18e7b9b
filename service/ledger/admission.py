"""Whether an account admits a job: one rule, by which the ledger reserves and quotes are answered.

A reservation asks under the account's lock, so that the answer holds until it commits. A quote asks
without, and may be overtaken.
"""

from dataclasses import dataclass

from sqlalchemy import Connection, select

from service.errors import AnalystCapExceeded, BudgetExceeded, BudgetFrozen, Problem
from service.ledger.accounts import Account
from service.planning.price import largest_fitting_epsilon
from service.tables import entries, shares


@dataclass(frozen=True)
class Standing:
    """An account as one analyst finds it."""

    account: Account
    share_cap: int | None  # the most that they may commit; None: only the account's own cap
    share_committed: int
    frozen_because: str | None

    @property
    def share_remaining(self) -> int | None:
        """Of their share, where they have one; never more than the account has left."""
        if self.share_cap is None:
            return None
        return min(self.share_cap - self.share_committed, self.account.remaining_units)

    @property
    def remaining(self) -> int:
        """The units that they could still reserve, within the cap and their own share of it."""
        own = self.share_remaining
        return self.account.remaining_units if own is None else own

    def largest_epsilon(self, delta: float) -> float:
        return largest_fitting_epsilon(self.remaining, delta, self.account.terms)


def standing(connection: Connection, account: Account, principal_id: str) -> Standing:
    share = connection.execute(
        select(shares.c.cap_units, shares.c.committed_units).where(
            shares.c.account_id == account.id, shares.c.principal_id == principal_id
        )
    ).first()
    return Standing(
        account=account,
        share_cap=None if share is None else share.cap_units,
        share_committed=0 if share is None else share.committed_units,
        frozen_because=_freeze_reason(connection, account.id) if account.frozen else None,
    )


def admission(found: Standing, units: int, delta: float) -> Problem | None:
    """Why a job of this price is refused, or None: it is admitted iff the account is not frozen,
    posted + pending + units stays within the cap, and the analyst's own sum within their share."""
    account = found.account
    if found.frozen_because is not None:
        return BudgetFrozen(
            f"its owner froze it ({found.frozen_because}); no job is admitted until they unfreeze it."
        )
    if units > account.remaining_units:
        return BudgetExceeded(
            f"the job costs {units} units and the budget has {account.remaining_units} left. "
            + _what_fits(found, delta),
            **_balances(found, units, account.remaining_units, delta),
        )
    own = found.share_remaining
    if own is not None and units > own:
        return AnalystCapExceeded(
            f"the job costs {units} units and your share of the budget has {own} left. "
            + _what_fits(found, delta),
            **_balances(found, units, own, delta),
        )
    return None


def _what_fits(found: Standing, delta: float) -> str:
    epsilon = found.largest_epsilon(delta)
    if epsilon > 0:
        return f"A job of epsilon {epsilon} still fits."
    return "Nothing more fits; ask the dataset's owner for more."


def _balances(found: Standing, units: int, left: int, delta: float) -> dict[str, object]:
    return {
        "requested_units": units,
        "spent_units": found.account.posted_units,
        "reserved_units": found.account.pending_units,
        "remaining_units": left,
        "largest_epsilon": found.largest_epsilon(delta),
    }


def _freeze_reason(connection: Connection, account_id: str) -> str:
    reason: str = connection.execute(
        select(entries.c.reason)
        .where(entries.c.account_id == account_id, entries.c.kind == "freeze")
        .order_by(entries.c.seq.desc())
        .limit(1)
    ).scalar_one()
    return reason
