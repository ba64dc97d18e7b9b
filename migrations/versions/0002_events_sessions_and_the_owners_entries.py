"""Event feed, sessions, processes; top-ups and freezes as entries; why `auto` chose."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

KINDS = "kind IN ('open', 'reserve', 'post', 'void', 'top_up', 'freeze', 'unfreeze')"


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.get_bind().exec_driver_sql("BEGIN IMMEDIATE")  # all of it or nothing, here too
    op.add_column(
        "accounts", sa.Column("frozen", sa.Boolean(), server_default=sa.false(), nullable=False)
    )
    op.add_column("jobs", sa.Column("choice", sa.Text(), nullable=True))
    if op.get_bind().dialect.name == "sqlite":
        _write_entries_again()
    else:
        op.drop_constraint(op.f("ck_entries_kind_known"), "entries", type_="check")
        op.create_check_constraint(op.f("ck_entries_kind_known"), "entries", KINDS)
    op.create_table(
        "sessions",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("key_id", sa.String(length=40), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.Column("ends_ms", sa.BigInteger(), nullable=False),
        sa.Column("revoked_ms", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(["key_id"], ["api_keys.id"], name=op.f("fk_sessions_key_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("hash", name=op.f("uq_sessions_hash")),
    )
    op.create_index(op.f("ix_sessions_key_id"), "sessions", ["key_id"], unique=False)
    op.create_table(
        "changes",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=True),
        sa.Column("job_id", sa.String(length=40), nullable=True),
        sa.Column("account_id", sa.String(length=40), nullable=True),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("type", sa.String(length=40), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "(job_id IS NULL) <> (account_id IS NULL)", name=op.f("ck_changes_of_one_thing")
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_changes_account_id")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_changes_job_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_changes")),
        sa.UniqueConstraint("position", name=op.f("uq_changes_position")),
    )
    op.create_index(op.f("ix_changes_created_ms"), "changes", ["created_ms"], unique=False)
    unplaced = sa.text("position IS NULL")
    op.create_index(
        "ix_changes_unplaced",
        "changes",
        ["id"],
        unique=False,
        sqlite_where=unplaced,
        postgresql_where=unplaced,
    )
    op.create_table(
        "processes",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("host", sa.String(length=200), nullable=False),
        sa.Column("pid", sa.BigInteger(), nullable=False),
        sa.Column("started_ms", sa.BigInteger(), nullable=False),
        sa.Column("seen_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_processes")),
    )


def _write_entries_again() -> None:
    """SQLite cannot change a CHECK: the same table under the new one, its rows, its triggers."""
    connection = op.get_bind()
    made = connection.exec_driver_sql(
        "SELECT type, sql FROM sqlite_master WHERE tbl_name = 'entries' AND sql IS NOT NULL"
    ).all()
    table = next(sql for kind, sql in made if kind == "table")
    old = "kind IN ('open', 'reserve', 'post', 'void')"
    if table.count(old) != 1:
        raise RuntimeError("the table entries is not the one that migration 0001 made")
    connection.exec_driver_sql(
        table.replace(old, KINDS).replace("CREATE TABLE entries", "CREATE TABLE entries_new", 1)
    )
    connection.exec_driver_sql("INSERT INTO entries_new SELECT * FROM entries")
    connection.exec_driver_sql("DROP TABLE entries")
    connection.exec_driver_sql("ALTER TABLE entries_new RENAME TO entries")
    for kind, sql in made:
        if kind != "table":
            connection.exec_driver_sql(sql)
