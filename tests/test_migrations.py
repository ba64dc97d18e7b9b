"""The migrations make the tables that the code believes in."""

import sqlite3

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect

from service.db import migrate
from service.tables import metadata


def test_models_and_migrations_agree(db):
    with db.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_the_migrated_database_has_every_check(db):
    inspector = inspect(db.engine)
    for table in metadata.sorted_tables:
        declared = {c.name for c in table.constraints if str(c.name).startswith("ck_")}
        found = {c["name"] for c in inspector.get_check_constraints(table.name)}
        assert declared <= found, table.name


def test_migrating_twice_changes_nothing(tmp_path):
    url = f"sqlite:///{tmp_path}/twice.db"
    migrate(url)
    with sqlite3.connect(tmp_path / "twice.db") as connection:
        before = connection.execute("SELECT sql FROM sqlite_master").fetchall()
    migrate(url)
    after = connection.execute("SELECT sql FROM sqlite_master").fetchall()
    connection.close()
    assert after == before
