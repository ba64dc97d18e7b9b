"""Whatever owners and analysts do, in whatever order: no budget and no share is ever exceeded.

The real API, without its processes, against a plain model of what it should admit.
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
from service.jobs.claim import claim, open_data, release_claim
from service.jobs.publish import publish
from service.ledger.check import check_ledger
from service.planning.conversion import budget_units
from service.tables import accounts, datasets, jobs, lineages, shares
from tests.harness import fresh_database, job, numeric_schema

CEILING, DELTA = 1.0, 1e-6
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

EPSILON = st.sampled_from([0.25, 0.05, 0.35, 0.6, 0.9])
WHO, WHICH = st.integers(0, 1), st.integers(0, 1)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("submit"), WHICH, st.integers(0, 2), EPSILON),
        st.tuples(st.just("grant"), WHICH, WHO, st.sampled_from(["keep", None, 0.1, 0.3, 0.6])),
        st.tuples(st.just("revoke"), WHICH, WHO),
        st.tuples(st.just("top_up"), st.sampled_from([0.3, 0.5, 0.8, 1.0, 1.2])),
        st.tuples(st.sampled_from(["freeze", "unfreeze"])),
        st.tuples(st.just("submit"), WHICH, WHO, EPSILON),
        st.tuples(st.just("cancel"), st.integers(0, 9)),
        st.tuples(st.just("run"), st.sampled_from(["publish", "give up", "crash unopened"])),
    ),
    max_size=30,
)


class World:
    """Two datasets of the same people, their owner, two analysts; and the model of it all."""

    def __init__(self, db, app, runner):
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
        budget = {"epsilon": CEILING, "delta": DELTA, "epsilon_cap": 0.4}
        made = self.ask(2, "PUT", f"/v1/datasets/{self.datasets[0]}/budget", budget)
        self.account = made.json()["account"]
        self.cap = budget_units(0.4, DELTA)
        self.frozen, self.granted, self.caps = False, set(), {}
        self.posted, self.pending, self.committed = 0, {}, dict.fromkeys(people, 0)
        for which in (0, 1):
            self.grant(which, 0, 0.3)
            self.grant(which, 1, "keep")

    def ask(self, who, method, path, body=None):
        headers = {"Authorization": f"Bearer {self.people[who][1]}"}
        return self.runner.run(self.http.request(method, path, json=body, headers=headers))

    # each step does it for real, and says whether the model expected what came

    def grant(self, which, who, cap):
        body = {} if cap == "keep" else {"epsilon_cap": cap}
        person = self.people[who][0]
        path = f"/v1/datasets/{self.datasets[which]}/grants/{person}"
        units = None if cap in ("keep", None) else budget_units(cap, DELTA)
        possible = units is None or self.committed[person] <= units
        assert self.ask(2, "PUT", path, body).status_code == (200 if possible else 422)
        if possible:
            self.granted.add((which, who))
            if cap != "keep":
                self.caps[person] = units

    def revoke(self, which, who):
        path = f"/v1/datasets/{self.datasets[which]}/grants/{self.people[who][0]}"
        expected = 204 if (which, who) in self.granted else 404
        assert self.ask(2, "DELETE", path).status_code == expected
        self.granted.discard((which, who))

    def top_up(self, cap):
        path = f"/v1/datasets/{self.datasets[1]}/budget/top-ups"
        answer = self.ask(2, "POST", path, {"epsilon_cap": cap, "reason": "more"})
        if cap > CEILING:
            assert answer.status_code == 409
        elif budget_units(cap, DELTA) <= self.cap:
            assert answer.status_code == 422
        else:
            assert answer.status_code == 201
            self.cap = budget_units(cap, DELTA)

    def freeze(self, frozen=True):
        verb = "freeze" if frozen else "unfreeze"
        path = f"/v1/datasets/{self.datasets[0]}/budget/{verb}"
        answer = self.ask(2, "POST", path, {"reason": "so"})
        assert answer.status_code == (409 if self.frozen == frozen else 200)
        self.frozen = frozen

    def unfreeze(self):
        self.freeze(False)

    def submit(self, which, who, epsilon):
        person = self.people[who][0]
        spec = job(self.datasets[which], epsilon)
        quote = self.ask(who, "POST", "/v1/quotes", spec)
        answer = self.ask(who, "POST", "/v1/jobs", spec)
        if who != 2 and (which, who) not in self.granted:
            assert quote.status_code == answer.status_code == 404
            return
        price = quote.json()["plan"]["price"]["units"]
        spent = self.posted + sum(units for units, _ in self.pending.values())
        cap = self.caps.get(person)
        expected = (
            "budget_frozen"
            if self.frozen
            else "budget_exceeded"
            if spent + price > self.cap
            else "analyst_cap_exceeded"
            if cap is not None and self.committed[person] + price > cap
            else None
        )
        assert answer.json().get("code") == expected
        assert quote.json()["fits"] == (expected is None)
        if expected is None:
            self.pending[answer.json()["id"]] = (price, person)
            self.committed[person] += price

    def cancel(self, number):
        """Nothing here is ever opened and then cancelled, so every cancel is free."""
        if self.pending:
            job_id = sorted(self.pending)[number % len(self.pending)]
            answer = self.ask(2, "POST", f"/v1/jobs/{job_id}/cancel")
            assert answer.json()["state"] == "cancelled"
            self._give_back(job_id)

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
                assert publish(connection, keys, job_id, held.fence, {"coef_": []}, {})
        if outcome == "give up":  # opened: what follows is charged, also a cancel
            answer = self.ask(2, "POST", f"/v1/jobs/{job_id}/cancel")
            assert answer.json()["state"] == "cancelling"
            with self.db.write() as connection:
                release_claim(connection, self.context.settings, job_id, held.fence)
        self.posted += self.pending.pop(job_id)[0]

    def _give_back(self, job_id):
        units, person = self.pending.pop(job_id)
        self.committed[person] -= units

    def check(self):
        with self.db.read() as connection:
            row = connection.execute(select(accounts).where(accounts.c.id == self.account)).one()
            held = connection.execute(select(shares).where(shares.c.account_id == row.id)).all()
        pending = sum(units for units, _ in self.pending.values())
        assert (row.posted_units, row.pending_units) == (self.posted, pending)
        assert row.posted_units + row.pending_units <= row.cap_units == self.cap
        assert row.cap_units <= row.ceiling_units and row.frozen == self.frozen
        for share in held:
            assert share.committed_units == self.committed[share.principal_id]
            assert share.cap_units == self.caps.get(share.principal_id)
            assert share.cap_units is None or share.committed_units <= share.cap_units


@pytest.fixture(scope="module")
def stack(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    with fresh_database(request.param, folder) as url:
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


def play(stack, steps):
    db, app, runner = stack
    world = World(db, app, runner)
    for name, *arguments in steps:
        getattr(world, name)(*arguments)
        world.check()
    with db.read() as connection:
        assert [f for f in check_ledger(connection) if world.account in f] == []
    verified = world.ask(2, "GET", f"/v1/datasets/{world.datasets[0]}/audit/verification").json()
    assert verified["verified"], verified["findings"]
    runner.run(world.http.aclose())


QUIET = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}


@pytest.mark.parametrize("stack", ["sqlite"], indirect=True)
@settings(max_examples=60, **QUIET)
@given(steps=STEPS)
def test_no_sequence_of_calls_exceeds_a_budget_or_a_share(stack, steps):
    play(stack, steps)


@pytest.mark.parametrize("stack", ["postgresql"], indirect=True)
@settings(max_examples=20, **QUIET)
@given(steps=STEPS)
def test_no_sequence_does_on_postgresql_either(stack, steps):
    play(stack, steps)
