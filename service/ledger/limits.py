"""Limits: the ceiling of an account, the owner's cap, an analyst's share. Each is a filter of its own.

A filter compares one sum with one threshold, at terms that were fixed when it was set (price.py): a
`renyi` limit has a Renyi order, the best for its own epsilon, and counts every job that it covers at
that order. A cost at another limit's order says nothing about it, so an entry stores what its job
costs at each limit that applies, and a limit that is set later counts earlier jobs anew, from their
Plans (costs.py).

**Claim.** If a limit (epsilon, delta) was in force before the first job that it covers was admitted,
then all jobs that it covers, chosen adaptively and overlapping as they may, are together
(epsilon, delta)-differentially private; those of a share, given what else its analyst has seen of the
data: other people's results may be in their specs. *Why*: under the account's lock a job is admitted
only if the sum of all costs admitted so far, at the limit's own terms, stays within its units; that is
the filter of price.py. A limit that was set later (`in_advance` is False) bounds the same sum, but its
threshold was chosen after outputs were seen, so it is the owner's caution and not a claim.

The ceiling is part of the account and never changes. A cap covers all jobs of an account, a share
those of one analyst; either is replaced by closing it and opening another. Their balances are kept
under the account's lock, and a CHECK of the table refuses one that is passed. `overdrawn` marks a
limit of an earlier version, which counted at another order: it is passed already and admits nothing,
until so much was given back that it is not.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import Connection, Row, and_, bindparam, insert, or_, select, update

from service.db import new_id, now_ms
from service.planning.price import AccountTerms, largest_fitting_epsilon
from service.tables import limits

Purpose = Literal["ceiling", "cap", "share"]
Price = Callable[[AccountTerms], int]
"""What a job costs, in units, at the terms of a limit."""


@dataclass(frozen=True)
class Limit:
    purpose: Purpose
    terms: AccountTerms
    epsilon: float
    units: int
    posted_units: int
    pending_units: int
    in_advance: bool  # of every job that it covers
    id: str | None = None  # None: the ceiling, whose balance is in the account's own row
    overdrawn: bool = False

    @property
    def remaining_units(self) -> int:
        return self.units - self.posted_units - self.pending_units

    def with_reserved(self, units: int) -> "Limit":
        return replace(self, pending_units=self.pending_units + units)

    def largest_epsilon(self, delta: float) -> float:
        """At which a job of this delta certainly fits what is left."""
        return largest_fitting_epsilon(self.remaining_units, delta, self.terms)


def open_limits(
    connection: Connection, account_id: str, people: Collection[str] | None = None
) -> tuple[Limit | None, dict[str, Limit]]:
    """The cap, if there is one, and the shares of these people (None: of all) that have one."""
    query, values = _OPEN, dict[str, Any](account=account_id)
    if people is not None:
        query, values = _OPEN_TO, {**values, "people": sorted(people)}
    found = {row.principal_id: limit_from(row) for row in connection.execute(query, values)}
    return found.pop(None, None), found


def applying(connection: Connection, account_id: str, principal_id: str) -> list[Limit]:
    """The cap, and the share of this analyst, where there are such."""
    cap, shares = open_limits(connection, account_id, [principal_id])
    return [limit for limit in (cap, *shares.values()) if limit is not None]


def set_limit(
    connection: Connection,
    account_id: str,
    principal_id: str | None,
    limit: Limit | None,
    at_seq: int,
) -> None:
    """Close the cap (no principal) or an analyst's share, and open `limit` in its place, from the
    account's entry `at_seq` on. The caller holds the account's lock."""
    same = (
        limits.c.principal_id.is_(None)
        if principal_id is None
        else limits.c.principal_id == principal_id
    )
    connection.execute(update(limits).where(_open(account_id), same).values(until_seq=at_seq))
    if limit is None:
        return
    connection.execute(
        insert(limits).values(
            id=new_id("lim"),
            account_id=account_id,
            principal_id=principal_id,
            terms=limit.terms.model_dump_json(),
            epsilon=limit.epsilon,
            units=limit.units,
            posted_units=limit.posted_units,
            pending_units=limit.pending_units,
            in_advance=limit.in_advance,
            since_seq=at_seq,
            created_ms=now_ms(),
        )
    )


def move_balances(
    connection: Connection, moved: Iterable[Limit], cost: Price, pending: int, posted: int
) -> None:
    """Add `pending` and `posted` times the job's cost to each cap and share (-1, 0 or 1)."""
    for limit in moved:
        units = cost(limit.terms)
        more = (pending + posted) * units
        exceeded = limits.c.pending_units + limits.c.posted_units + more > limits.c.units
        connection.execute(
            update(limits)
            .where(limits.c.id == limit.id)
            .values(
                pending_units=limits.c.pending_units + pending * units,
                posted_units=limits.c.posted_units + posted * units,
                overdrawn=and_(limits.c.overdrawn, exceeded),
            )
        )


def limit_from(row: Row[Any]) -> Limit:
    return Limit(
        purpose="cap" if row.principal_id is None else "share",
        terms=AccountTerms.model_validate_json(row.terms),
        epsilon=row.epsilon,
        units=row.units,
        posted_units=row.posted_units,
        pending_units=row.pending_units,
        in_advance=row.in_advance,
        id=row.id,
        overdrawn=row.overdrawn,
    )


def _open(account_id: Any) -> Any:
    return and_(limits.c.account_id == account_id, limits.c.until_seq.is_(None))


# every quote asks these several times, and to put a statement together takes as long as to run it
_OPEN = select(limits).where(_open(bindparam("account")))
_OPEN_TO = _OPEN.where(
    or_(
        limits.c.principal_id.is_(None),
        limits.c.principal_id.in_(bindparam("people", expanding=True)),
    )
)
