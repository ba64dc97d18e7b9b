"""The ledger answers many at once as if it took one at a time; one that does not is found out."""

import json
import time
from unittest.mock import patch

import pytest
from sqlalchemy import select

from service.errors import BudgetExceeded, BudgetFrozen
from service.ledger import adjust, reserve
from service.ledger.accounts import account_from, find_account
from service.ledger.admission import standing
from service.ledger.entries import append_entry
from service.ledger.limits import applying, move_balances
from service.tables import accounts
from tests.harness import DATABASES
from tests.simulation.checker import UNKNOWN, Call, stuck
from tests.simulation.linearise import Clients, Ledger, model, play, units

THREADS, CALLS, SEEDS = 8, 25, 6
TENTH, FIFTH = units(0.1), units(0.2)


@pytest.mark.parametrize("kind", DATABASES)
def test_every_history_of_the_ledger_is_linearisable(kind):
    history, where = play(kind, 0, THREADS, CALLS)
    assert len(history) > 100
    assert where == [], "\n".join(map(str, where))


def unlocked(connection, account_id):
    row = connection.execute(select(accounts).where(accounts.c.id == account_id)).one()
    time.sleep(0.002)  # the window is there anyway; wider, it is hit within a few histories
    return account_from(row)


def test_a_ledger_that_does_not_lock_is_caught():
    """On PostgreSQL: on SQLite a write transaction is the lock."""
    with (
        patch.object(reserve, "lock_account", unlocked),
        patch.object(adjust, "lock_account", unlocked),
    ):
        assert any(play("postgresql", seed, THREADS, CALLS)[1] for seed in range(SEEDS))


class InTwoTransactions(Clients):
    """Admission is decided in one transaction, and written in the next."""

    def reserve_one(self, amount):
        with self.db.read() as connection:
            account = find_account(connection, self.lineage)
            limits = standing(connection, account, self.owner).limits
        if account.frozen:
            return BudgetFrozen("")
        if any(amount > limit.remaining_units for limit in limits):
            return BudgetExceeded("")
        time.sleep(0.002)
        with self.db.write() as connection:
            caps = applying(connection, account.id, self.owner)
            move_balances(connection, caps, lambda terms: amount, pending=1, posted=0)
            return append_entry(
                connection,
                account.id,
                kind="reserve",
                units=amount,
                pending=amount,
                costs=json.dumps({account.terms.key: amount}),
                principal_id=self.owner,
                reason="job submitted",
            ).entries

    def reserve_all(self, amounts):
        return [self.reserve_one(amount) for amount in amounts]


@pytest.mark.parametrize("kind", DATABASES)
def test_a_ledger_that_checks_in_one_transaction_and_writes_in_another_is_caught(kind):
    histories = (play(kind, seed, THREADS, CALLS, InTwoTransactions) for seed in range(SEEDS))
    assert any(where for _, where in histories)


def call(began, ended, name, *arguments, answer):
    return Call(began, ended, 0, name, arguments, answer)


@pytest.mark.parametrize(
    ("history", "explained"),
    [
        ([], True),
        ([call(0, 1, "reserve", FIFTH, answer=2), call(2, 3, "void", 2, answer=None)], True),
        # after it was frozen, and at the same time
        ([call(0, 1, "freeze", answer=2), call(2, 3, "reserve", TENTH, answer=3)], False),
        ([call(0, 3, "freeze", answer=3), call(1, 2, "reserve", TENTH, answer=2)], True),
        # 0.4 under a cap of 0.3, until something was given back
        ([call(0, 9, "reserve", FIFTH, answer=2), call(0, 9, "reserve", FIFTH, answer=3)], False),
        (
            [
                call(0, 9, "reserve", FIFTH, answer=4),
                call(1, 2, "reserve", FIFTH, answer=2),
                call(3, 8, "void", 2, answer=None),
            ],
            True,
        ),
        # one reservation, two resolutions
        (
            [
                call(0, 1, "reserve", FIFTH, answer=2),
                call(2, 9, "void", 2, answer=None),
                call(2, 9, "post", 2, answer=(3, FIFTH)),
            ],
            False,
        ),
        # a stale balance
        (
            [
                call(0, 1, "reserve", FIFTH, answer=2),
                call(2, 3, "balance", answer=(1, 0, 0, False)),
            ],
            False,
        ),
        # without an answer: it happened, or it did not, or only later
        ([call(0, 1, "freeze", answer=UNKNOWN), call(2, 3, "reserve", TENTH, answer=2)], True),
        (
            [
                call(0, 1, "freeze", answer=UNKNOWN),
                call(2, 3, "reserve", TENTH, answer=2),
                call(4, 5, "reserve", TENTH, answer="budget_frozen"),
            ],
            True,
        ),
        (
            [
                call(0, 1, "freeze", answer=UNKNOWN),
                call(2, 3, "reserve", TENTH, answer="budget_frozen"),
                call(4, 5, "reserve", TENTH, answer=3),
            ],
            False,
        ),
    ],
)
def test_the_checker_explains_what_can_be_explained(history, explained):
    assert (stuck(history, Ledger(), model) == []) == explained
