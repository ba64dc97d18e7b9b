"""An account of an earlier version, whose cap and shares were counted at the ceiling's order."""

import json
import secrets

import pytest
from sqlalchemy import create_engine, select, text

from service.db import Database, migrate
from service.ledger.accounts import account_from
from service.ledger.admission import standings
from service.ledger.check import check_ledger
from service.ledger.statement import budget
from service.planning.catalog import plan
from service.planning.conversion import best_order, budget_units
from service.planning.price import AccountTerms, price_units
from service.planning.spec import JobSpec
from service.tables import accounts, entries
from tests.harness import DATABASES, administer, database_named
from tests.planning.cases import facts

CEILING, DELTA = 32.0, 1e-6
TERMS = AccountTerms.for_ceiling(CEILING, DELTA)


def planned(epsilon, **parameters):
    spec = {
        "dataset": "ds_old",
        "algorithm": "gradient-descent",
        "loss": "logistic",
        "privacy": {"epsilon": epsilon},
        "parameters": parameters,
    }
    about = facts(columns=4).model_copy(update={"rows": 1000, "account": TERMS})
    return plan(JobSpec.model_validate(spec), about)


DRAWN, PLAIN = planned(6.0, steps=1, batch=1), planned(0.05, steps=2)


@pytest.fixture(params=DATABASES)
def old(request, tmp_path):
    """The URL of a database as an earlier version left it, without rows."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path}/old.db"
        migrate(url, "0002")
        yield url
        return
    name = f"epsilond_old_{secrets.token_hex(6)}"
    administer(f"CREATE DATABASE {name}")
    try:
        migrate(database_named(name), "0002")
        yield database_named(name)
    finally:
        administer(f"DROP DATABASE {name} WITH (FORCE)")


def fill(url, cap, shares, history):
    """Jobs as (plan, analyst, how it ended); balances as the earlier version kept them."""
    engine = create_engine(url)
    with engine.begin() as connection:

        def insert(table, **values):
            names = ", ".join(values)
            marks = ", ".join(f":{name}" for name in values)
            connection.execute(text(f"INSERT INTO {table} ({names}) VALUES ({marks})"), values)

        for person, role in (("own", "owner"), ("ann", "analyst"), ("bob", "analyst")):
            insert("principals", id=person, name=person, role=role, created_ms=1)
        insert("lineages", id="lin", owner_id="own", created_ms=1)
        insert(
            "datasets",
            id="ds_old",
            owner_id="own",
            lineage_id="lin",
            name="d",
            state="ready",
            schema="{}",
            chain_length=0,
            created_ms=1,
        )
        units = {None: 0, "post": 0, "void": 0}
        committed = {"ann": 0, "bob": 0}
        rows = [("open", budget_units(cap, DELTA), None, "own", None)]
        for number, (made, who, ended) in enumerate(history):
            price = made.price.units
            rows.append(("reserve", price, None, who, f"job_{number}"))
            if ended is not None:
                rows.append((ended, price, len(rows), who, f"job_{number}"))
            units[ended] += price
            committed[who] += price if ended != "void" else 0
        insert(
            "accounts",
            id="acc_1",
            lineage_id="lin",
            terms=TERMS.model_dump_json(),
            epsilon=CEILING,
            cap_epsilon=cap,
            ceiling_units=budget_units(CEILING, DELTA),
            cap_units=budget_units(cap, DELTA),
            posted_units=units["post"],
            pending_units=units[None],
            entries=len(rows),
            frozen=False,
            created_ms=1,
        )
        for number, (made, who, _) in enumerate(history):
            insert(
                "jobs",
                id=f"job_{number}",
                dataset_id="ds_old",
                principal_id=who,
                account_id="acc_1",
                entry_seq=2,
                state="queued",
                spec=made.spec.model_dump_json(),
                plan=made.canonical(),
                plan_digest=made.digest(),
                metadata="{}",
                fence=0,
                attempts=0,
                steps_done=0,
                steps_total=1,
                events=0,
                created_ms=1,
            )
        for seq, (kind, price, resolves, who, job) in enumerate(rows, start=1):
            insert(
                "entries",
                account_id="acc_1",
                seq=seq,
                kind=kind,
                units=price,
                resolves_seq=resolves,
                principal_id=who,
                dataset_id="ds_old",
                job_id=job,
                reason="r",
                created_ms=1,
            )
        for person, share in shares.items():
            insert(
                "shares",
                account_id="acc_1",
                principal_id=person,
                cap_units=None if share is None else budget_units(share, DELTA),
                committed_units=committed[person],
            )
    engine.dispose()


def migrated(url):
    migrate(url)
    db = Database(url, pool_size=1)
    with db.read() as connection:
        assert check_ledger(connection) == []
        account = account_from(connection.execute(select(accounts)).one())
        costs = connection.execute(select(entries).where(entries.c.kind == "reserve")).all()
        now = standings(connection, account, ["ann", "bob"])
        found = {who: {limit.purpose: limit for limit in one.limits} for who, one in now.items()}
        said = budget(connection, now["ann"])
    db.dispose()
    return found, costs, said


def test_an_old_cap_that_was_passed_at_its_own_order_admits_nothing_more(old):
    assert DRAWN.price.units < budget_units(0.2, DELTA)  # which is how it had been admitted
    fill(old, 0.2, {"ann": 0.2, "bob": None}, [(DRAWN, "ann", "post"), (PLAIN, "bob", None)])
    found, costs, said = migrated(old)
    cap, share = found["ann"]["cap"], found["ann"]["share"]
    assert cap.terms.order == share.terms.order == best_order(0.2, DELTA)
    assert share.posted_units == price_units(DRAWN.release, share.terms) > share.units
    assert cap.posted_units == share.posted_units
    assert cap.pending_units == price_units(PLAIN.release, cap.terms)
    assert cap.overdrawn and share.overdrawn and not (cap.in_advance or share.in_advance)
    assert "share" not in found["bob"]
    for row, made in zip(costs, (DRAWN, PLAIN), strict=True):
        stored = json.loads(row.costs)
        assert stored[TERMS.key] == row.units == made.price.units
        assert stored[cap.terms.key] == price_units(made.release, cap.terms)
        assert row.epsilon == made.guarantee.epsilon
    assert said["epsilon_remaining"] == 0.0
    assert (
        said["epsilon_spent"] > 5.9
    )  # and not what the ceiling's units would read at another order


def test_an_old_account_within_its_limits_goes_on(old):
    history = [(PLAIN, "ann", "post"), (PLAIN, "ann", "void"), (PLAIN, "bob", None)]
    fill(old, 1.0, {"ann": 0.5, "bob": 0.3}, history)
    found, _, said = migrated(old)
    for limit in (*found["ann"].values(), *found["bob"].values()):
        assert limit.remaining_units > 0 and not limit.overdrawn
    assert found["ann"]["share"].posted_units > 0 == found["ann"]["share"].pending_units
    assert found["bob"]["share"].pending_units > 0 == found["bob"]["share"].posted_units
    assert said["epsilon_cap"] == 1.0 and 0 < said["epsilon_remaining"] < 0.5


def test_an_old_account_at_its_ceiling_has_no_cap(old):
    fill(old, CEILING, {}, [(DRAWN, "ann", "post")])
    found, _, said = migrated(old)
    assert set(found["ann"]) == {"ceiling"} and said["epsilon_cap"] == CEILING
