"""Every table, and the triggers that make the ledger and the audit chain append-only."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


APPEND_ONLY = ("entries", "audit_records")


def upgrade() -> None:
    op.create_table(
        "identity",
        sa.Column("name", sa.String(length=40), nullable=False),
        sa.Column("value", sa.String(length=64), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_identity")),
    )
    op.create_table(
        "principals",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "role IN ('admin', 'owner', 'analyst', 'auditor')",
            name=op.f("ck_principals_role_known"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_principals")),
        sa.UniqueConstraint("name", name=op.f("uq_principals_name")),
    )
    op.create_table(
        "api_keys",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("principal_id", sa.String(length=40), nullable=False),
        sa.Column("prefix", sa.String(length=16), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=True),
        sa.Column("revoked_ms", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["principal_id"], ["principals.id"], name=op.f("fk_api_keys_principal_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_keys")),
        sa.UniqueConstraint("prefix", name=op.f("uq_api_keys_prefix")),
    )
    op.create_index(op.f("ix_api_keys_principal_id"), "api_keys", ["principal_id"], unique=False)
    op.create_table(
        "lineages",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("owner_id", sa.String(length=40), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["owner_id"], ["principals.id"], name=op.f("fk_lineages_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_lineages")),
    )
    op.create_table(
        "accounts",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("lineage_id", sa.String(length=40), nullable=False),
        sa.Column("terms", sa.Text(), nullable=False),
        sa.Column("epsilon", sa.Double(), nullable=False),
        sa.Column("cap_epsilon", sa.Double(), nullable=False),
        sa.Column("ceiling_units", sa.BigInteger(), nullable=False),
        sa.Column("cap_units", sa.BigInteger(), nullable=False),
        sa.Column("posted_units", sa.BigInteger(), nullable=False),
        sa.Column("pending_units", sa.BigInteger(), nullable=False),
        sa.Column("entries", sa.BigInteger(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "cap_units > 0 AND cap_units <= ceiling_units",
            name=op.f("ck_accounts_cap_within_ceiling"),
        ),
        sa.CheckConstraint(
            "posted_units + pending_units <= cap_units", name=op.f("ck_accounts_within_cap")
        ),
        sa.CheckConstraint(
            "posted_units >= 0 AND pending_units >= 0", name=op.f("ck_accounts_not_negative")
        ),
        sa.ForeignKeyConstraint(
            ["lineage_id"], ["lineages.id"], name=op.f("fk_accounts_lineage_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
        sa.UniqueConstraint("lineage_id", name=op.f("uq_accounts_lineage_id")),
    )
    op.create_table(
        "datasets",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("owner_id", sa.String(length=40), nullable=False),
        sa.Column("lineage_id", sa.String(length=40), nullable=True),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("schema", sa.Text(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=True),
        sa.Column("folder", sa.String(length=80), nullable=True),
        sa.Column("content_mac", sa.String(length=64), nullable=True),
        sa.Column("chain_length", sa.BigInteger(), nullable=False),
        sa.Column("chain_head", sa.String(length=64), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "state IN ('empty', 'ready', 'deleted')", name=op.f("ck_datasets_state_known")
        ),
        sa.ForeignKeyConstraint(
            ["lineage_id"], ["lineages.id"], name=op.f("fk_datasets_lineage_id")
        ),
        sa.ForeignKeyConstraint(["owner_id"], ["principals.id"], name=op.f("fk_datasets_owner_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_datasets")),
    )
    op.create_index(op.f("ix_datasets_content_mac"), "datasets", ["content_mac"], unique=False)
    op.create_index(op.f("ix_datasets_lineage_id"), "datasets", ["lineage_id"], unique=False)
    op.create_index(op.f("ix_datasets_owner_id"), "datasets", ["owner_id"], unique=False)
    op.create_table(
        "entries",
        sa.Column("account_id", sa.String(length=40), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("units", sa.BigInteger(), nullable=False),
        sa.Column("resolves_seq", sa.BigInteger(), nullable=True),
        sa.Column("principal_id", sa.String(length=40), nullable=True),
        sa.Column("dataset_id", sa.String(length=40), nullable=True),
        sa.Column("job_id", sa.String(length=40), nullable=True),
        sa.Column("reason", sa.String(length=200), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "(kind IN ('post', 'void')) = (resolves_seq IS NOT NULL)",
            name=op.f("ck_entries_resolution"),
        ),
        sa.CheckConstraint(
            "kind IN ('open', 'reserve', 'post', 'void')", name=op.f("ck_entries_kind_known")
        ),
        sa.CheckConstraint("units >= 0", name=op.f("ck_entries_not_negative")),
        sa.ForeignKeyConstraint(
            ["account_id", "resolves_seq"], ["entries.account_id", "entries.seq"], name="resolves"
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_entries_account_id")
        ),
        sa.ForeignKeyConstraint(
            ["dataset_id"], ["datasets.id"], name=op.f("fk_entries_dataset_id")
        ),
        sa.ForeignKeyConstraint(
            ["principal_id"], ["principals.id"], name=op.f("fk_entries_principal_id")
        ),
        sa.PrimaryKeyConstraint("account_id", "seq", name=op.f("pk_entries")),
        sa.UniqueConstraint(
            "account_id", "resolves_seq", name=op.f("uq_entries_account_id_resolves_seq")
        ),
    )
    op.create_index(op.f("ix_entries_job_id"), "entries", ["job_id"], unique=False)
    op.create_table(
        "grants",
        sa.Column("dataset_id", sa.String(length=40), nullable=False),
        sa.Column("principal_id", sa.String(length=40), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_grants_dataset_id")),
        sa.ForeignKeyConstraint(
            ["principal_id"], ["principals.id"], name=op.f("fk_grants_principal_id")
        ),
        sa.PrimaryKeyConstraint("dataset_id", "principal_id", name=op.f("pk_grants")),
    )
    op.create_table(
        "jobs",
        sa.Column("id", sa.String(length=40), nullable=False),
        sa.Column("dataset_id", sa.String(length=40), nullable=False),
        sa.Column("principal_id", sa.String(length=40), nullable=False),
        sa.Column("account_id", sa.String(length=40), nullable=False),
        sa.Column("entry_seq", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("plan_digest", sa.String(length=64), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("wrapped_key", sa.LargeBinary(), nullable=True),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("lease_ms", sa.BigInteger(), nullable=True),
        sa.Column("opened_ms", sa.BigInteger(), nullable=True),
        sa.Column("hint_ms", sa.BigInteger(), nullable=True),
        sa.Column("steps_done", sa.BigInteger(), nullable=False),
        sa.Column("steps_total", sa.BigInteger(), nullable=False),
        sa.Column("error", sa.String(length=40), nullable=True),
        sa.Column("events", sa.Integer(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("started_ms", sa.BigInteger(), nullable=True),
        sa.Column("finished_ms", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "state IN ('queued', 'running', 'cancelling', 'succeeded', 'failed', 'cancelled')",
            name=op.f("ck_jobs_state_known"),
        ),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_jobs_account_id")),
        sa.ForeignKeyConstraint(["dataset_id"], ["datasets.id"], name=op.f("fk_jobs_dataset_id")),
        sa.ForeignKeyConstraint(
            ["principal_id"], ["principals.id"], name=op.f("fk_jobs_principal_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
    )
    op.create_index("ix_jobs_dataset", "jobs", ["dataset_id", "created_ms", "id"], unique=False)
    op.create_index("ix_jobs_due", "jobs", ["state", "hint_ms"], unique=False)
    op.create_index("ix_jobs_principal", "jobs", ["principal_id", "created_ms", "id"], unique=False)
    op.create_table(
        "shares",
        sa.Column("account_id", sa.String(length=40), nullable=False),
        sa.Column("principal_id", sa.String(length=40), nullable=False),
        sa.Column("cap_units", sa.BigInteger(), nullable=True),
        sa.Column("committed_units", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "cap_units IS NULL OR committed_units <= cap_units", name=op.f("ck_shares_within_cap")
        ),
        sa.CheckConstraint("committed_units >= 0", name=op.f("ck_shares_not_negative")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_shares_account_id")),
        sa.ForeignKeyConstraint(
            ["principal_id"], ["principals.id"], name=op.f("fk_shares_principal_id")
        ),
        sa.PrimaryKeyConstraint("account_id", "principal_id", name=op.f("pk_shares")),
    )
    op.create_table(
        "audit_records",
        sa.Column("dataset_id", sa.String(length=40), nullable=False),
        sa.Column("seq", sa.BigInteger(), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("hash", sa.String(length=64), nullable=False),
        sa.Column("signature", sa.String(length=128), nullable=False),
        sa.ForeignKeyConstraint(
            ["dataset_id"], ["datasets.id"], name=op.f("fk_audit_records_dataset_id")
        ),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_audit_records_job_id")),
        sa.PrimaryKeyConstraint("dataset_id", "seq", name=op.f("pk_audit_records")),
        sa.UniqueConstraint("job_id", name=op.f("uq_audit_records_job_id")),
    )
    op.create_table(
        "idempotency",
        sa.Column("principal_id", sa.String(length=40), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("response", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_idempotency_job_id")),
        sa.ForeignKeyConstraint(
            ["principal_id"], ["principals.id"], name=op.f("fk_idempotency_principal_id")
        ),
        sa.PrimaryKeyConstraint("principal_id", "key", name=op.f("pk_idempotency")),
    )
    op.create_index(op.f("ix_idempotency_created_ms"), "idempotency", ["created_ms"], unique=False)
    op.create_table(
        "job_events",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("type", sa.String(length=40), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_job_events_job_id")),
        sa.PrimaryKeyConstraint("job_id", "seq", name=op.f("pk_job_events")),
    )
    op.create_table(
        "models",
        sa.Column("job_id", sa.String(length=40), nullable=False),
        sa.Column("card", sa.Text(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f("fk_models_job_id")),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_models")),
    )
    for table in APPEND_ONLY:
        _refuse_changes(table)


def _refuse_changes(table: str) -> None:
    message = f"{table} is append-only"
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("UPDATE", "DELETE"):
            op.execute(
                f"CREATE TRIGGER {table}_no_{verb.lower()} BEFORE {verb} ON {table} "
                f"BEGIN SELECT RAISE(ABORT, '{message}'); END"
            )
        return
    op.execute(
        f"CREATE FUNCTION {table}_refuse() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION '{message}'; END $$"
    )
    op.execute(
        f"CREATE TRIGGER {table}_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        f"FOR EACH STATEMENT EXECUTE FUNCTION {table}_refuse()"
    )
