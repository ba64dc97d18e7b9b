"""Alembic's entry point; the URL comes from the caller (`epsilond migrate`)."""

from alembic import context
from sqlalchemy import create_engine, pool

from service.tables import metadata

engine = create_engine(context.config.attributes["url"], poolclass=pool.NullPool)
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=metadata)
    with context.begin_transaction():
        context.run_migrations()
