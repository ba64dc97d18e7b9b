"""Whether an account admits a job: one rule, by which the ledger reserves and quotes are answered.

A reservation asks under the account's lock, so that the answer holds until it commits. A quote asks
without, and may be overtaken.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from sqlalchemy import Connection, select

from service.errors import AnalystCapExceeded, BudgetExceeded, BudgetFrozen, Problem
from service.ledger.accounts import Account
from service.ledger.limits import Limit, Price, open_limits
from service.tables import entries

_CALLED = {"ceiling": "the budget", "cap": "the budget's cap", "share": "your share of the budget"}


@dataclass(frozen=True)
class Standing:
    """An account as one analyst finds it: every limit that applies to their jobs."""

    account: Account
    limits: tuple[Limit, ...]
    frozen_because: str | None

    def largest_epsilon(self, delta: float) -> float:
        """At which one job of this delta certainly fits within all limits."""
        return min(limit.largest_epsilon(delta) for limit in self.limits)

    def jobs_that_fit(self, price: Price) -> int:
        return min(
            max(0, limit.remaining_units) // max(1, price(limit.terms)) for limit in self.limits
        )

    def with_reserved(self, price: Price) -> "Standing":
        """As it would be with this job admitted."""
        limits = tuple(limit.with_reserved(price(limit.terms)) for limit in self.limits)
        return replace(self, limits=limits)


def standing(connection: Connection, account: Account, principal_id: str) -> Standing:
    return standings(connection, account, {principal_id})[principal_id]


def standings(
    connection: Connection, account: Account, people: Collection[str]
) -> dict[str, Standing]:
    """The account as each of these people finds it."""
    frozen = _freeze_reason(connection, account.id) if account.frozen else None
    cap, shares = open_limits(connection, account.id, people)
    return {
        person: Standing(
            account=account,
            limits=tuple(one for one in (account.ceiling, cap, shares.get(person)) if one),
            frozen_because=frozen,
        )
        for person in people
    }


def admission(found: Standing, price: Price, delta: float) -> Problem | None:
    """Why a job of this price is refused, or None: it is admitted iff the account is not frozen and,
    for every limit, posted + pending + its cost at that limit's terms stays within its units."""
    if found.frozen_because is not None:
        return BudgetFrozen(
            f"its owner froze it ({found.frozen_because}); no job is admitted until they unfreeze it."
        )
    for limit in found.limits:
        units = price(limit.terms)
        if units > limit.remaining_units:
            problem = AnalystCapExceeded if limit.purpose == "share" else BudgetExceeded
            return problem(
                f"the job costs {units} units and {_CALLED[limit.purpose]} has "
                f"{max(0, limit.remaining_units)} left. {_what_fits(found, delta)}",
                limit=limit.purpose,
                requested_units=units,
                spent_units=limit.posted_units,
                reserved_units=limit.pending_units,
                remaining_units=limit.remaining_units,
                largest_epsilon=found.largest_epsilon(delta),
            )
    return None


def _what_fits(found: Standing, delta: float) -> str:
    epsilon = found.largest_epsilon(delta)
    if epsilon > 0:
        return f"A job of epsilon {epsilon} still fits."
    return "Nothing more fits; ask the dataset's owner for more."


def _freeze_reason(connection: Connection, account_id: str) -> str:
    reason: str = connection.execute(
        select(entries.c.reason)
        .where(entries.c.account_id == account_id, entries.c.kind == "freeze")
        .order_by(entries.c.seq.desc())
        .limit(1)
    ).scalar_one()
    return reason
