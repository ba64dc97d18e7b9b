"""Answers that are kept by Idempotency-Key, of every request that changes something."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.get_bind().exec_driver_sql("BEGIN IMMEDIATE")  # all of it or nothing, here too
    op.create_table(
        "answers",
        sa.Column("principal_id", sa.String(length=40), nullable=False),
        sa.Column("key", sa.String(length=255), nullable=False),
        sa.Column("request_digest", sa.String(length=64), nullable=False),
        sa.Column("response", sa.LargeBinary(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["principal_id"], ["principals.id"], name=op.f("fk_answers_principal_id")
        ),
        sa.PrimaryKeyConstraint("principal_id", "key", name=op.f("pk_answers")),
    )
    op.create_index(op.f("ix_answers_created_ms"), "answers", ["created_ms"], unique=False)
