"""Nobody can spend the same remainder twice, however many processes try at once."""

import subprocess
import sys
import time

import pytest
from sqlalchemy import MetaData, create_engine, make_url, select, update
from sqlalchemy.exc import IntegrityError

from service.api.auth import create_principal
from service.db import Database, new_id, now_ms
from service.ledger.accounts import open_account
from service.ledger.check import check_ledger
from service.tables import accounts, entries, lineages, metadata
from tests.harness import DATABASES, fresh_database

FITS, ATTEMPTS, PROCESSES = 300, 400, 4


def open_ledger(db):
    """An account whose budget is exactly FITS times one price."""
    with db.write() as connection:
        owner = create_principal(connection, "owner", "owner")
        lineage = new_id("lin")
        connection.execute(
            lineages.insert().values(id=lineage, owner_id=owner, created_ms=now_ms())
        )
        account = open_account(
            connection, lineage_id=lineage, principal_id=owner, epsilon=1.0, delta=1e-6
        )
    return owner, account, account.ceiling_units // FITS


def race(url, account, units, owner, mode):
    start = time.time() + 2.0
    command = [sys.executable, "-m", "tests.ledger.racer", url, account.id, str(units)]
    racers = [
        subprocess.Popen(
            [*command, str(ATTEMPTS // PROCESSES), mode, owner, str(start)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(PROCESSES)
    ]
    return sum(int(racer.communicate()[0]) for racer in racers)


def test_of_400_racing_reservations_exactly_the_300_that_fit_are_admitted(db):
    owner, account, units = open_ledger(db)
    assert race(db.url, account, units, owner, "locked") == FITS
    with db.read() as connection:
        row = connection.execute(select(accounts)).one()
        reserved = connection.execute(select(entries).where(entries.c.kind == "reserve")).all()
        assert check_ledger(connection) == []
    assert len(reserved) == FITS and row.pending_units == FITS * units <= row.ceiling_units


@pytest.mark.parametrize("kind", DATABASES)
def test_the_same_race_catches_a_ledger_that_does_not_lock(kind, tmp_path):
    """Proof that the test above can fail: the mutant, with the CHECK removed, overspends."""
    with fresh_database(kind, tmp_path) as url:
        without_check(url)
        db = Database(url, pool_size=2)
        owner, account, units = open_ledger(db)
        admitted = race(url, account, units, owner, "unlocked")
        with db.read() as connection:
            findings = check_ledger(connection)
        db.dispose()
    assert admitted > FITS
    assert any("overspent" in finding for finding in findings)


def test_the_database_itself_refuses_an_overspent_account(db):
    _, account, _ = open_ledger(db)
    overspend = update(accounts).values(pending_units=accounts.c.ceiling_units + 1)
    with pytest.raises(IntegrityError), db.write() as connection:
        connection.execute(overspend.where(accounts.c.id == account.id))


def without_check(url):
    """The same tables, but for the constraint that keeps an account within its ceiling."""
    if make_url(url).drivername.startswith("postgresql"):
        engine = create_engine(url)
        with engine.begin() as connection:
            connection.exec_driver_sql(
                "ALTER TABLE accounts DROP CONSTRAINT ck_accounts_within_ceiling"
            )
        engine.dispose()
        return
    loose = MetaData()
    for table in metadata.sorted_tables:
        copy = table.to_metadata(loose)
        if copy.name == "accounts":
            gone = "ck_accounts_within_ceiling"
            copy.constraints -= {c for c in copy.constraints if c.name == gone}
    engine = create_engine(url)
    with engine.begin() as connection:
        metadata.drop_all(connection)
        loose.create_all(connection)
    engine.dispose()
