"""An account as its readers see it: the budget, and every entry with the balance after it.

Units are the truth and add up; so do fractions of the ceiling, which are the same amounts. Epsilons
do not: `epsilon_spent` is the smallest that a stated method proves for all posted jobs together, had
they been fixed in advance, and `epsilon_remaining` the largest at which a single job surely fits.
docs/budgets.md has a worked example.
"""

import json
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, case, func, select

from service.db import iso
from service.ledger.accounts import Account
from service.ledger.admission import Standing
from service.ledger.limits import Limit
from service.planning.price import smallest_epsilon
from service.tables import entries, jobs


def budget(connection: Connection, found: Standing) -> dict[str, Any]:
    """The account as one person finds it: its balance, and every limit that applies to their jobs."""
    account, delta = found.account, found.account.terms.delta
    summed = connection.execute(
        select(func.coalesce(func.sum(entries.c.epsilon), 0.0)).where(
            entries.c.account_id == account.id, entries.c.kind == "post"
        )
    ).scalar_one()
    spent, method = _spent(connection, account)
    cap = min(limit.epsilon for limit in found.limits if limit.purpose != "share")
    largest = found.largest_epsilon(delta)
    return {
        "account": account.id,
        "kind": account.terms.kind,
        "order": account.terms.order,
        "epsilon": account.epsilon,
        "delta": delta,
        "epsilon_cap": cap,
        "epsilon_spent": spent,
        "epsilon_spent_by": method,
        "epsilon_remaining": largest,
        "epsilon_summed": round(summed, 6),
        "units_ceiling": account.ceiling_units,
        **_parts(account.ceiling),
        "limits": [limit_view(limit, delta) for limit in found.limits],
        "words": _words(found, spent, method, largest),
        "entries": account.entries,
        "frozen": account.frozen,
    }


def _spent(connection: Connection, account: Account) -> tuple[float, str]:
    """The smallest epsilon that is proved for all posted jobs together, and how. What a single one
    has by itself was proved when it was planned."""
    if not account.spent:
        return 0.0, "nothing"
    delta = account.terms.delta
    epsilon, method = smallest_epsilon(account.spent, delta)
    of_posted = (entries.c.account_id == account.id) & (entries.c.kind == "post")
    query = select(jobs.c.plan).join(entries, (entries.c.job_id == jobs.c.id) & of_posted)
    plans = connection.execute(query.limit(2)).scalars().all()
    if len(plans) == 1:
        own = json.loads(plans[0])["guarantee"]
        if own["delta"] <= delta and own["epsilon"] < epsilon:
            return own["epsilon"], "its own Plan"
    return epsilon, method


def limit_view(limit: Limit, delta: float) -> dict[str, Any]:
    return {
        "limit": limit.purpose,
        "epsilon": limit.epsilon,
        "order": limit.terms.order,
        "units": limit.units,
        **_parts(limit),
        "epsilon_remaining": limit.largest_epsilon(delta),
        "in_advance": limit.in_advance,
        "overdrawn": limit.overdrawn,
    }


def committed_by(connection: Connection, account_id: str) -> dict[str, int]:
    """What each person has reserved and not been given back, in the ceiling's units."""
    moved = case((entries.c.kind == "void", -entries.c.units), else_=entries.c.units)
    rows = connection.execute(
        select(entries.c.principal_id, func.sum(moved).label("units"))
        .where(entries.c.account_id == account_id, entries.c.kind.in_(("reserve", "void")))
        .group_by(entries.c.principal_id)
    )
    return {row.principal_id: int(row.units) for row in rows}


def statement(account: Account, **filters: str | None) -> Select[Any]:
    """The account's entries that match, each with the sums of everything up to it, matching or not."""
    moves = {
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
    spent, reserved = int(row.posted_after), int(row.pending_after)
    remaining = account.ceiling_units - spent - reserved
    return {
        "account": row.account_id,
        "seq": row.seq,
        "kind": row.kind,
        "units": row.units,
        "epsilon": row.epsilon,
        "resolves": row.resolves_seq,
        "principal": row.principal_id,
        "dataset": row.dataset_id,
        "job": row.job_id,
        "reason": row.reason,
        "created_at": iso(row.created_ms),
        "units_spent": spent,
        "units_reserved": reserved,
        "units_remaining": remaining,
        "fraction_remaining": remaining / account.ceiling_units,
    }


def _parts(limit: Limit) -> dict[str, int | float]:
    amounts = {
        "spent": limit.posted_units,
        "reserved": limit.pending_units,
        "remaining": limit.remaining_units,
    }
    units, whole = {f"units_{name}": amount for name, amount in amounts.items()}, limit.units or 1
    return units | {f"fraction_{name}": amount / whole for name, amount in amounts.items()}


def _words(found: Standing, spent: float, method: str, largest: float) -> str:
    account, ceiling = found.account, found.account.ceiling
    share = {
        "spent": ceiling.posted_units,
        "reserved": ceiling.pending_units,
        "left": ceiling.remaining_units,
    }
    parts = ", ".join(
        f"{100 * units / ceiling.units:.1f} % {name}" for name, units in share.items()
    )
    together = (
        f"The jobs posted so far, had they been fixed in advance, are together ({spent:g}, "
        f"{account.terms.delta:g})-differentially private, by {method}"
        if ceiling.posted_units
        else "No job has been posted yet"
    )
    fits = f"one more of up to epsilon {largest:g} fits" if largest > 0 else "nothing more fits"
    if account.frozen:
        fits = "nothing is admitted while it is frozen"
    tight = min(found.limits, key=lambda limit: limit.largest_epsilon(account.terms.delta))
    why = "" if tight.purpose == "ceiling" else f" (bounded by the {tight.purpose})"
    return (
        f"Of the ceiling: {parts}; these add up to all of it. Epsilons do not add up, because jobs "
        f"together cost less than their sum. {together}; {fits}{why}."
    )


def _running(signs: dict[str, int]) -> ColumnElement[int]:
    """The sum of the units of these kinds of entry, by sign, up to and including each entry."""
    moved = case(
        *((entries.c.kind == kind, sign * entries.c.units) for kind, sign in signs.items()), else_=0
    )
    return func.sum(moved).over(order_by=entries.c.seq)
