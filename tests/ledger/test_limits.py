"""Every limit is a filter of its own: ceiling, cap and share each count at their own order."""

import json

import pytest
from sqlalchemy import select, update

from service.errors import AnalystCapExceeded, BudgetExceeded, InvalidRequest
from service.jobs.cancel import cancel
from service.ledger.adjust import costs_so_far, set_share, top_up
from service.ledger.admission import standing
from service.ledger.check import check_ledger
from service.ledger.costs import release_of
from service.ledger.limits import open_limits
from service.planning.conversion import best_order, budget_units
from service.planning.price import price_units
from service.tables import entries, jobs, limits
from tests.composition import compose, worst
from tests.jobs.harness import JobHarness

DRAWN = {"parameters": {"steps": 1, "batch": 1}}


@pytest.fixture
def make(db, tmp_path):
    return lambda **kwargs: JobHarness(db, tmp_path, **kwargs)


def limits_now(harness, principal=None):
    with harness.db.read() as connection:
        found = standing(connection, harness.account(), principal or harness.owner).limits
        assert check_ledger(connection) == []
    return {limit.purpose: limit for limit in found}


def release(harness, job):
    return release_of(harness.row(job).plan)


def share(harness, principal, epsilon):
    harness.do(set_share, harness.account().id, principal, epsilon)


def raise_cap(harness, epsilon):
    with harness.db.write() as connection:
        top_up(
            connection,
            harness.account().id,
            cap_epsilon=epsilon,
            principal_id=harness.owner,
            reason="approved",
        )


@pytest.mark.parametrize(
    ("ceiling", "cap", "rows", "epsilon", "true"),
    [(32.0, 0.2, 1000, 6.0, 3.2), (8.0, 0.1, 300, 2.0, 0.48)],
)
def test_a_drawn_batch_does_not_slip_under_a_cap_or_a_share(
    make, ceiling, cap, rows, epsilon, true
):
    """At the ceiling's low order a drawn batch of one costs less than the cap holds, at the cap's own
    far more, and by its exact loss it leaks far more than the cap."""
    harness = make(rows=rows, epsilon=ceiling, cap=cap)
    with pytest.raises(BudgetExceeded) as refusal:
        harness.submit(epsilon, **DRAWN)
    assert refusal.value.members["limit"] == "cap"
    assert refusal.value.members["largest_epsilon"] == cap
    raise_cap(harness, ceiling)
    admitted = release(harness, harness.submit(epsilon, **DRAWN))
    assert price_units(admitted, harness.account().terms) < budget_units(cap, 1e-6)
    assert compose(worst(admitted)).epsilon(1e-6) > true > cap
    analyst = harness.analyst()
    share(harness, analyst, cap)
    with pytest.raises(AnalystCapExceeded):
        harness.submit(epsilon, analyst, **DRAWN)
    assert harness.submit(cap, analyst, **DRAWN)  # what the refusal named does fit


def test_a_reservation_is_counted_at_each_limits_own_order(make):
    harness = make(epsilon=8.0, cap=2.0, rows=500)
    analyst = harness.analyst()
    share(harness, analyst, 1.0)
    job = harness.submit(0.5, analyst, **DRAWN)
    found = limits_now(harness, analyst)
    assert [limit.terms.order for limit in found.values()] == [
        best_order(epsilon, 1e-6) for epsilon in (8.0, 2.0, 1.0)
    ]
    for limit in found.values():
        assert limit.pending_units == price_units(release(harness, job), limit.terms)
    assert len({limit.pending_units for limit in found.values()}) == 3
    harness.finish(job)
    for purpose, limit in limits_now(harness, analyst).items():
        assert (limit.posted_units, limit.pending_units) == (found[purpose].pending_units, 0)
    harness.do(cancel, harness.submit(0.1, analyst))
    for purpose, limit in limits_now(harness, analyst).items():
        assert (limit.posted_units, limit.pending_units) == (found[purpose].pending_units, 0)


def test_an_entry_stores_its_cost_at_every_limit(make):
    harness = make(epsilon=8.0, cap=2.0)
    job = harness.submit(0.5, **DRAWN)
    with harness.db.read() as connection:
        row = connection.execute(select(entries).where(entries.c.kind == "reserve")).one()
    costs = json.loads(row.costs)
    for limit in limits_now(harness).values():
        assert costs[limit.terms.key] == price_units(release(harness, job), limit.terms)
    assert costs[harness.account().terms.key] == row.units


def test_a_top_up_counts_earlier_jobs_anew_at_the_new_order(make):
    harness = make(epsilon=8.0, cap=1.0, rows=500)
    done, waiting, gone = (harness.submit(0.3, **DRAWN) for _ in range(3))
    harness.finish(done)
    harness.do(cancel, gone)
    old = limits_now(harness)["cap"]
    raise_cap(harness, 2.0)
    new = limits_now(harness)["cap"]
    assert new.terms.order == best_order(2.0, 1e-6) != old.terms.order
    assert new.posted_units == price_units(release(harness, done), new.terms)
    assert new.pending_units == price_units(release(harness, waiting), new.terms)
    assert new.posted_units != old.posted_units
    assert old.in_advance and not new.in_advance
    harness.finish(waiting)  # admitted under the old cap, posted under the new one
    assert limits_now(harness)["cap"].posted_units == new.posted_units + new.pending_units
    raise_cap(harness, 8.0)
    assert "cap" not in limits_now(harness)


def test_a_top_up_prices_under_its_lock_only_what_came_since(make, monkeypatch):
    harness = make(epsilon=8.0, cap=1.0)
    harness.submit(0.1, **DRAWN)
    with harness.db.read() as connection:
        known = costs_so_far(connection, harness.account(), 2.0)
    later = harness.submit(0.1)
    priced = []

    def spy(connection, job_id, costs):
        priced.append(job_id)
        return lambda terms: 7

    monkeypatch.setattr("service.ledger.adjust.cost_of", spy)
    with harness.db.write() as connection:
        top_up(
            connection,
            harness.account().id,
            cap_epsilon=2.0,
            principal_id=harness.owner,
            reason="approved",
            known=known,
        )
        cap, _ = open_limits(connection, harness.account().id)
    assert priced == [later]
    assert cap.pending_units == 7 + sum(known.pending.values())


def test_a_share_counts_what_the_analyst_had_committed_and_nobody_elses(make):
    harness = make(epsilon=4.0)
    analyst, other = harness.analyst(), harness.analyst()
    mine, theirs = harness.submit(0.2, analyst, **DRAWN), harness.submit(0.2, other)
    share(harness, analyst, 0.5)
    found = limits_now(harness, analyst)["share"]
    assert found.pending_units == price_units(release(harness, mine), found.terms)
    assert not found.in_advance
    assert "share" not in limits_now(harness, other)
    harness.finish(theirs)
    assert limits_now(harness, analyst)["share"].posted_units == 0
    with pytest.raises(InvalidRequest, match="already cost"):
        share(harness, analyst, 0.01)
    assert limits_now(harness, analyst)["share"] == found
    share(harness, analyst, None)
    assert "share" not in limits_now(harness, analyst)


def test_a_limit_is_guaranteed_if_it_was_fixed_before_the_jobs_that_it_covers(make):
    harness = make(epsilon=4.0, cap=2.0)
    early, late = harness.analyst(), harness.analyst()
    harness.submit(0.1, late)
    for analyst in (early, late):
        share(harness, analyst, 0.5)
    assert limits_now(harness)["cap"].in_advance
    assert limits_now(harness, early)["share"].in_advance
    assert not limits_now(harness, late)["share"].in_advance


def test_the_database_itself_refuses_an_exceeded_limit(make):
    harness = make(epsilon=4.0, cap=2.0)
    with pytest.raises(Exception, match="within_units"), harness.db.write() as connection:
        connection.execute(update(limits).values(pending_units=limits.c.units + 1))


def test_a_group_is_reserved_whole_or_not_at_all(make):
    harness = make(epsilon=1.0, cap=0.5)
    before = limits_now(harness)
    with pytest.raises(BudgetExceeded, match="job 3 of 3, and so none of them") as refusal:
        harness.submit_all([harness.spec(0.3), harness.spec(0.2), harness.spec(0.4)], group=True)
    assert refusal.value.members["index"] == 2
    assert limits_now(harness) == before
    with harness.db.read() as connection:
        assert connection.execute(select(jobs)).all() == []
    done = harness.submit_all([harness.spec(0.3), harness.spec(0.2)], group=True)
    with harness.db.read() as connection:
        rows = connection.execute(select(jobs).order_by(jobs.c.entry_seq)).all()
    assert [row.group_id for row in rows] == [done.id, done.id]
    assert [json.loads(row.spec)["privacy"]["epsilon"] for row in rows] == [0.3, 0.2]
    assert limits_now(harness)["cap"].pending_units > 0


@pytest.mark.parametrize("kind", ["renyi", "gaussian"])
@pytest.mark.parametrize("batch", [None, 1, 20])
def test_what_a_refusal_says_still_fits_does_fit(make, kind, batch):
    harness = make(epsilon=3.0, cap=1.5, kind=kind, rows=400)
    analyst = harness.analyst()
    share(harness, analyst, 0.9)
    changes = {} if batch is None else {"parameters": {"steps": 20, "batch": batch}}
    harness.submit(0.4, analyst, **changes)
    with pytest.raises(AnalystCapExceeded) as refusal:
        harness.submit(0.9, analyst, **changes)
    largest = refusal.value.members["largest_epsilon"]
    assert 0 < largest < 0.9
    harness.submit(largest, analyst, **changes)


def test_the_check_finds_a_limit_whose_balance_does_not_follow(make):
    harness = make(epsilon=4.0, cap=2.0)
    harness.submit(0.5)
    with harness.db.write() as connection:
        connection.execute(update(limits).values(pending_units=limits.c.pending_units - 1))
    with harness.db.read() as connection:
        (finding,) = check_ledger(connection)
    assert "the cap of epsilon 2.0 has 0 posted" in finding


def test_the_units_of_a_cap_are_those_of_its_epsilon(make):
    cap = limits_now(make(epsilon=4.0, cap=2.0))["cap"]
    assert (cap.units, cap.epsilon) == (budget_units(2.0, 1e-6), 2.0)
