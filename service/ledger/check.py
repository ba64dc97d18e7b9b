"""Derive every balance again from the entries and their Plans, and say where that differs."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from service.ledger.accounts import Account, account_from
from service.ledger.costs import release_of
from service.ledger.limits import limit_from
from service.planning.price import AccountTerms, NotPureError, measures, price_units
from service.planning.releases import Release
from service.tables import accounts, entries, jobs, limits

Entries = Sequence[Row[Any]]
Cost = Callable[[Row[Any], AccountTerms], int]


def check_ledger(connection: Connection) -> list[str]:
    """Findings, one line each; an empty list means that every cost is that of its job's Plan, every
    balance follows from the entries, and no account or limit is exceeded."""
    findings = []
    for row in connection.execute(select(accounts).order_by(accounts.c.id)).all():
        account = account_from(row)
        rows = connection.execute(
            select(entries).where(entries.c.account_id == row.id).order_by(entries.c.seq)
        ).all()
        plans = connection.execute(
            select(jobs.c.id, jobs.c.plan).where(jobs.c.account_id == row.id)
        )
        releases = {job.id: release_of(job.plan) for job in plans}
        found = connection.execute(select(limits).where(limits.c.account_id == row.id)).all()
        texts = _account_findings(account, rows)
        texts += _cost_findings(account, rows, releases)
        for limit in found:
            texts += _limit_findings(limit, rows, _cost(releases))
        findings += [f"{row.id}: {text}" for text in texts]
    return findings


def _account_findings(account: Account, rows: Entries) -> list[str]:
    reserved = {e.seq: e for e in rows if e.kind == "reserve"}
    resolutions = [e for e in rows if e.kind in ("post", "void")]
    resolved = {e.resolves_seq for e in resolutions}
    posted = sum(e.units for e in resolutions if e.kind == "post")
    pending = sum(e.units for seq, e in reserved.items() if seq not in resolved)
    frozen = [e.kind for e in rows if e.kind in ("freeze", "unfreeze")]
    checks = [
        ([e.seq for e in rows] == list(range(1, account.entries + 1)), "entries are missing"),
        (len(resolved) == len(resolutions), "a reservation was resolved twice"),
        (
            all(
                e.resolves_seq in reserved and reserved[e.resolves_seq].units == e.units
                for e in resolutions
            ),
            "a resolution does not match its reservation",
        ),
        (posted == account.posted_units, f"posted {account.posted_units}, entries say {posted}"),
        (
            pending == account.pending_units,
            f"pending {account.pending_units}, entries say {pending}",
        ),
        (
            posted + pending <= account.ceiling_units,
            f"overspent: {posted + pending} of {account.ceiling_units}",
        ),
        (
            account.frozen == (frozen[-1:] == ["freeze"])
            and frozen
            == ["freeze", "unfreeze"] * (len(frozen) // 2) + ["freeze"] * (len(frozen) % 2),
            "whether it is frozen does not follow from the entries",
        ),
    ]
    return [text for holds, text in checks if not holds]


def _cost_findings(account: Account, rows: Entries, releases: Mapping[str, Release]) -> list[str]:
    """That costs are those of the Plans, and that `spent` sums them up."""
    findings = []
    reserved = {e.seq: e for e in rows if e.kind == "reserve"}
    for e in reserved.values():
        stored: dict[str, int] = json.loads(e.costs)
        if stored.get(account.terms.key) != e.units:
            findings.append(f"entry {e.seq} does not have its units among its costs")
        release = releases.get(e.job_id)
        if release is None:
            continue
        wrong = [key for key, units in stored.items() if _price(release, key, account) != units]
        if wrong:
            findings.append(f"entry {e.seq} does not cost what its Plan does at {', '.join(wrong)}")
    spent: Counter[str] = Counter()
    cost = _cost(releases)
    for e in rows:
        if e.kind == "post" and e.resolves_seq in reserved:
            job = reserved[e.resolves_seq]
            spent.update({one.key: cost(job, one) for one in measures(account.terms)})
    if dict(spent) != account.spent:
        findings.append("what was spent does not follow from the entries")
    return findings


def _limit_findings(row: Row[Any], rows: Entries, cost: Cost) -> list[str]:
    """A limit's balance at its own terms, now or when it was closed."""
    limit = limit_from(row)
    last = row.until_seq if row.until_seq is not None else len(rows)
    seen = [e for e in rows if e.seq <= last]
    ended = {e.resolves_seq: e.kind for e in seen if e.kind in ("post", "void")}
    covered = [
        e for e in seen if e.kind == "reserve" and row.principal_id in (None, e.principal_id)
    ]
    posted = sum(cost(e, limit.terms) for e in covered if ended.get(e.seq) == "post")
    pending = sum(cost(e, limit.terms) for e in covered if e.seq not in ended)
    name = limit.purpose if row.principal_id is None else f"share of {row.principal_id}"
    checks = [
        (
            (posted, pending) == (limit.posted_units, limit.pending_units),
            f"the {name} of epsilon {limit.epsilon} has {limit.posted_units} posted and "
            f"{limit.pending_units} pending, entries say {posted} and {pending}",
        ),
        (
            posted + pending <= limit.units or limit.overdrawn,
            f"the {name} of epsilon {limit.epsilon} is exceeded: {posted + pending} of "
            f"{limit.units}",
        ),
    ]
    return [text for holds, text in checks if not holds]


def _cost(releases: Mapping[str, Release]) -> Cost:
    def cost(entry: Row[Any], terms: AccountTerms) -> int:
        stored: dict[str, int] = json.loads(entry.costs)
        known = stored.get(terms.key)
        return price_units(releases[entry.job_id], terms) if known is None else known

    return cost


def _price(release: Release, key: str, account: Account) -> int | None:
    kind, _, order = key.partition(":")
    terms = AccountTerms.model_validate(
        {"kind": kind, "delta": account.terms.delta, "order": int(order) if order else None}
    )
    try:
        return price_units(release, terms)
    except NotPureError:
        return None
