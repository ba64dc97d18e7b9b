"""Caps and shares become limits with terms of their own; entries store their costs; groups of jobs.

Earlier versions compared a cap or a share, whose units are those of its own Renyi order, with costs at
the ceiling's order. Here every reservation is priced anew from its job's Plan at the terms of each
limit. A limit that turns out to be exceeded is marked `overdrawn`: it admits nothing more.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op
from pydantic import TypeAdapter

from service.planning.conversion import epsilon_of_units
from service.planning.price import AccountTerms, measures, price_units
from service.planning.releases import Release

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_RELEASE = TypeAdapter(Release)


def upgrade() -> None:
    connection = op.get_bind()
    sqlite = connection.dialect.name == "sqlite"
    if sqlite:
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # all of it or nothing, here too
    op.add_column("entries", sa.Column("epsilon", sa.Double(), nullable=True))
    op.add_column("entries", sa.Column("costs", sa.Text(), nullable=True))
    op.add_column("jobs", sa.Column("group_id", sa.String(length=40), nullable=True))
    op.create_index(op.f("ix_jobs_group_id"), "jobs", ["group_id"], unique=False)
    _make_limits()
    spent = _price_again(connection, sqlite)
    _rewrite_accounts(connection, sqlite, spent)
    op.drop_table("shares")


def _make_limits() -> None:
    op.create_table(
        "limits",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("account_id", sa.String(length=40), nullable=False),
        sa.Column("principal_id", sa.String(length=40), nullable=True),
        sa.Column("terms", sa.Text(), nullable=False),
        sa.Column("epsilon", sa.Double(), nullable=False),
        sa.Column("units", sa.BigInteger(), nullable=False),
        sa.Column("posted_units", sa.BigInteger(), nullable=False),
        sa.Column("pending_units", sa.BigInteger(), nullable=False),
        sa.Column("in_advance", sa.Boolean(), nullable=False),
        sa.Column("overdrawn", sa.Boolean(), server_default=sa.false(), nullable=False),
        sa.Column("since_seq", sa.BigInteger(), nullable=False),
        sa.Column("until_seq", sa.BigInteger(), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "posted_units >= 0 AND pending_units >= 0", name=op.f("ck_limits_not_negative")
        ),
        sa.CheckConstraint(
            "overdrawn OR posted_units + pending_units <= units",
            name=op.f("ck_limits_within_units"),
        ),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_limits_account_id")),
        sa.ForeignKeyConstraint(
            ["principal_id"], ["principals.id"], name=op.f("fk_limits_principal_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_limits")),
    )
    op.create_index(op.f("ix_limits_account_id"), "limits", ["account_id"], unique=False)
    for name, columns, where in (
        ("uq_limits_cap", ["account_id"], "until_seq IS NULL AND principal_id IS NULL"),
        ("uq_limits_share", ["account_id", "principal_id"], "until_seq IS NULL"),
    ):
        chosen = sa.text(where)
        op.create_index(
            name, "limits", columns, unique=True, sqlite_where=chosen, postgresql_where=chosen
        )


def _price_again(connection: sa.Connection, sqlite: bool) -> dict[str, str]:
    """Fill `epsilon` and `costs` of the entries, and `limits`; returns what each account has spent."""
    triggers = _without_triggers(connection, sqlite)
    spent = {}
    for account in connection.execute(sa.text("SELECT * FROM accounts")).all():
        terms = AccountTerms.model_validate_json(account.terms)
        rows = connection.execute(
            sa.text("SELECT * FROM entries WHERE account_id = :id ORDER BY seq"), {"id": account.id}
        ).all()
        jobs = connection.execute(
            sa.text("SELECT id, plan FROM jobs WHERE account_id = :id"), {"id": account.id}
        )
        plans = {job.id: json.loads(job.plan) for job in jobs}
        found = [*_old_limits(connection, account, terms)]
        priced_at = {one.key: one for one in (terms, *measures(terms), *(one[3] for one in found))}
        costs = {}
        for row in rows:
            if row.kind == "reserve":
                release = _RELEASE.validate_python(plans[row.job_id]["release"])
                costs[row.seq] = {key: price_units(release, at) for key, at in priced_at.items()}
                costs[row.seq][terms.key] = row.units
        cap = 0
        for row in rows:
            asked = None
            if row.job_id is not None:
                asked = plans[row.job_id]["guarantee"]["epsilon"]
            elif row.kind in ("open", "top_up"):
                cap += row.units
                asked = epsilon_of_units(cap, terms.delta, terms.kind)
            connection.execute(
                sa.text(
                    "UPDATE entries SET epsilon = :epsilon, costs = :costs "
                    "WHERE account_id = :id AND seq = :seq"
                ),
                {
                    "epsilon": asked,
                    "costs": json.dumps(costs[row.seq], sort_keys=True)
                    if row.seq in costs
                    else None,
                    "id": account.id,
                    "seq": row.seq,
                },
            )
        ended = {row.resolves_seq: row.kind for row in rows if row.resolves_seq is not None}
        sums: Counter[str] = Counter()
        for seq, at in costs.items():
            if ended.get(seq) == "post":
                sums.update({one.key: at[one.key] for one in measures(terms)})
        spent[account.id] = json.dumps(dict(sorted(sums.items())))
        for number, (principal, epsilon, units, at) in enumerate(found):
            covered = [
                row
                for row in rows
                if row.kind == "reserve" and principal in (None, row.principal_id)
            ]
            posted, pending = (
                sum(costs[row.seq][at.key] for row in covered if ended.get(row.seq) == how)
                for how in ("post", None)
            )
            connection.execute(
                sa.text(
                    "INSERT INTO limits (id, account_id, principal_id, terms, epsilon, units, "
                    "posted_units, pending_units, in_advance, overdrawn, since_seq, created_ms) "
                    "VALUES (:id, :account, :principal, :terms, :epsilon, :units, :posted, "
                    ":pending, :advance, :overdrawn, :since, :created)"
                ),
                {
                    "id": f"lim_{account.id.removeprefix('acc_')}_{number}",
                    "account": account.id,
                    "principal": principal,
                    "terms": at.model_dump_json(),
                    "epsilon": epsilon,
                    "units": units,
                    "posted": posted,
                    "pending": pending,
                    "advance": False,  # it was not enforced at its own order
                    "overdrawn": posted + pending > units,
                    "since": account.entries,
                    "created": account.created_ms,
                },
            )
    for statement in triggers:
        connection.exec_driver_sql(statement)
    return spent


def _old_limits(
    connection: sa.Connection, account: sa.Row[Any], terms: AccountTerms
) -> Iterator[tuple[str | None, float, int, AccountTerms]]:
    """(principal, epsilon, units, terms) of the cap, if below the ceiling, and of each share."""

    def of(epsilon: float) -> AccountTerms:
        return AccountTerms.for_ceiling(epsilon, terms.delta, terms.kind)

    if account.cap_units < account.ceiling_units:
        yield None, account.cap_epsilon, account.cap_units, of(account.cap_epsilon)
    shares = connection.execute(
        sa.text("SELECT * FROM shares WHERE account_id = :id AND cap_units IS NOT NULL"),
        {"id": account.id},
    ).all()
    for share in shares:
        epsilon = max(1e-6, epsilon_of_units(share.cap_units, terms.delta, terms.kind))
        yield share.principal_id, epsilon, share.cap_units, of(epsilon)


def _without_triggers(connection: sa.Connection, sqlite: bool) -> list[str]:
    """Let entries be filled in; returns the statements that make them append-only again."""
    if not sqlite:
        connection.exec_driver_sql("ALTER TABLE entries DISABLE TRIGGER entries_append_only")
        return ["ALTER TABLE entries ENABLE TRIGGER entries_append_only"]
    triggers = connection.exec_driver_sql(
        "SELECT name, sql FROM sqlite_master WHERE tbl_name = 'entries' AND type = 'trigger'"
    ).all()
    for name, _ in triggers:
        connection.exec_driver_sql(f"DROP TRIGGER {name}")
    return [sql for _, sql in triggers]


def _rewrite_accounts(connection: sa.Connection, sqlite: bool, spent: dict[str, str]) -> None:
    """Without the cap, with `spent`, and with the CHECKs of the ceiling."""
    op.add_column("accounts", sa.Column("spent", sa.Text(), server_default="{}", nullable=False))
    for account_id, sums in spent.items():
        connection.execute(
            sa.text("UPDATE accounts SET spent = :sums WHERE id = :id"),
            {"sums": sums, "id": account_id},
        )
    if sqlite:
        _rewrite_accounts_on_sqlite(connection)
        return
    op.alter_column("accounts", "spent", server_default=None)
    for name in ("within_cap", "cap_within_ceiling"):
        op.drop_constraint(op.f(f"ck_accounts_{name}"), "accounts", type_="check")
    for column in ("cap_epsilon", "cap_units"):
        op.drop_column("accounts", column)
    op.create_check_constraint(
        op.f("ck_accounts_within_ceiling"),
        "accounts",
        "posted_units + pending_units <= ceiling_units",
    )
    op.create_check_constraint(op.f("ck_accounts_positive"), "accounts", "ceiling_units > 0")


def _rewrite_accounts_on_sqlite(connection: sa.Connection) -> None:
    connection.exec_driver_sql(
        """CREATE TABLE accounts_new (
            id VARCHAR(40) NOT NULL,
            lineage_id VARCHAR(40) NOT NULL,
            terms TEXT NOT NULL,
            epsilon DOUBLE NOT NULL,
            ceiling_units BIGINT NOT NULL,
            posted_units BIGINT NOT NULL,
            pending_units BIGINT NOT NULL,
            spent TEXT NOT NULL,
            entries BIGINT NOT NULL,
            frozen BOOLEAN DEFAULT 0 NOT NULL,
            created_ms BIGINT NOT NULL,
            CONSTRAINT pk_accounts PRIMARY KEY (id),
            CONSTRAINT uq_accounts_lineage_id UNIQUE (lineage_id),
            CONSTRAINT fk_accounts_lineage_id FOREIGN KEY(lineage_id) REFERENCES lineages (id),
            CONSTRAINT ck_accounts_not_negative CHECK (posted_units >= 0 AND pending_units >= 0),
            CONSTRAINT ck_accounts_within_ceiling
                CHECK (posted_units + pending_units <= ceiling_units),
            CONSTRAINT ck_accounts_positive CHECK (ceiling_units > 0)
        )"""
    )
    columns = (
        "id, lineage_id, terms, epsilon, ceiling_units, posted_units, pending_units, spent, "
        "entries, frozen, created_ms"
    )
    connection.exec_driver_sql(
        f"INSERT INTO accounts_new ({columns}) SELECT {columns} FROM accounts"  # noqa: S608 - names
    )
    connection.exec_driver_sql("DROP TABLE accounts")
    connection.exec_driver_sql("ALTER TABLE accounts_new RENAME TO accounts")
