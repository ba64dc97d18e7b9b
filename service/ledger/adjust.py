"""What an owner may still change about an account: raise its cap up to the ceiling, give analysts
shares, freeze, unfreeze.

A cap or a share is a filter of its own (limits.py). Another epsilon has another Renyi order, so a
top-up closes the old cap and opens a new one that counts every job so far anew, from the stored Plans.
Pricing them takes a processor for a while: callers ask `costs_so_far` before they open the write
transaction, and under the lock only what came since is priced.

Top-ups and freezes are entries with the owner's reason, so the entries alone tell whether the account
was frozen at any time, and closed limits stay in their table. Nothing lowers a cap: an owner who wants
no more spending freezes the account.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, select, update

from service.errors import BudgetFrozen, BudgetNotFrozen, CeilingExceeded, InvalidRequest
from service.ledger.accounts import Account, account_from, lock_account, new_limit
from service.ledger.costs import cost_of
from service.ledger.entries import append_entry
from service.ledger.limits import Limit, Purpose, open_limits, set_limit
from service.planning.price import AccountTerms
from service.tables import accounts, entries


@dataclass(frozen=True)
class Costs:
    """What the jobs that a limit covers cost at its terms."""

    posted: Mapping[int, int]  # units by the number of the reservation
    pending: Mapping[int, int]

    def of(self, seq: int) -> int | None:
        return self.posted.get(seq, self.pending.get(seq))


NO_COSTS = Costs({}, {})


def costs_so_far(
    connection: Connection,
    account: Account,
    epsilon: float,
    principal_id: str | None = None,
    known: Costs = NO_COSTS,
) -> Costs:
    """What a limit of this epsilon would count: every reservation that was not voided, of one analyst
    or of all. `known` ones are taken."""
    terms = AccountTerms.for_ceiling(epsilon, account.terms.delta, account.terms.kind)
    resolution = entries.alias()
    query = (
        select(entries.c.seq, entries.c.job_id, entries.c.costs, resolution.c.kind.label("ended"))
        .outerjoin(
            resolution,
            (resolution.c.account_id == entries.c.account_id)
            & (resolution.c.resolves_seq == entries.c.seq),
        )
        .where(entries.c.account_id == account.id, entries.c.kind == "reserve")
    )
    if principal_id is not None:
        query = query.where(entries.c.principal_id == principal_id)
    found: dict[str | None, dict[int, int]] = {"post": {}, None: {}, "void": {}}
    for row in connection.execute(query).all():
        units = known.of(row.seq)
        if units is None and row.ended != "void":
            units = cost_of(connection, row.job_id, row.costs)(terms)
        found[row.ended][row.seq] = units or 0
    return Costs(found["post"], found[None])


def top_up(
    connection: Connection,
    account_id: str,
    *,
    cap_epsilon: float,
    principal_id: str,
    reason: str,
    known: Costs = NO_COSTS,
) -> Account:
    """Raise the cap. The ceiling stays: the guarantee is stated for it, whatever the cap was."""
    account = lock_account(connection, account_id)
    if cap_epsilon > account.epsilon:
        raise CeilingExceeded(
            f"the ceiling is epsilon {account.epsilon}, fixed when the account was opened; "
            "a cap up to it can be set.",
            epsilon=account.epsilon,
            epsilon_cap=cap_of(connection, account),
        )
    old = cap_of(connection, account)
    if cap_epsilon <= old:
        raise InvalidRequest(
            f"a top-up raises the cap, which is epsilon {old}; to stop spending, freeze the budget."
        )
    cap = None
    if cap_epsilon < account.epsilon:  # at the ceiling, the ceiling is all there is
        cap = _counted(connection, account, "cap", cap_epsilon, None, known)
    row = append_entry(
        connection,
        account_id,
        kind="top_up",
        units=0,
        epsilon=cap_epsilon,
        principal_id=principal_id,
        reason=reason,
    )
    set_limit(connection, account_id, None, cap, row.entries)
    return account_from(row)


def set_share(
    connection: Connection,
    account_id: str,
    principal_id: str,
    epsilon: float | None,
    known: Costs = NO_COSTS,
) -> None:
    """Bound what one analyst may commit in an account (None: only its ceiling and cap)."""
    account = lock_account(connection, account_id)
    share = None
    if epsilon is not None:
        share = _counted(connection, account, "share", epsilon, principal_id, known)
    set_limit(connection, account_id, principal_id, share, account.entries)


def cap_of(connection: Connection, account: Account) -> float:
    """The epsilon of the cap: the ceiling's where there is no other."""
    cap, _ = open_limits(connection, account.id, [])
    return account.epsilon if cap is None else cap.epsilon


def _counted(
    connection: Connection,
    account: Account,
    purpose: Purpose,
    epsilon: float,
    principal_id: str | None,
    known: Costs,
) -> Limit:
    """A new limit that counts the jobs before it too."""
    costs = costs_so_far(connection, account, epsilon, principal_id, known)
    made = new_limit(
        purpose,
        epsilon,
        account.terms.delta,
        account.terms.kind,
        posted_units=sum(costs.posted.values()),
        pending_units=sum(costs.pending.values()),
        in_advance=not (costs.posted or costs.pending),
    )
    if made.remaining_units < 0:
        whose = "the analyst's jobs" if purpose == "share" else "the jobs admitted so far"
        raise InvalidRequest(
            f"{whose} already cost {made.units - made.remaining_units} units at the order of this "
            f"epsilon, which holds {made.units}; set a larger one."
        )
    return made


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
