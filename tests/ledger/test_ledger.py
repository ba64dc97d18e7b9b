"""Accounts, entries and resolutions, on both databases."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select, update
from sqlalchemy.exc import DatabaseError, IntegrityError

from service.api.auth import create_principal
from service.db import new_id, now_ms
from service.errors import BudgetAlreadySet, BudgetExceeded, InvalidRequest, Problem
from service.ledger.accounts import find_account, lock_account, open_account
from service.ledger.check import check_ledger
from service.ledger.entries import append_entry
from service.ledger.limits import open_limits
from service.ledger.reserve import AlreadyResolvedError, Wanted, post, reserve, void
from service.planning.conversion import best_order, budget_units
from service.tables import accounts, entries, lineages
from tests.ledger.test_race import open_ledger


@pytest.fixture
def ledger(db):
    owner, account, _ = open_ledger(db)
    return owner, account


def take(connection, account, owner, units):
    wanted = Wanted(
        price=lambda terms: units,
        epsilon=0.1,
        delta=account.terms.delta,
        principal_id=owner,
        dataset_id=None,
        job_id=new_id("job"),
    )
    (outcome,) = reserve(connection, account.id, [wanted])
    if isinstance(outcome, Problem):
        raise outcome
    return outcome


def balances(db, account):
    with db.read() as connection:
        now = find_account(connection, account.lineage_id)
        assert check_ledger(connection) == []
    return now.posted_units, now.pending_units, now.ceiling.remaining_units


def test_a_reservation_is_pending_until_it_is_resolved(db, ledger):
    owner, account = ledger
    cap = account.ceiling_units
    with db.write() as connection:
        first, second = (take(connection, account, owner, units) for units in (1000, 500))
    assert balances(db, account) == (0, 1500, cap - 1500)
    with db.write() as connection:
        post(connection, account.id, first, "done")
    assert balances(db, account) == (1000, 500, cap - 1500)
    with db.write() as connection:
        void(connection, account.id, second, "never opened")
    assert balances(db, account) == (1000, 0, cap - 1000)


@pytest.mark.parametrize("first", [post, void])
@pytest.mark.parametrize("second", [post, void])
def test_resolving_twice_is_refused(db, ledger, first, second):
    owner, account = ledger
    with db.write() as connection:
        seq = take(connection, account, owner, 10)
        first(connection, account.id, seq, "once")
    before = balances(db, account)
    with pytest.raises(AlreadyResolvedError), db.write() as connection:
        second(connection, account.id, seq, "twice")
    assert balances(db, account) == before


def test_the_database_refuses_a_second_resolution_too(db, ledger):
    owner, account = ledger
    with db.write() as connection:
        seq = take(connection, account, owner, 10)
        post(connection, account.id, seq, "once")
    with pytest.raises(IntegrityError), db.write() as connection:
        append_entry(
            connection, account.id, kind="void", units=10, resolves_seq=seq, reason="twice"
        )


@pytest.mark.parametrize("change", [update(entries).values(units=0), delete(entries)])
def test_entries_cannot_be_changed(db, ledger, change):
    owner, account = ledger
    with db.write() as connection:
        take(connection, account, owner, 10)
    with pytest.raises(DatabaseError, match="append-only"), db.write() as connection:
        connection.execute(change)


def test_the_last_unit_can_be_spent_and_not_one_more(db, ledger):
    owner, account = ledger
    with db.write() as connection:
        take(connection, account, owner, account.ceiling_units - 1)
    with pytest.raises(BudgetExceeded) as refusal, db.write() as connection:
        take(connection, account, owner, 2)
    assert refusal.value.members["remaining_units"] == 1
    assert refusal.value.members["largest_epsilon"] == 0.0
    with db.write() as connection:
        take(connection, account, owner, 1)
    assert balances(db, account)[2] == 0


def test_a_refusal_changes_nothing(db, ledger):
    owner, account = ledger
    before = balances(db, account)
    with pytest.raises(BudgetExceeded), db.write() as connection:
        take(connection, account, owner, account.ceiling_units + 1)
    assert balances(db, account) == before
    with db.read() as connection:
        assert len(connection.execute(select(entries)).all()) == 1


def test_the_cap_may_be_below_the_ceiling_and_a_ceiling_is_fixed_once(db, ledger):
    owner, account = ledger
    with db.write() as connection:
        lineage = new_id("lin")
        connection.execute(
            lineages.insert().values(id=lineage, owner_id=owner, created_ms=now_ms())
        )
        capped = open_account(
            connection,
            lineage_id=lineage,
            principal_id=owner,
            epsilon=2.0,
            delta=1e-6,
            cap_epsilon=0.5,
        )
    assert capped.ceiling_units == budget_units(2.0, 1e-6)
    with db.read() as connection:
        cap, shares = open_limits(connection, capped.id)
    assert shares == {}
    assert (cap.units, cap.terms.order) == (budget_units(0.5, 1e-6), best_order(0.5, 1e-6))
    assert cap.in_advance and cap.terms.order != capped.terms.order
    for lineage_id, cap, error in (
        (account.lineage_id, None, BudgetAlreadySet),
        (new_id("lin"), 3.0, InvalidRequest),
    ):
        with pytest.raises(error), db.write() as connection:
            open_account(
                connection,
                lineage_id=lineage_id,
                principal_id=owner,
                epsilon=2.0,
                delta=1e-6,
                cap_epsilon=cap,
            )


def test_the_check_finds_a_balance_that_does_not_follow(db, ledger):
    owner, account = ledger
    with db.write() as connection:
        take(connection, account, owner, 10)
        connection.execute(update(accounts).values(pending_units=9))
    with db.read() as connection:
        assert check_ledger(connection) == [f"{account.id}: pending 9, entries say 10"]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["reserve", "post", "void"]), st.integers(0, 30)), max_size=20
    )
)
def test_any_history_keeps_the_books_within_the_ceiling(db, steps):
    """The ledger against a plain model: a dict of open reservations and two sums."""
    with db.write() as connection:
        owner = create_principal(connection, new_id("owner"), "owner")
        lineage = new_id("lin")
        connection.execute(
            lineages.insert().values(id=lineage, owner_id=owner, created_ms=now_ms())
        )
        account = open_account(
            connection, lineage_id=lineage, principal_id=owner, epsilon=1.0, delta=1e-6
        )
    unit, posted, pending = account.ceiling_units // 40, 0, {}
    for action, number in steps:
        with db.write() as connection:
            if action == "reserve":
                fits = posted + sum(pending.values()) + number * unit <= account.ceiling_units
                try:
                    seq = take(connection, account, owner, number * unit)
                    assert fits
                    pending[seq] = number * unit
                except BudgetExceeded:
                    assert not fits
            elif pending:
                seq = sorted(pending)[number % len(pending)]
                units = pending.pop(seq)
                if action == "post":
                    post(connection, account.id, seq, "posted")
                    posted += units
                else:
                    void(connection, account.id, seq, "voided")
            now = lock_account(connection, account.id)
            assert (now.posted_units, now.pending_units) == (posted, sum(pending.values()))
    with db.read() as connection:
        assert [f for f in check_ledger(connection) if account.id in f] == []
