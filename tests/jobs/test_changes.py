"""The feed: every change gets a position once it is committed, and none is passed over."""

import threading

import pytest
from sqlalchemy import func, select, update

from service.changes import (
    assign_positions,
    changes_after,
    position_range,
    purge_changes,
    record_changes,
    unread_changes,
)
from service.tables import changes


def account_id(harness):
    with harness.db.read() as connection:
        return connection.execute(select(changes.c.account_id).limit(1)).scalar_one()


def read(harness, after=0):
    assign_positions(harness.db)
    with harness.db.read() as connection:
        assert unread_changes(connection, None) == []
        return changes_after(connection, after)


def test_every_event_and_entry_is_in_the_feed(harness):
    job = harness.submit()
    claimed = harness.claim()
    assert claimed.id == job
    kinds = [(row.type, row.number) for row in read(harness)]
    assert kinds == [("open", 1), ("reserve", 2), ("queued", 1), ("running", 2)]
    assert [row.position for row in read(harness)] == [1, 2, 3, 4]
    assert [row.type for row in read(harness, 3)] == ["running"]


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_one_that_commits_late_is_not_passed_over(harness):
    """It took the smaller id: a reader who remembered the largest id seen would miss it. (SQLite has
    one writer at a time, so there ids are in the order of commits.)"""
    account, early, late = account_id(harness), threading.Event(), threading.Event()

    def slow():
        with harness.db.write() as connection:
            record_changes(connection, [{"account_id": account, "number": 100, "type": "slow"}])
            early.set()
            late.wait(20)

    thread = threading.Thread(target=slow)
    thread.start()
    assert early.wait(20)
    with harness.db.write() as connection:
        record_changes(connection, [{"account_id": account, "number": 101, "type": "quick"}])
    first = read(harness)
    assert [row.type for row in first][-1] == "quick"
    late.set()
    thread.join()
    missed = read(harness, first[-1].position)
    assert [row.type for row in missed] == ["slow"]
    assert missed[0].id < first[-1].id and missed[0].position > first[-1].position


def test_many_who_assign_positions_at_once_agree(harness):
    account = account_id(harness)
    with harness.db.write() as connection:
        for number in range(2000):
            record_changes(connection, [{"account_id": account, "number": number, "type": "entry"}])

    def assign_all():
        for _ in range(5):
            assign_positions(harness.db)

    threads = [threading.Thread(target=assign_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with harness.db.read() as connection:
        assert unread_changes(connection, None) == []
        ordered = connection.execute(select(changes).order_by(changes.c.position)).all()
    assert [row.position for row in ordered] == list(range(1, len(ordered) + 1))
    assert [row.id for row in ordered] == sorted(row.id for row in ordered)


def test_purging_old_changes_keeps_the_position_to_continue_from(harness):
    harness.submit()
    newest = read(harness)[-1].position
    with harness.db.write() as connection:
        connection.execute(update(changes).values(created_ms=1))
    purge_changes(harness.db)
    with harness.db.read() as connection:
        assert position_range(connection) == (newest, newest)
        assert connection.execute(select(func.count()).select_from(changes)).scalar_one() == 1
    harness.submit()
    fresh = read(harness, newest)
    assert [row.position for row in fresh] == [newest + 1, newest + 2]
