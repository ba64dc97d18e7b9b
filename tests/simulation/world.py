"""Owners, analysts, API processes, workers, their supervisors, a broker and the maintenance loop, over
the service's own functions. Only the computation is simulated: a model's bits follow from its key."""

import hashlib
import json
from collections import Counter
from dataclasses import dataclass, field
from functools import cache

from sqlalchemy import select, update
from sqlalchemy.exc import OperationalError

from service.api.auth import create_key
from service.api.credentials import valid_credentials
from service.config import Settings
from service.datasets import upload
from service.db import Database, now_ms
from service.errors import Problem, Unauthenticated
from service.jobs import admit, cancel, claim, maintenance, planned, publish, submit, supervise
from service.jobs.card import Released, Software
from service.ledger import accounts, adjust
from service.planning.spec import JobSpec
from service.tables import api_keys, datasets
from tests.simulation.database import START_MS, Actor, Died, Fate, SimulatedDatabase

EPSILONS = (0.05, 0.1, 0.15, 0.3)
FORMS = (
    {"steps": 3},
    {"steps": 1, "batch": 1},
)  # limits of different orders count these differently
CAPS, SHARES = (0.7, 0.9, 1.0, 3.0), (0.1, 0.3, 0.5, None)
REPEATS, WORKERS = 3, 4


def bits(noise_key, plan_digest):
    """What a run with this noise releases: another key, other bits."""
    drawn = hashlib.sha256(noise_key + plan_digest.encode()).digest()
    return tuple(int.from_bytes(drawn[i : i + 6]) / 2**48 for i in range(0, 24, 6))


def authorise(connection, dataset):
    return connection.execute(select(datasets).where(datasets.c.id == dataset)).one()


@cache
def specification(dataset, epsilon, form):
    return JobSpec.model_validate(
        {
            "dataset": dataset,
            "algorithm": "gradient-descent",
            "loss": "logistic",
            "privacy": {"epsilon": epsilon},
            "parameters": FORMS[form],
        }
    )


@dataclass
class Request:
    """What a client asks, as often as it takes to get an answer."""

    number: int
    who: str
    asked: list
    choice: int
    group: bool
    key: str | None
    answers: set = field(default_factory=set)
    credential: str = ""
    sent: int = 0


class World:
    """One history: what is in the database, and what the simulation itself knows to be true."""

    def __init__(self, db: SimulatedDatabase, settings: Settings, people):
        self.db, self.settings, self.people = db, settings, people
        self.actors, self.hints, self.requests, self.dead_claims = [], [], [], []
        self.noise, self.read, self.gone = {}, set(), set()  # keys by job; jobs; datasets
        self.start_api()
        self.claims = Counter()  # by job, as they were given out
        self.refused_replays, self.faults, self.log, self.names = [], Counter(), [], {}
        self.spawned, self.steps, self.unanswered, self.dying, self.checked = 0, 0, [], [], None
        self.keys, self.revoked = (
            dict(people.keys),
            set(),
        )  # what each sends now; what is no longer good
        self.held = {}  # claims by worker, as their supervisors know them
        self.made = {}  # jobs that were seen
        self.presumed = {}  # what a job was asked for on the strength of: its credential, its limits

    # what happens, each as one line of the history

    def note(self, text):
        self.log.append(f"{(self.db.now_ms - START_MS) / 1000:+.3f} s  {text}")

    def called(self, job_id):
        return f"job {self.names.setdefault(job_id, len(self.names) + 1)}"

    def fault(self, name):
        self.faults[name] += 1

    def spawn(self, name, run, *arguments):
        self.spawned += 1
        actor = Actor(f"{name} #{self.spawned}", lambda: self._live(actor, run, *arguments))
        actor.go()
        if not actor.dead:
            self.actors.append(actor)

    def _live(self, actor, run, *arguments):
        try:
            run(actor, *arguments)
            self.note(f"{actor.name} is done")
        except Died:
            self.note(f"{actor.name} died")
        except Problem as problem:
            self.note(f"{actor.name} is refused: {problem.code}")
        except OperationalError:
            self.note(f"{actor.name} gives up: the database is away")

    def go(self, actor, fate):
        self.note(f"{actor.name} goes on: {fate.value}")
        if fate is not Fate.FINE:
            self.fault(fate.value)
        actor.go(fate)
        while self.dying:  # with the process of a request, its other requests
            other = self.dying.pop()
            if not other.dead:
                other.throw(Died)
        self.actors = [each for each in self.actors if not each.dead]
        while self.unanswered:
            self.send(self.unanswered.pop())

    # clients and the API process that answers them

    def start_api(self):
        self.turns = admit.turns_of(self.db, self.settings, valid_credentials)
        self.memory, self.serving = planned.Memory(), []

    def ask(self, who, choices, group, keyed):
        asked = [
            submit.Asked(
                specification(self.people.datasets[c % 3], EPSILONS[c % 4], c // 4 % 5 // 4),
                {"request": str(len(self.requests))},
            )
            for c in choices
        ]
        number = len(self.requests)
        request = Request(number, who, asked, choices[0], group, f"key {number}" if keyed else None)
        self.requests.append(request)
        self.send(request)

    def send(self, request):
        request.sent += 1
        request.credential = request.credential or self.keys[request.who]
        self.spawn(f"request {request.number}", self._submit, request)

    def _submit(self, actor, request):
        made, turns = self.jobs_of(request), self.turns
        self.serving.append(actor)
        try:
            done = self._once_more(request) or self._from_the_start(request)
        except Problem as problem:
            if request.key and made and not isinstance(problem, Unauthenticated):
                self.refused_replays.append(f"request {request.number}: {problem.code}")
            raise
        except (Died, OperationalError) as error:
            if request.key and request.sent < REPEATS:
                self.fault("a request repeated without an answer")
                self.unanswered.append(request)
            if isinstance(error, Died) and turns is self.turns:
                self.dying, self.serving = [a for a in self.serving if a is not actor], []
                self.start_api()
            raise
        request.answers.add(done.body)
        if not done.replayed:
            self.hints.append(actor.name)

    def _once_more(self, request):
        """As service/api/jobs.py does, of what is remembered."""
        if request.group:
            return None
        again = submit.remembered(
            self.memory,
            authorise=authorise,
            principal_id=request.who,
            credential=request.credential,
            asked=request.asked[0],
            idempotency_key=request.key,
        )
        if again is None:
            return None
        (job,) = again.planned
        self.presumed[job.job_id] = (request.credential, frozenset(job.plan.plan.facts.limits))
        try:
            return self.turns.take(job.account_id, again)
        except submit.ANEW:
            return None

    def _from_the_start(self, request):
        with self.look() as connection:
            if not valid_credentials(connection, {request.credential}):
                raise Unauthenticated("it was revoked")
        return submit.submit(
            self.db,
            self.settings,
            authorise=authorise,
            principal_id=request.who,
            asked=request.asked,
            group=request.group,
            idempotency_key=request.key,
            turns=self.turns,
            memory=None if request.group else self.memory,
        )

    def jobs_of(self, request):
        with self.look() as connection:
            query = "SELECT id FROM jobs WHERE metadata = ?"
            text = json.dumps({"request": str(request.number)}, separators=(",", ":"))
            return connection.exec_driver_sql(query, (text,)).scalars().all()

    def look(self):
        """Read as nobody: no actor waits here."""
        return Database.read(self.db)

    # workers, who supervises them, and maintenance

    def work(self, habits):
        self.spawn("worker", self._work, habits)

    def _work(self, worker, habits):
        """As workers/execute.py does: until nothing is due, claim, open, run, publish; most claim the
        next job with the publication."""
        self.held[worker] = None
        try:
            while True:
                with self.db.write() as connection:
                    claimed = self._claim(connection, worker, habits)
                if claimed is None:
                    return
                while claimed is not None:
                    self.held[worker] = (claimed[0].id, claimed[0].fence)
                    job, dataset, number = self._opened(*claimed)
                    run = dataset is not None
                    claimed = self._run(worker, job, number, habits // 2) if run else None
                    self.held[worker] = None
        except Died:
            if self.held[worker] is not None:
                self.dead_claims.append(self.held[worker])
            raise

    def _claim(self, connection, worker, habits):
        """(job, its dataset if it is opened at once)"""
        found = claim.due(connection)
        if found is None:
            return None
        if habits % 2:
            opened = claim.claim_and_open(connection, found, self.settings.lease_seconds)
            job, dataset = opened or (None, None)
        else:
            job, dataset = claim.claim_due(connection, found, self.settings.lease_seconds), None
        if job is None:
            return self._claim(connection, worker, habits)
        self.note(f"{worker.name} claims {self.called(job.id)}, fence {job.fence}")
        return job, dataset

    def _opened(self, job, dataset):
        self.claims[job.id] = number = self.claims[job.id] + 1
        if dataset is None:  # other engines may: to be claimed is not to be opened
            with self.db.write() as connection:
                dataset = claim.open_data(connection, job.id, job.fence)
        return job, dataset, number

    def _run(self, worker, job, number, habits):
        if job.dataset_id in self.gone:  # as when the files are missing
            return self._release(job, failed=False)
        self.read.add(job.id)
        key = self.settings.keys.unwrap(job.wrapped_key, job.id)
        for _ in range(habits % 3):
            with self.db.write() as connection:
                lease = self.settings.lease_seconds
                mine = claim.renew_lease(connection, job.id, job.fence, 1, lease)
            if not mine and habits // 3 % 2:  # else it never hears of it, and publishes late
                return self._release(job, failed=True)
        if habits // 6 % 6 < 2:
            return self._release(job, failed=habits // 6 % 6 == 0)
        released = Released(vector=bits(key, job.plan_digest))
        for last in (False, False, True):
            try:
                with self.db.write() as connection:
                    goes_on = habits // 36 % 4 > 0
                    claimed = self._claim(connection, worker, 1) if goes_on else None
                    done = publish.publish(
                        connection,
                        self.settings.keys,
                        *(job.id, job.fence),
                        released,
                        Software.model_validate(dict.fromkeys(Software.model_fields, f"{number}")),
                    )
                said = "is published" if done else "is no longer this worker's to publish"
                self.note(f"{self.called(job.id)} {said}, fence {job.fence}")
                if not done:
                    self.fault("a publication too late")
                if claimed is not None:
                    self.fault("a publication that claims")
                return claimed
            except OperationalError:
                if last:
                    return self._release(job, failed=False)
        return None

    def _release(self, job, failed):
        self.note(f"{self.called(job.id)} is to be released, fence {job.fence}, failed: {failed}")
        with self.db.write() as connection:
            claim.release_claim(connection, self.settings, job.id, job.fence, failed=failed)

    def supervise(self, number):
        """A dead worker's claim is given back, unless its supervisor died with it."""
        if self.dead_claims:
            line = supervise.claim_line(*self.dead_claims.pop(number % len(self.dead_claims)))
            self.spawn("supervisor", lambda _: supervise.follow([line], self.db, self.settings))

    def reap(self):
        self.spawn("reaper", lambda _: maintenance.reap(self.db, self.settings))

    def purge(self):
        self.spawn("purger", lambda _: maintenance.purge(self.db))

    # owners, and whoever cancels

    def cancel(self, job_id):
        self.spawn(f"canceller of {self.called(job_id)}", self._write, cancel.cancel, job_id)

    def _write(self, actor, action, *arguments, **named):
        with self.db.write() as connection:
            action(connection, *arguments, **named)

    def top_up(self, which, epsilon):
        def run(actor):
            account = self._account(which)
            with self.db.read() as connection:
                known = adjust.costs_so_far(connection, account, epsilon)
            named = {"principal_id": self.people.owner, "reason": "more", "known": known}
            self._write(actor, adjust.top_up, account.id, cap_epsilon=epsilon, **named)

        self.spawn("top-up", run)

    def share(self, which, who, epsilon):
        def run(actor):
            account, known = self._account(which), adjust.NO_COSTS
            if epsilon is not None:
                with self.db.read() as connection:
                    known = adjust.costs_so_far(connection, account, epsilon, who)
            self._write(actor, adjust.set_share, account.id, who, epsilon, known)

        self.spawn("share", run)

    def freeze(self, which, frozen):
        account, owner = self._account(which).id, self.people.owner
        named = {"frozen": frozen, "principal_id": owner, "reason": "so"}
        self.spawn("freeze", lambda actor: self._write(actor, adjust.set_frozen, account, **named))

    def revoke(self, who):
        """Somebody's key; they are given another."""
        old = self.keys[who]
        of = api_keys.c.id == old

        def run(actor):
            try:
                with self.db.write() as connection:
                    connection.execute(update(api_keys).where(of).values(revoked_ms=now_ms()))
                    new = create_key(connection, who)[0]
            finally:  # whether or not it was told that it is done
                with self.look() as connection:
                    found = connection.execute(select(api_keys.c.revoked_ms).where(of))
                    if found.scalar_one() is not None:
                        self.revoked.add(old)
                        self.keys[who] = new

        self.spawn("revocation", run)

    def delete(self, dataset):
        def run(actor):
            upload.delete_dataset_data(self.db, self.settings, dataset)
            self.gone.add(dataset)

        self.spawn("deletion", run)

    def _account(self, which):
        with self.look() as connection:
            return accounts.find_account(connection, self.people.lineages[which % 2])
