"""The feed: every change gets a position once it is committed, and none is passed over."""

import threading

import pytest
from sqlalchemy import func, select, update

from service.changes import bounds, changes_after, forget_changes, news, note_change, place
from service.tables import changes
from tests.jobs.test_lifecycle import Office


@pytest.fixture
def office(db, tmp_path):
    return Office(db, tmp_path)


def account_id(office):
    with office.db.read() as connection:
        return connection.execute(select(changes.c.account_id).limit(1)).scalar_one()


def read(office, after=0):
    place(office.db)
    with office.db.read() as connection:
        assert news(connection, None) == []
        return changes_after(connection, after)


def test_every_event_and_entry_is_in_the_feed(office):
    job = office.submit()
    held = office.claim()
    assert held.id == job
    kinds = [(row.type, row.number) for row in read(office)]
    assert kinds == [("open", 1), ("reserve", 2), ("queued", 1), ("running", 2)]
    assert [row.position for row in read(office)] == [1, 2, 3, 4]
    assert [row.type for row in read(office, 3)] == ["running"]


@pytest.mark.parametrize("db", ["postgresql"], indirect=True)
def test_one_that_commits_late_is_not_passed_over(office):
    """It took the smaller id: a reader who remembered the largest id seen would miss it. (SQLite has
    one writer at a time, so there ids are in the order of commits.)"""
    account, early, late = account_id(office), threading.Event(), threading.Event()

    def slow():
        with office.db.write() as connection:
            note_change(connection, account_id=account, number=100, type="slow")
            early.set()
            late.wait(20)

    thread = threading.Thread(target=slow)
    thread.start()
    assert early.wait(20)
    with office.db.write() as connection:
        note_change(connection, account_id=account, number=101, type="quick")
    first = read(office)
    assert [row.type for row in first][-1] == "quick"
    late.set()
    thread.join()
    missed = read(office, first[-1].position)
    assert [row.type for row in missed] == ["slow"]
    assert missed[0].id < first[-1].id and missed[0].position > first[-1].position


def test_many_who_place_at_once_agree(office):
    account = account_id(office)
    with office.db.write() as connection:
        for number in range(2000):
            note_change(connection, account_id=account, number=number, type="entry")

    def place_all():
        for _ in range(5):
            place(office.db)

    threads = [threading.Thread(target=place_all) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with office.db.read() as connection:
        assert news(connection, None) == []
        ordered = connection.execute(select(changes).order_by(changes.c.position)).all()
    assert [row.position for row in ordered] == list(range(1, len(ordered) + 1))
    assert [row.id for row in ordered] == sorted(row.id for row in ordered)


def test_forgetting_the_past_keeps_the_place_to_go_on_from(office):
    office.submit()
    newest = read(office)[-1].position
    with office.db.write() as connection:
        connection.execute(update(changes).values(created_ms=1))
    forget_changes(office.db)
    with office.db.read() as connection:
        assert bounds(connection) == (newest, newest)
        assert connection.execute(select(func.count()).select_from(changes)).scalar_one() == 1
    office.submit()
    fresh = read(office, newest)
    assert [row.position for row in fresh] == [newest + 1, newest + 2]
