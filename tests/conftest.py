"""Fixtures: a fresh database of either kind, and one running service per engine."""

import pytest

from service.db import Database
from tests.harness import DATABASES, ENGINES, fresh_database, running


@pytest.fixture(params=DATABASES)
def db(request, tmp_path):
    """A fresh, migrated database, once on SQLite and once on PostgreSQL."""
    with fresh_database(request.param, tmp_path) as url:
        database = Database(url, pool_size=4)
        yield database
        database.dispose()


@pytest.fixture(scope="session", params=ENGINES)
def service(request, tmp_path_factory):
    """A running service, once embedded and once on PostgreSQL, Redis and Celery."""
    with running(request.param, tmp_path_factory.mktemp(request.param)) as started:
        yield started
