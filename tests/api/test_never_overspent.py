"""Whatever owners and analysts do, in whatever order: no ceiling, cap or share is ever exceeded.

The real API, without its processes, against a plain model of what it should admit; and against an
independent composition of the jobs' exact privacy-loss distributions, which no limit may be below.
"""

import asyncio
import json

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, select

from service.api.auth import create_key, create_principal
from service.api.context import Context
from service.api.feed import Feed
from service.app import create_app
from service.config import Settings
from service.datasets.schema import Schema
from service.db import Database, new_id, now_ms
from service.jobs.card import Released
from service.jobs.claim import claim, open_data, release_claim
from service.jobs.publish import publish
from service.ledger.check import check_ledger
from service.ledger.costs import release_of
from service.ledger.limits import limit_from
from service.planning.conversion import budget_units
from service.planning.plan import Plan
from service.planning.price import AccountTerms, price_units
from service.tables import accounts, datasets, entries, jobs, limits, lineages
from tests.composition import compose, worst
from tests.harness import fresh_database, job, numeric_schema
from tests.jobs.harness import SOFTWARE

DELTA = 1e-6
FACTS = {
    "rows": 200,
    "columns": 4,
    "storage": "fixed",
    "feature_step": 0.5 / 4095,
    "linf_units": 4095,
    "l2_units": 8190,
    "label": "binary",
}
ENDED = ("succeeded", "cancelled")

# ceiling, cap, a first share, kind of account
BUDGETS = st.sampled_from(
    [
        (1.0, 0.4, 0.3, "renyi"),
        (8.0, 0.4, 0.1, "renyi"),
        (30.0, 2.0, 0.3, "renyi"),
        (1.0, 0.4, 0.3, "gaussian"),
        (8.0, 1.0, 0.3, "gaussian"),
    ]
)
FORMS = st.sampled_from(["whole", "drawn", "laplace", "choices"])
EPSILON = st.sampled_from([0.25, 0.05, 0.35, 0.6, 0.9, 7.0])
WHO, WHICH = st.integers(0, 1), st.integers(0, 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), WHICH, st.integers(0, 2), EPSILON, FORMS),
        st.tuples(st.just("grant"), WHICH, WHO, st.sampled_from(["keep", None, 0.1, 0.3, 0.6])),
        st.tuples(st.just("revoke"), WHICH, WHO),
        st.tuples(st.just("top_up"), st.sampled_from([0.3, 0.5, 0.8, 1.0, 31.0])),
        st.tuples(st.sampled_from(["freeze", "unfreeze"])),
        st.tuples(st.just("submit"), WHICH, WHO, EPSILON, FORMS),
        st.tuples(
            st.just("group"), WHICH, st.integers(0, 2), st.lists(EPSILON, min_size=1, max_size=3)
        ),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("run"), st.sampled_from(["publish", "give up", "crash unopened"])),
    ),
    max_size=20,
)


def asked(dataset, epsilon, form):
    """A job of one of the forms that limits count differently."""
    spec = job(dataset, epsilon)
    match form:
        case "drawn":
            return spec | {"parameters": {"steps": 1, "batch": 1}}
        case "laplace":
            return spec | {"privacy": {"epsilon": epsilon, "delta": 0}}
        case "choices":
            chosen = {"algorithm": "frank-wolfe", "set": {"kind": "l1_ball", "radius": 1.0}}
            return spec | chosen
    return spec


class World:
    """Two datasets of the same people, their owner, two analysts; and the model of it all."""

    def __init__(self, db, app, runner, ceiling, cap, share, kind, *, model=True):
        self.model = model
        self.db, self.context, self.runner = db, app.state.context, runner
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app), base_url="http://epsilond"
        )
        with db.write() as connection:
            people = [
                create_principal(connection, new_id("name"), role)
                for role in ("analyst", "analyst", "owner")
            ]
            self.people = [(p, create_key(connection, p)[1]) for p in people]
            lineage = new_id("lin")
            connection.execute(
                insert(lineages).values(id=lineage, owner_id=people[2], created_ms=now_ms())
            )
            self.datasets = [new_id("ds") for _ in range(2)]
            for dataset in self.datasets:
                connection.execute(
                    insert(datasets).values(
                        id=dataset,
                        owner_id=people[2],
                        lineage_id=lineage,
                        name="rows",
                        state="ready",
                        schema=Schema.model_validate(numeric_schema(3)).model_dump_json(),
                        facts=json.dumps(FACTS),
                        folder=dataset,
                        content_mac="00" * 32,
                        created_ms=now_ms(),
                    )
                )
        budget = {"epsilon": ceiling, "delta": DELTA, "epsilon_cap": cap, "kind": kind}
        made = self.ask(2, "PUT", f"/v1/datasets/{self.datasets[0]}/budget", budget)
        self.account, self.kind, self.ceiling, self.cap = made.json()["account"], kind, ceiling, cap
        self.frozen, self.granted, self.shares = False, set(), {}
        self.jobs = {}  # by id: who, what it releases, whether it is posted
        for which in (0, 1):
            self.grant(which, 0, share)
            self.grant(which, 1, "keep")

    def used(self, epsilon, person=None, more=()):
        """What the jobs of a person, or all, cost at the terms of a limit; and what that holds."""
        terms = AccountTerms.for_ceiling(epsilon, DELTA, self.kind)
        counted = [r for who, r, _ in self.jobs.values() if person in (None, who)] + [*more]
        return sum(price_units(r, terms) for r in counted), budget_units(epsilon, DELTA, self.kind)

    def exceeds(self, *args, **kwargs):
        units, holds = self.used(*args, **kwargs)
        return units > holds

    def ask(self, who, method, path, body=None):
        headers = {"Authorization": f"Bearer {self.people[who][1]}"}
        return self.runner.run(self.http.request(method, path, json=body, headers=headers))

    # each step does it for real, and says whether the model expected what came

    def grant(self, which, who, share):
        body = {} if share == "keep" else {"epsilon_cap": share}
        person = self.people[who][0]
        path = f"/v1/datasets/{self.datasets[which]}/grants/{person}"
        possible = share in ("keep", None) or not self.exceeds(share, person)
        assert self.ask(2, "PUT", path, body).status_code == (200 if possible else 422)
        if possible:
            self.granted.add((which, who))
            if share != "keep":
                self.shares[person] = share

    def revoke(self, which, who):
        path = f"/v1/datasets/{self.datasets[which]}/grants/{self.people[who][0]}"
        expected = 204 if (which, who) in self.granted else 404
        assert self.ask(2, "DELETE", path).status_code == expected
        self.granted.discard((which, who))

    def top_up(self, cap):
        path = f"/v1/datasets/{self.datasets[1]}/budget/top-ups"
        answer = self.ask(2, "POST", path, {"epsilon_cap": cap, "reason": "more"})
        if cap > self.ceiling:
            assert answer.status_code == 409
        elif cap <= self.cap or self.exceeds(cap):
            assert answer.status_code == 422
        else:
            assert answer.status_code == 201
            self.cap = cap

    def freeze(self, frozen=True):
        verb = "freeze" if frozen else "unfreeze"
        path = f"/v1/datasets/{self.datasets[0]}/budget/{verb}"
        answer = self.ask(2, "POST", path, {"reason": "so"})
        assert answer.status_code == (409 if self.frozen == frozen else 200)
        self.frozen = frozen

    def unfreeze(self):
        self.freeze(False)

    def submit(self, which, who, epsilon, form):
        person = self.people[who][0]
        spec = asked(self.datasets[which], epsilon, form)
        quote = self.ask(who, "POST", "/v1/quotes", spec)
        answer = self.ask(who, "POST", "/v1/jobs", spec)
        if who != 2 and (which, who) not in self.granted:
            assert quote.status_code == answer.status_code == 404
            return
        release = release_of(json.dumps(quote.json()["plan"]))
        share = self.shares.get(person)
        expected = (
            "budget_frozen"
            if self.frozen
            else "budget_exceeded"
            if self.exceeds(self.ceiling, more=[release]) or self.exceeds(self.cap, more=[release])
            else "analyst_cap_exceeded"
            if share is not None and self.exceeds(share, person, more=[release])
            else None
        )
        admitted = answer.status_code == 202
        if self.model:
            assert answer.json().get("code") == expected
            assert quote.json()["fits"] == admitted
        if admitted:
            self.jobs[answer.json()["id"]] = (person, release, False)

    def group(self, which, who, epsilons):
        """All are reserved or none, as the batch quote says."""
        person, specs = self.people[who][0], [job(self.datasets[which], e) for e in epsilons]
        quote = self.ask(who, "POST", "/v1/quotes/batch", {"jobs": specs})
        before = len(self._rows())
        answer = self.ask(who, "POST", "/v1/groups", {"jobs": specs})
        if who != 2 and (which, who) not in self.granted:
            assert quote.status_code == answer.status_code == 404
            return
        assert (answer.status_code == 202) == quote.json()["all_fit"]
        made = answer.json()["data"] if answer.status_code == 202 else []
        assert len(made) in (0, len(specs)) and len(self._rows()) == before + len(made)
        for view in made:
            plan = self.ask(who, "GET", f"/v1/jobs/{view['id']}/plan").text
            self.jobs[view["id"]] = (person, release_of(plan), False)

    def _rows(self):
        with self.db.read() as connection:
            mine = select(jobs.c.id).where(jobs.c.account_id == self.account)
            return connection.execute(mine).all()

    def cancel(self, number):
        """Nothing here is ever opened and then cancelled, so every cancel is free."""
        pending = sorted(job_id for job_id, (_, _, posted) in self.jobs.items() if not posted)
        if pending:
            job_id = pending[number % len(pending)]
            answer = self.ask(2, "POST", f"/v1/jobs/{job_id}/cancel")
            assert answer.json()["state"] == "cancelled"
            del self.jobs[job_id]

    def run(self, outcome):
        with self.db.write() as connection:
            mine = select(jobs.c.id).where(
                jobs.c.account_id == self.account, jobs.c.state == "queued"
            )
            job_id = connection.execute(mine.limit(1)).scalar()
            if job_id is None:
                return
            held = claim(connection, 60.0, job_id)
            if outcome != "crash unopened":
                assert open_data(connection, job_id, held.fence)
        keys = self.context.settings.keys
        if outcome == "crash unopened":
            return
        if outcome == "publish":
            with self.db.write() as connection:
                plan = Plan.model_validate_json(held.plan)
                released = Released(vector=(0.0,) * plan.dimension)
                assert publish(connection, keys, job_id, held.fence, released, SOFTWARE)
        if outcome == "give up":  # opened: what follows is charged, also a cancel
            answer = self.ask(2, "POST", f"/v1/jobs/{job_id}/cancel")
            assert answer.json()["state"] == "cancelling"
            with self.db.write() as connection:
                release_claim(connection, self.context.settings, job_id, held.fence)
        who, release, _ = self.jobs[job_id]
        self.jobs[job_id] = who, release, True

    def check(self):
        with self.db.read() as connection:
            row = connection.execute(select(accounts).where(accounts.c.id == self.account)).one()
            held = connection.execute(
                select(limits).where(
                    limits.c.account_id == self.account, limits.c.until_seq.is_(None)
                )
            ).all()
        units, holds = self.used(self.ceiling)
        assert row.posted_units + row.pending_units == units <= row.ceiling_units == holds
        assert row.frozen == self.frozen
        expected = {p: share for p, share in self.shares.items() if share is not None}
        expected |= {None: self.cap} if self.cap < self.ceiling else {}
        assert {limit.principal_id: limit.epsilon for limit in held} == expected
        for limit in held:
            units, holds = self.used(limit.epsilon, limit.principal_id)
            assert limit.posted_units + limit.pending_units == units <= limit.units == holds

    def check_books(self):
        with self.db.read() as connection:
            assert [f for f in check_ledger(connection) if self.account in f] == []
        path = f"/v1/datasets/{self.datasets[0]}/audit/verification"
        verified = self.ask(2, "GET", path).json()
        assert verified["verified"], verified["findings"]

    def true_epsilons(self):
        """(what a limit states, what its jobs truly have at least), for every one there was."""
        with self.db.read() as connection:
            rows = connection.execute(
                select(entries).where(entries.c.account_id == self.account)
            ).all()
            found = connection.execute(
                select(limits).where(limits.c.account_id == self.account)
            ).all()
        void = {row.resolves_seq for row in rows if row.kind == "void"}
        admitted = [row for row in rows if row.kind == "reserve" and row.seq not in void]

        def true(person=None, until=None):
            releases = [
                self.jobs[row.job_id][1]
                for row in admitted
                if person in (None, row.principal_id) and (until is None or row.seq <= until)
            ]
            return compose([pair for one in releases for pair in worst(one)]).epsilon(DELTA)

        yield self.ceiling, true()
        for limit in found:
            yield limit_from(limit).epsilon, true(limit.principal_id, limit.until_seq)


@pytest.fixture(scope="module")
def stack(request, tmp_path_factory):
    kind = getattr(request, "param", "sqlite")
    folder = tmp_path_factory.mktemp(kind)
    with fresh_database(kind, folder) as url:
        db = Database(url, pool_size=4)
        configured = Settings(data_dir=folder, database_url=url)
        app = create_app(configured)
        app.state.context = Context(
            settings=configured,
            db=db,
            hint=lambda: None,
            feed=Feed(db, configured.keys, 10, 10),
        )
        with asyncio.Runner() as runner:
            yield db, app, runner
        db.dispose()


def play(stack, budget, steps, *, model=True):
    """Without the model, steps are only done, and the exact losses are all that is looked at."""
    db, app, runner = stack
    world = World(db, app, runner, *budget, model=model)
    try:
        for name, *arguments in steps:
            getattr(world, name)(*arguments)
            if model:
                world.check()
        if model:
            world.check_books()
        for stated, true in world.true_epsilons():
            assert true <= stated, f"jobs under a limit of {stated} truly leak {true}"
    finally:
        runner.run(world.http.aclose())


QUIET = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}


@pytest.mark.parametrize("stack", ["sqlite"], indirect=True)
@settings(max_examples=40, **QUIET)
@given(budget=BUDGETS, steps=STEPS)
def test_no_sequence_of_calls_exceeds_a_budget_or_a_share(stack, budget, steps):
    play(stack, budget, steps)


@pytest.mark.parametrize("stack", ["postgresql"], indirect=True)
@settings(max_examples=12, **QUIET)
@given(budget=BUDGETS, steps=STEPS)
def test_no_sequence_does_on_postgresql_either(stack, budget, steps):
    play(stack, budget, steps)
