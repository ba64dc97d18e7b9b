"""What is remembered costs one transaction, and no other statement goes to the database."""

import json
from collections import Counter

import pytest
from sqlalchemy import event

from service.api.auth import create_key
from service.api.credentials import valid_credentials
from service.jobs.admit import turns_of
from service.jobs.planned import REMEMBERED_MAX, Memory
from service.jobs.submit import Asked, remembered, submit
from service.ledger.reserve import Outdated
from workers import execute


@pytest.fixture
def desk(harness):
    return Desk(harness)


class Desk:
    """One process of the API, and the owner with a key."""

    def __init__(self, harness):
        self.harness, self.memory = harness, Memory()
        self.turns = turns_of(harness.db, harness.settings, valid_credentials)
        with harness.db.write() as connection:
            self.key = create_key(connection, harness.owner)[0]

    def submit(self, **changes):
        named = {"authorise": self.harness.authorise, "principal_id": self.harness.owner}
        asked = [Asked(self.harness.spec(**changes))]
        db, settings = self.harness.db, self.harness.settings
        return submit(db, settings, **named, asked=asked, turns=self.turns, memory=self.memory)

    def again(self, credential=None, **changes):
        found = remembered(
            self.memory,
            authorise=None,
            principal_id=self.harness.owner,
            credential=credential or self.key,
            asked=Asked(self.harness.spec(**changes)),
        )
        return found and self.turns.take(found.planned[0].account_id, found)


class Counted:
    """Transactions and statements of a database, from here on."""

    def __init__(self, db):
        self.counts = Counter()
        event.listen(db.engine, "begin", self._begin)
        event.listen(db.engine, "before_cursor_execute", self._statement)

    def _begin(self, connection):
        self.counts["transactions"] += 1

    def _statement(self, connection, cursor, statement, *rest):
        if not statement.startswith("BEGIN"):
            self.counts["statements"] += 1


def test_another_job_of_the_same_spec_is_one_transaction(desk):
    assert desk.again() is None  # nothing is known yet
    desk.submit()
    counted = Counted(desk.harness.db)
    assert desk.again().id.startswith("job_")
    assert counted.counts["transactions"] == 1
    assert counted.counts["statements"] <= 12
    assert desk.again(epsilon=0.2) is None  # of another spec, nothing is
    assert desk.harness.balance()[1] > 0


@pytest.mark.parametrize("left_open", [{"algorithm": "auto"}, {"set": {"kind": "default"}}, {}])
def test_a_job_is_remembered_by_what_was_asked_not_by_what_was_planned(desk, left_open):
    desk.submit(parameters={}, **left_open)
    again = json.loads(desk.again(parameters={}, **left_open).body)
    assert (again["choice"] is not None) == ("algorithm" in left_open)
    named = {key: again["spec"][key] for key in ("algorithm", "set")}
    if "algorithm" in left_open:  # who names it was not told why it was chosen
        assert desk.again(parameters={}, **named) is None


def test_an_unknown_credential_admits_nothing(desk):
    desk.submit()
    before = desk.harness.balance()
    with pytest.raises(Outdated):
        desk.again("key_of_nobody")
    assert desk.harness.balance() == before


def test_memory_is_bounded(desk):
    desk.submit()
    known = desk.memory.recall(desk.harness.owner, desk.harness.spec())
    for number in range(2 * REMEMBERED_MAX):
        desk.memory.learn(f"prn_{number}", desk.harness.spec(), known)
    assert len(desk.memory._known) <= REMEMBERED_MAX


def test_a_worker_claims_its_next_job_with_the_publication_of_the_last(harness, monkeypatch):
    jobs, lines, seen = [harness.submit(0.05) for _ in range(4)], [], []
    for name in ("due", "publish"):
        act = getattr(execute, name)

        def noted(connection, *arguments, name=name, act=act):
            seen.append((name, connection.get_transaction()))
            return act(connection, *arguments)

        monkeypatch.setattr(execute, name, noted)
    left = iter([True, True, False])
    assert execute.execute_one(harness.db, harness.settings, lines.append, lambda: next(left))
    assert [harness.row(job).state for job in jobs] == ["succeeded"] * 3 + ["queued"]
    names, transactions = zip(*seen, strict=True)
    assert names == ("due", "due", "publish", "due", "publish", "publish")
    assert transactions[1] is transactions[2] is not transactions[3] is transactions[4]
    assert [line.split()[:1] for line in lines] == [[job.encode()] for job in jobs[:3]] + [[]]


def test_a_publication_that_fails_leaves_the_next_job_in_the_queue(harness, monkeypatch):
    first, second = harness.submit(), harness.submit()

    def broken(*arguments):
        raise RuntimeError

    monkeypatch.setattr(execute, "publish", broken)
    assert execute.execute_one(harness.db, harness.settings, more=lambda: True)
    assert harness.row(second).state == "queued"
    assert (harness.row(first).state, harness.row(first).attempts) == ("queued", 1)
    monkeypatch.undo()
    assert execute.execute_one(harness.db, harness.settings, more=lambda: True)
    assert {harness.row(job).state for job in (first, second)} == {"succeeded"}
