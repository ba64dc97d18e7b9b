"""Derive every balance again from the entries alone, and say where the stored balances differ."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from service.tables import accounts, entries, shares


def check_ledger(connection: Connection) -> list[str]:
    """Findings, one line each; an empty list means that every balance follows from its entries and
    no account exceeds its cap."""
    findings = []
    for account in connection.execute(select(accounts).order_by(accounts.c.id)).all():
        rows = connection.execute(
            select(entries).where(entries.c.account_id == account.id).order_by(entries.c.seq)
        ).all()
        caps = connection.execute(select(shares).where(shares.c.account_id == account.id)).all()
        findings += [f"{account.id}: {text}" for text in _findings(account, rows, caps)]
    return findings


def _findings(account: Row[Any], rows: Sequence[Row[Any]], caps: Sequence[Row[Any]]) -> list[str]:
    reserved = {e.seq: e for e in rows if e.kind == "reserve"}
    resolutions = [e for e in rows if e.kind in ("post", "void")]
    resolved = {e.resolves_seq for e in resolutions}
    posted = sum(e.units for e in resolutions if e.kind == "post")
    pending = sum(e.units for seq, e in reserved.items() if seq not in resolved)
    committed: Counter[str] = Counter()
    for e in reserved.values():
        committed[e.principal_id] += e.units
    for e in resolutions:
        if e.kind == "void":
            committed[e.principal_id] -= e.units

    cap = sum(e.units for e in rows if e.kind in ("open", "top_up"))
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
        (posted + pending <= account.cap_units, f"overspent: {posted + pending} of the cap"),
        (cap == account.cap_units, f"the cap is {account.cap_units}, entries say {cap}"),
        (account.cap_units <= account.ceiling_units, "the cap exceeds the ceiling"),
        (
            account.frozen == (frozen[-1:] == ["freeze"])
            and frozen
            == ["freeze", "unfreeze"] * (len(frozen) // 2) + ["freeze"] * (len(frozen) % 2),
            "whether it is frozen does not follow from the entries",
        ),
        (
            all(share.committed_units == committed[share.principal_id] for share in caps)
            and {p for p, units in committed.items() if units}
            <= {share.principal_id for share in caps},
            "an analyst's share does not follow from the entries",
        ),
        (
            all(s.cap_units is None or s.committed_units <= s.cap_units for s in caps),
            "an analyst's share exceeds its cap",
        ),
    ]
    return [text for holds, text in checks if not holds]
