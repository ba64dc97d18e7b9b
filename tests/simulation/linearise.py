"""Many threads against one account of the real ledger, and whether what each was answered could have
come from a ledger that takes one call at a time: `make linearise`."""

import argparse
import random
import tempfile
import threading
import time
from typing import NamedTuple

from sqlalchemy.exc import IntegrityError, OperationalError

from service.api.auth import create_principal
from service.db import Database, new_id, now_ms
from service.errors import Problem
from service.jobs.turns import Turns
from service.ledger import adjust, reserve
from service.ledger.accounts import find_account, open_account
from service.planning.conversion import budget_units
from service.tables import lineages
from tests.harness import DATABASES, fresh_database
from tests.simulation.checker import UNKNOWN, Call, stuck
from tools.campaigns import record

CEILING, CAP = 1.0, 0.3
TOP_UPS = (0.2, 0.4, 0.5, 0.7, 1.0, 2.0)
EPSILONS = (0.01, 0.02, 0.05, 0.2)
WEIGHTS = {
    "reserve": 8,
    "post": 2,
    "void": 5,
    "balance": 2,
    "freeze": 1,
    "unfreeze": 2,
    "top_up": 1,
}


def units(epsilon):
    return budget_units(epsilon, 0.0, "pure")  # of one order: a cap counts as the ceiling does


class Ledger(NamedTuple):
    """An account, taken one call at a time: each returns what it is then, and the answer."""

    entries: int = 1  # it is opened
    posted: int = 0
    pending: frozenset = frozenset()  # (number, units)
    cap: float = CAP
    frozen: bool = False

    def reserve(self, amount):
        if self.frozen:
            return self, "budget_frozen"
        if self.posted + self.reserved + amount > units(self.cap):
            return self, "budget_exceeded"
        after = self._next(pending=self.pending | {(self.entries + 1, amount)})
        return after, after.entries

    def post(self, seq):
        return self._resolve(seq, 1)

    def void(self, seq):
        return self._resolve(seq, 0)

    def _resolve(self, seq, posted):
        resolved = {one for one in self.pending if one[0] == seq}
        if not resolved:
            return self, "AlreadyResolvedError"
        more = posted * sum(amount for _, amount in resolved)
        after = self._next(posted=self.posted + more, pending=self.pending - resolved)
        return after, (after.entries, after.posted) if posted else None

    def top_up(self, cap):
        if cap > CEILING:
            return self, "ceiling_exceeded"
        if cap <= self.cap:
            return self, "invalid_request"
        return self._next(cap=cap), self.entries + 1

    def freeze(self):
        if self.frozen:
            return self, "budget_frozen"
        return self._next(frozen=True), self.entries + 1

    def unfreeze(self):
        if not self.frozen:
            return self, "budget_not_frozen"
        return self._next(frozen=False), self.entries + 1

    def balance(self):
        return self, (self.entries, self.posted, self.reserved, self.frozen)

    @property
    def reserved(self):
        return sum(amount for _, amount in self.pending)

    def _next(self, **changed):
        return self._replace(entries=self.entries + 1, **changed)


def model(state, name, arguments):
    return getattr(state, name)(*arguments)


class Clients:
    """Threads that share an account, and the history of what they asked and were answered."""

    def __init__(self, db):
        self.db, self.history, self.reserved = db, [], []
        self.turns = Turns(self.reserve_all)
        with db.write() as connection:
            self.owner, self.lineage = create_principal(connection, "o", "owner"), new_id("lin")
            connection.execute(
                lineages.insert().values(id=self.lineage, owner_id=self.owner, created_ms=now_ms())
            )
            self.account = open_account(
                connection,
                lineage_id=self.lineage,
                principal_id=self.owner,
                epsilon=CEILING,
                delta=0.0,
                cap_epsilon=CAP,
            )

    def reserve_all(self, amounts):
        """Those who wait for the account are served together, as in service/jobs/submit.py."""
        wanted = [
            reserve.Wanted(
                price=lambda terms, amount=amount: amount,
                epsilon=0.1,
                delta=0.0,
                principal_id=self.owner,
                dataset_id=None,
                job_id=new_id("job"),
            )
            for amount in amounts
        ]
        with self.db.write() as connection:
            return reserve.reserve(connection, self.account.id, wanted)

    def post(self, connection, seq):
        after, _ = reserve.post(connection, self.account.id, seq, "so")
        return after.entries, after.posted_units

    def void(self, connection, seq):
        reserve.void(connection, self.account.id, seq, "so")

    def top_up(self, connection, cap):
        named = {"cap_epsilon": cap, "principal_id": self.owner, "reason": "so"}
        return adjust.top_up(connection, self.account.id, **named).entries

    def freeze(self, connection, frozen=True):
        named = {"frozen": frozen, "principal_id": self.owner, "reason": "so"}
        return adjust.set_frozen(connection, self.account.id, **named).entries

    def unfreeze(self, connection):
        return self.freeze(connection, False)

    def balance(self, connection):
        row = find_account(connection, self.lineage)
        return row.entries, row.posted_units, row.pending_units, row.frozen

    def call(self, name, *arguments):
        """The answer as the model gives it: a value, or the name of a refusal."""
        try:
            if name == "reserve":
                return self.turns.take(self.account.id, *arguments)
            with (self.db.read if name == "balance" else self.db.write)() as connection:
                return getattr(self, name)(connection, *arguments)
        except Problem as problem:
            return problem.code
        except OperationalError:  # also if it was the commit
            return UNKNOWN
        except (reserve.AlreadyResolvedError, IntegrityError) as error:
            return type(error).__name__

    def client(self, thread, seed, count, start):
        rng = random.Random(seed)
        start.wait()
        for name in rng.choices(list(WEIGHTS), list(WEIGHTS.values()), k=count):
            arguments = self._arguments(name, rng)
            if arguments is None:
                continue
            began = time.monotonic_ns()
            answer = self.call(name, *arguments)
            ended = time.monotonic_ns()
            self.history.append(Call(began, ended, thread, name, arguments, answer))
            if name == "reserve" and isinstance(answer, int):
                self.reserved.append(answer)

    def _arguments(self, name, rng):
        if name == "reserve":
            return (units(rng.choice(EPSILONS)),)
        if name == "top_up":
            return (rng.choice(TOP_UPS),)
        if name in ("post", "void"):  # one of the latest, which others try to resolve too
            return (rng.choice(self.reserved[-8:]),) if self.reserved else None
        return ()

    def run(self, seed, threads, count):
        start = threading.Barrier(threads)
        running = [
            threading.Thread(target=self.client, args=(n, f"{seed} {n}", count, start))
            for n in range(threads)
        ]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        return self.history


def play(kind, seed, threads, count, clients=Clients):
    """A history on a fresh database of this kind, and where it is stuck."""
    with tempfile.TemporaryDirectory() as folder, fresh_database(kind, folder) as url:
        db = Database(url, pool_size=threads)
        try:
            history = clients(db).run(seed, threads, count)
        finally:
            db.dispose()
    return history, stuck(history, Ledger(), model)


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.linearise")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=12)
    parser.add_argument("--calls", type=int, default=100, help="of each thread")
    parser.add_argument("--record", action="store_true", help="the result into docs/campaigns")
    options, played = parser.parse_args(), {}
    for kind in DATABASES:
        calls, unknown, started = 0, 0, time.monotonic()
        for seed in range(options.rounds):
            history, where = play(kind, seed, options.threads, options.calls)
            calls += len(history)
            unknown += sum(call.answer == UNKNOWN for call in history)
            if where:
                print(f"{kind}, seed {seed}: no order explains these", *where, sep="\n")
                return 1
        seconds = time.monotonic() - started
        print(
            f"{kind}: {options.rounds} histories, {calls} calls by {options.threads} threads, "
            f"{unknown} without an answer, {seconds:.0f} s: each is linearisable"
        )
        played[kind] = {
            "histories": options.rounds,
            "calls": calls,
            "threads": options.threads,
            "unknown": unknown,
        }
    if options.record:
        words = f"--rounds {options.rounds} --threads {options.threads} --calls {options.calls}"
        record("linearise", command=f'make linearise ARGS="{words}"', kinds=played)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
