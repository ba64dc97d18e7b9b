"""Turns: many who want something of one account, few transactions, an answer for each."""

import asyncio
import threading

import pytest
from sqlalchemy.exc import IntegrityError

from service.api.credentials import valid_credentials
from service.jobs.admit import turns_of
from service.jobs.submit import Asked, submit
from service.jobs.turns import Turns
from tests.api.at_once import at_once
from tests.jobs.harness import JobHarness

COLLISION = IntegrityError("INSERT", {}, Exception("unique"))


def everybody(count, action):
    """The outcomes of the same action from many threads at once; an error is an outcome too."""

    def attempt():
        try:
            return action()
        except Exception as error:
            return error

    return at_once(count, attempt)


class Counted:
    """Doubles numbers; the first call waits until everybody has come."""

    def __init__(self, everybody, refuse=lambda batch: None):
        self.batches, self.everybody, self.refuse = [], everybody, refuse
        self.turns = Turns(self.act)

    def act(self, batch):
        first = not self.batches
        self.batches.append(list(batch))
        if first:
            line = self.turns._lines["line"]
            while len(line.waiting) < self.everybody - 1:
                threading.Event().wait(0.001)
        if error := self.refuse(batch):
            raise error
        return [ValueError(n) if n < 0 else 2 * n for n in batch]

    def all_at_once(self, numbers):
        waiting = list(numbers)
        return everybody(self.everybody, lambda: self.turns.take("line", waiting.pop()))


def test_what_waits_is_done_together_and_each_gets_its_own_answer():
    counted = Counted(12)
    answers = counted.all_at_once(range(12))
    assert sorted(answers) == [2 * n for n in range(12)]
    assert [len(batch) for batch in counted.batches] == [1, 11]
    assert counted.turns._lines == {}  # nobody waits, nothing is kept


def test_one_that_is_refused_does_not_spoil_the_others():
    answers = Counted(4).all_at_once([3, -1, 4, 5])
    assert sorted(a for a in answers if isinstance(a, int)) == [6, 8, 10]
    assert [str(a) for a in answers if isinstance(a, ValueError)] == ["-1"]


def test_those_who_collide_are_done_one_by_one():
    counted = Counted(5, lambda batch: COLLISION if len(batch) > 1 else None)
    assert sorted(counted.all_at_once(range(5))) == [0, 2, 4, 6, 8]
    assert sorted(map(len, counted.batches)) == [1, 1, 1, 1, 1, 4]


def test_a_transaction_that_fails_fails_for_all_of_it():
    answers = Counted(3, lambda batch: ConnectionError("gone")).all_at_once(range(3))
    assert [type(answer) for answer in answers] == [ConnectionError] * 3


def test_lines_do_not_wait_for_each_other():
    entered, leave = threading.Event(), threading.Event()

    def act(batch):
        if batch == ["slow"]:
            entered.set()
            leave.wait(30)
        return list(batch)

    turns = Turns(act)
    slow = threading.Thread(target=turns.take, args=("one", "slow"))
    slow.start()
    assert entered.wait(30)
    assert turns.take("other", "fast") == "fast"
    leave.set()
    slow.join()


@pytest.mark.parametrize("keyed", [False, True])
def test_jobs_of_many_callers_are_admitted_together_within_the_budget(db, tmp_path, keyed):
    harness = JobHarness(db, tmp_path)
    turns = turns_of(db, harness.settings, valid_credentials)
    people = [harness.analyst() for _ in range(12)]
    waiting = list(people)

    def one():
        who = waiting.pop()
        return submit(
            db,
            harness.settings,
            authorise=harness.authorise,
            principal_id=who,
            asked=[Asked(harness.spec(0.35))],
            idempotency_key="key" if keyed else None,
            turns=turns,
        ).id

    outcomes = everybody(12, one)
    admitted = [o for o in outcomes if isinstance(o, str)]
    posted, pending = harness.balance()
    price = pending // len(admitted)
    assert len(set(admitted)) == harness.account().ceiling_units // price < 12
    assert (posted, pending) == (0, price * len(admitted))
    assert {o.code for o in outcomes if not isinstance(o, str)} == {"budget_exceeded"}


def given(counted, numbers):
    """The outcomes of coroutines of one loop, each waiting for its own answer."""

    async def main():
        asked = (counted.turns.give("line", number) for number in numbers)
        return await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), 30)

    try:
        return asyncio.run(main())
    finally:
        counted.turns.close()


def test_coroutines_wait_in_the_same_lines_and_none_needs_a_thread():
    counted = Counted(12)
    assert given(counted, range(12)) == [2 * n for n in range(12)]
    assert [len(batch) for batch in counted.batches] == [1, 11]
    assert counted.turns._lines == {}


def test_a_coroutine_gets_its_own_refusal_and_a_failure_of_all():
    answers = given(Counted(3), [1, -1, 2])
    assert [type(answer) for answer in answers] == [int, ValueError, int]
    failing = Counted(3, lambda batch: ConnectionError("gone"))
    assert [type(answer) for answer in given(failing, range(3))] == [ConnectionError] * 3


def test_too_few_answers_leave_nobody_waiting():
    turns = Turns(lambda batch: [])
    with pytest.raises(ValueError, match="zip"):
        turns.take("line", 1)
