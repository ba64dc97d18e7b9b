"""Limits that an earlier version let be passed, and what is said of odd ones."""

import pytest
from sqlalchemy import update

from service.errors import BudgetExceeded
from service.jobs.cancel import cancel
from service.ledger.adjust import set_frozen
from service.ledger.admission import standing
from service.ledger.check import check_ledger
from service.ledger.limits import open_limits
from service.ledger.statement import budget
from service.tables import limits
from tests.jobs.harness import JobHarness


@pytest.fixture
def harness(db, tmp_path):
    return JobHarness(db, tmp_path, cap=0.5)


def said(harness):
    with harness.db.read() as connection:
        return budget(connection, standing(connection, harness.account(), harness.owner))


def cap(harness):
    with harness.db.read() as connection:
        return open_limits(connection, harness.account().id)[0]


def overdraw(harness):
    """As migration marks one: what is pending exceeds what it holds."""
    job = harness.submit(0.4)
    with harness.db.write() as connection:
        smaller = update(limits).values(units=limits.c.pending_units - 1, overdrawn=True)
        connection.execute(smaller)
    return job


def test_an_overdrawn_limit_admits_nothing_until_it_is_no_longer_passed(harness):
    job = overdraw(harness)
    with pytest.raises(BudgetExceeded):
        harness.submit(0.001)
    assert said(harness)["epsilon_remaining"] == 0.0
    harness.do(cancel, job)
    assert not cap(harness).overdrawn  # and so the table's CHECK holds again
    with harness.db.write() as connection:
        whole = update(limits).values(pending_units=limits.c.units + 1)
        with pytest.raises(Exception, match="within_units"):
            connection.execute(whole)


def test_an_overdrawn_limit_whose_jobs_are_posted_stays_passed(harness):
    harness.finish(overdraw(harness))
    assert cap(harness).overdrawn and cap(harness).remaining_units < 0
    with harness.db.read() as connection:
        assert check_ledger(connection) == []


def test_a_limit_of_no_units_is_shown_and_admits_nothing(harness):
    with harness.db.write() as connection:
        connection.execute(update(limits).values(units=0))
    shown = said(harness)
    assert shown["limits"][1]["fraction_remaining"] == 0.0 == shown["epsilon_remaining"]


def test_words_say_that_an_account_is_frozen(harness):
    assert "one more of up to epsilon 0.5 fits" in said(harness)["words"]
    with harness.db.write() as connection:
        set_frozen(
            connection,
            harness.account().id,
            frozen=True,
            principal_id=harness.owner,
            reason="review",
        )
    assert "nothing is admitted while it is frozen" in said(harness)["words"]


def test_a_single_job_has_spent_no_more_than_it_asked(harness):
    harness.finish(harness.submit(0.3, parameters={"steps": 5, "batch": 20}))
    shown = said(harness)
    assert shown["epsilon_spent"] <= 0.3
    harness.finish(harness.submit(0.3, parameters={"steps": 5, "batch": 20}))
    assert 0.3 < said(harness)["epsilon_spent"] < 0.6
