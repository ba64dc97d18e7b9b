"""Keys know the key that made them; an analyst sees others' entries only if the owner shares them."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.get_bind().exec_driver_sql("BEGIN IMMEDIATE")  # all of it or nothing, here too
    # in SQL: SQLite takes a reference with a new column, and not after it
    op.get_bind().exec_driver_sql(
        "ALTER TABLE api_keys ADD COLUMN minted_by VARCHAR(40) "
        "CONSTRAINT fk_api_keys_minted_by REFERENCES api_keys (id)"
    )
    op.create_index(op.f("ix_api_keys_minted_by"), "api_keys", ["minted_by"], unique=False)
    for table, column in (("api_keys", "outlives"), ("datasets", "shared_ledger")):
        op.add_column(
            table, sa.Column(column, sa.Boolean(), server_default=sa.false(), nullable=False)
        )
