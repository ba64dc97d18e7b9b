"""What an unfinished start costs its job: nothing if it was cut short, an attempt if it failed."""

import json
import os
import threading

import numpy as np
import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError, OperationalError

from service.jobs.cancel import cancel
from service.jobs.claim import PAUSE_SECONDS_MAX, open_data, release_claim
from service.jobs.supervise import NOTHING, claim_line, follow
from service.tables import job_events, jobs, models
from workers import execute, progress
from workers.execute import execute_one

ALGORITHM = "gradient-descent"


def price(harness, job):
    return json.loads(harness.row(job).plan)["price"]["units"]


def start(harness, job, opened=True):
    harness.make_due()
    claimed = harness.claim(job)
    if opened:
        assert harness.do(open_data, job, claimed.fence)
    return claimed


def run_of(monkeypatch, run):
    monkeypatch.setitem(execute.RUNS, ALGORITHM, run)


def raising(error):
    def run(plan, data, steps):
        raise error

    return run


@pytest.mark.parametrize("opened", [False, True])
def test_a_start_that_was_cut_short_uses_up_no_attempt(harness, opened):
    job = harness.submit()
    key = harness.row(job).wrapped_key
    for _ in range(3 * harness.settings.attempts_max):
        start(harness, job, opened)
        harness.expire()
    row = harness.row(job)
    assert (row.state, row.attempts, row.wrapped_key) == ("queued", 0, key)
    assert harness.balance() == (0, price(harness, job))


@pytest.mark.parametrize("opened", [False, True])
def test_runs_that_fail_by_themselves_are_bounded(harness, opened):
    job = harness.submit()
    for _ in range(harness.settings.attempts_max):
        held = start(harness, job, opened)
        with harness.db.write() as connection:
            release_claim(connection, harness.settings, job, held.fence, failed=True)
    row = harness.row(job)
    assert (row.state, row.error, row.wrapped_key) == ("failed", "attempts_exhausted", None)
    assert harness.balance() == (price(harness, job) if opened else 0, 0)


@pytest.mark.parametrize("opened", [False, True])
def test_a_job_that_kills_whoever_runs_it_ends_too(harness, opened):
    job = harness.submit()
    for _ in range(harness.settings.starts_max):
        start(harness, job, opened)
        harness.expire()
    assert (harness.row(job).state, harness.row(job).error) == ("failed", "attempts_exhausted")
    assert harness.balance() == (price(harness, job) if opened else 0, 0)


def test_a_job_keeps_its_place_after_one_loss_and_waits_twice_as_long_after_each_later_one(harness):
    job, other = harness.submit(), harness.submit()
    held = harness.claim()
    assert held.id == job
    harness.expire()
    assert [harness.claim().id, harness.claim().id] == [job, other]
    pauses = []
    for _ in range(15):
        with harness.db.write() as connection:
            release_claim(connection, harness.settings, job, harness.row(job).fence)
        assert harness.claim() is None  # others come first, and this one later
        with harness.db.read() as connection:
            query = select(job_events.c.created_ms).where(job_events.c.job_id == job)
            released = connection.execute(query.order_by(job_events.c.seq.desc())).scalar()
        pauses.append(round((harness.row(job).hint_ms - released) / 1000))
        start(harness, job)
    assert pauses == [min(2**n, PAUSE_SECONDS_MAX) for n in range(15)]


def test_a_run_that_raises_is_counted_and_what_the_database_or_disk_did_is_not(
    harness, monkeypatch
):
    job = harness.submit()
    for error, attempts in (
        (OperationalError("SELECT 1", {}, Exception()), 0),
        (FileNotFoundError("a folder that is not mounted"), 0),
        (ValueError("a bug"), 1),
        (IntegrityError("INSERT", {}, Exception()), 2),
    ):
        run_of(monkeypatch, raising(error))
        harness.make_due()
        assert execute_one(harness.db, harness.settings)
        assert (harness.row(job).state, harness.row(job).attempts) == ("queued", attempts)
    harness.make_due()
    assert execute_one(harness.db, harness.settings)
    assert (harness.row(job).state, harness.row(job).error) == ("failed", "attempts_exhausted")


def test_a_job_that_survived_many_losses_releases_the_same_model(harness):
    job, twin = harness.submit(), harness.submit()
    with harness.db.write() as connection:  # the same key and Plan, never disturbed
        row = harness.row(job)
        key = harness.settings.keys.unwrap(row.wrapped_key, job)
        wrapped = harness.settings.keys.wrap(key, twin)
        connection.execute(update(jobs).where(jobs.c.id == twin).values(wrapped_key=wrapped))
    for _ in range(2 * harness.settings.attempts_max):
        start(harness, job)
        harness.expire()
    harness.make_due()
    while execute_one(harness.db, harness.settings):
        pass
    with harness.db.read() as connection:
        cards = {r.job_id: json.loads(r.card) for r in connection.execute(select(models))}
    assert np.array_equal(cards[job]["coef_"], cards[twin]["coef_"])


def test_a_run_that_hangs_is_counted_and_its_process_ends(harness, monkeypatch):
    gone = threading.Event()
    monkeypatch.setattr(progress, "HUNG_SECONDS", 0.0)
    monkeypatch.setattr(os, "_exit", lambda code: gone.set())
    settings = harness.settings.model_copy(update={"job_seconds_max": 1, "lease_seconds": 0.3})
    job = harness.submit()
    run_of(monkeypatch, lambda plan, data, steps: gone.wait(60) and np.zeros(plan.dimension))
    assert execute_one(harness.db, settings)
    assert gone.is_set()
    assert (harness.row(job).state, harness.row(job).attempts) == ("queued", 1)


def test_a_worker_that_dies_gives_its_job_back_at_once(harness):
    job = harness.submit()
    held = start(harness, job)
    follow([claim_line(job, held.fence), b"job_cut_of"], harness.db, harness.settings)
    assert (harness.row(job).state, harness.row(job).attempts) == ("queued", 0)


def test_a_worker_that_dies_with_nothing_in_hand_gives_nothing_back(harness):
    job = harness.submit()
    held = start(harness, job)
    follow([claim_line(job, held.fence), NOTHING], harness.db, harness.settings)
    assert harness.row(job).state == "running"


def test_a_job_that_was_claimed_again_is_not_given_back(harness):
    job = harness.submit()
    stale = start(harness, job)
    harness.expire()
    fresh = start(harness, job)
    follow([claim_line(job, stale.fence)], harness.db, harness.settings)
    row = harness.row(job)
    assert (row.state, row.fence) == ("running", fresh.fence)


def test_a_cancelled_job_whose_worker_died_ends_at_once(harness):
    job = harness.submit()
    held = start(harness, job)
    harness.do(cancel, job)
    follow([claim_line(job, held.fence)], harness.db, harness.settings)
    assert harness.row(job).state == "cancelled"
    assert harness.balance() == (price(harness, job), 0)
