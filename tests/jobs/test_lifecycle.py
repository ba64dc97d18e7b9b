"""Claim, fence, lease, cancel, reap and publish, step by step, on both databases."""

import json
import time

import pytest
from sqlalchemy import select, update

import workers.execute
from service.datasets.upload import delete_dataset_data
from service.errors import JobAlreadyFinished
from service.jobs.cancel import cancel
from service.jobs.claim import open_data, release_claim, renew_lease
from service.jobs.maintenance import reap
from service.jobs.publish import PlanChangedError
from service.jobs.states import ENDED, TRANSITIONS
from service.jobs.transitions import Move, TransitionError, transition
from service.tables import audit_records, datasets, job_events, jobs, models
from workers.execute import execute_one
from workers.progress import Progress


def price(harness, job):
    return json.loads(harness.row(job).plan)["price"]["units"]


@pytest.mark.parametrize("before", TRANSITIONS)
def test_a_state_leads_only_where_the_table_says(harness, before):
    job = harness.submit()
    for after in TRANSITIONS:
        with harness.db.write() as connection:
            connection.execute(update(jobs).values(state=before, wrapped_key=b"key"))
            connection.execute(job_events.delete().where(job_events.c.seq > 1))
            connection.execute(update(jobs).values(events=1))
        if after in TRANSITIONS[before]:
            row = harness.do(transition, harness.row(job), Move(after))
            assert (row.state, row.events) == (after, 2)
            assert (row.wrapped_key is None) == (after in ENDED)
        else:
            with pytest.raises(TransitionError, match=f"cannot become {after}"):
                harness.do(transition, harness.row(job), Move(after))
            assert harness.row(job).state == before


def test_jobs_are_claimed_once_and_oldest_first(harness):
    first = harness.submit()
    time.sleep(0.005)
    second = harness.submit()
    assert [harness.claim().id, harness.claim().id, harness.claim()] == [first, second, None]
    assert harness.claim(first) is None


def test_a_published_job_posts_its_price_and_erases_its_key(harness):
    job = harness.submit()
    assert harness.row(job).wrapped_key is not None
    claimed = harness.claim()
    assert harness.do(open_data, job, claimed.fence)
    assert harness.publish(job, claimed.fence)
    row = harness.row(job)
    assert (row.state, row.wrapped_key, row.lease_ms) == ("succeeded", None, None)
    assert harness.balance() == (price(harness, job), 0)


def test_nothing_is_published_twice_or_by_a_stale_fence(harness):
    job = harness.submit()
    stale = harness.claim()
    harness.do(open_data, job, stale.fence)
    harness.expire()
    fresh = harness.claim()
    assert fresh.fence > stale.fence
    assert not harness.do(renew_lease, job, stale.fence, 1, 5.0)
    assert not harness.do(open_data, job, stale.fence)
    assert not harness.publish(job, stale.fence, (0.0, 6.0, 6.0, 6.0))
    assert harness.publish(job, fresh.fence, (0.0, 7.0, 7.0, 7.0))
    assert not harness.publish(job, fresh.fence, (0.0, 8.0, 8.0, 8.0))
    with harness.db.read() as connection:
        cards = connection.execute(select(models.c.card)).scalars().all()
        assert [json.loads(card)["coef_"] for card in cards] == [[7.0] * 3]
        assert len(connection.execute(select(audit_records)).all()) == 1
    assert harness.balance() == (price(harness, job), 0)


def test_nothing_is_published_before_the_data_was_marked_open(harness):
    job = harness.submit()
    assert not harness.publish(job, harness.claim().fence)
    assert harness.row(job).state == "running"


def test_a_plan_that_was_tampered_with_is_not_published(harness):
    job = harness.submit()
    claimed = harness.claim()
    harness.do(open_data, job, claimed.fence)
    with harness.db.write() as connection:
        connection.execute(update(jobs).values(plan=jobs.c.plan + " "))
    with pytest.raises(PlanChangedError, match="does not have the digest"):
        harness.publish(job, claimed.fence)
    assert harness.balance()[0] == 0


@pytest.mark.parametrize(
    ("reached", "state", "charged"),
    [
        ("queued", "cancelled", False),
        ("claimed", "cancelled", False),
        ("opened", "cancelling", True),
        ("opened, then requeued", "cancelled", True),
    ],
)
def test_cancel_is_free_until_the_data_was_opened(harness, reached, state, charged):
    job = harness.submit()
    if reached != "queued":
        claimed = harness.claim()
    if reached.startswith("opened"):
        harness.do(open_data, job, claimed.fence)
    if reached.endswith("requeued"):
        harness.expire()
    harness.do(cancel, job)
    assert harness.row(job).state == state
    if state == "cancelling":  # its worker notices, or is dead and reaped: the same end
        assert not harness.do(renew_lease, job, claimed.fence, 1, 5.0)
        harness.do(release_claim, harness.settings, job, claimed.fence)
        assert harness.row(job).state == "cancelled"
    assert harness.balance() == (price(harness, job) if charged else 0, 0)
    with pytest.raises(JobAlreadyFinished):
        harness.do(cancel, job)


def test_a_cancelling_job_whose_worker_died_is_reaped_and_charged(harness):
    job = harness.submit()
    claimed = harness.claim()
    harness.do(open_data, job, claimed.fence)
    harness.do(cancel, job)
    harness.expire()
    assert harness.row(job).state == "cancelled"
    assert harness.balance() == (price(harness, job), 0)


def test_a_job_cancelled_before_opening_cannot_be_opened_after(harness):
    job = harness.submit()
    claimed = harness.claim()
    harness.do(cancel, job)
    assert not harness.do(open_data, job, claimed.fence)
    assert harness.balance() == (0, 0)


def test_a_live_lease_is_left_alone(harness):
    harness.submit()
    harness.claim()
    assert reap(harness.db, harness.settings) == 0


def test_a_job_whose_data_is_deleted_before_opening_fails_for_free(harness):
    job = harness.submit()
    claimed = harness.claim()
    with harness.db.write() as connection:
        connection.execute(update(datasets).values(state="deleted"))
    assert not harness.do(open_data, job, claimed.fence)
    assert (harness.row(job).state, harness.row(job).error) == ("failed", "data_deleted")
    assert harness.balance() == (0, 0)


def test_a_job_that_lost_its_worker_and_then_its_data_fails_and_is_charged(harness):
    job = harness.submit()
    harness.do(open_data, job, harness.claim().fence)
    harness.expire()
    with harness.db.write() as connection:
        connection.execute(update(datasets).values(state="deleted"))
    assert not harness.do(open_data, job, harness.claim().fence)
    assert (harness.row(job).state, harness.row(job).error) == ("failed", "data_deleted")
    assert harness.balance() == (price(harness, job), 0)


def test_a_job_that_reads_its_data_when_they_are_deleted_ends_and_publishes(harness, monkeypatch):
    job, honest = harness.submit(), Progress.step
    folder = harness.settings.data_dir / "datasets" / harness.dataset

    def step(progress, *arguments):
        if folder.exists():
            delete_dataset_data(harness.db, harness.settings, harness.dataset)
        honest(progress, *arguments)

    monkeypatch.setattr(Progress, "step", step)
    assert execute_one(harness.db, harness.settings)
    assert not folder.exists()
    assert harness.row(job).state == "succeeded"
    assert harness.balance() == (price(harness, job), 0)


def test_a_job_whose_data_are_deleted_as_it_opens_them_fails_and_is_charged(harness, monkeypatch):
    job, honest = harness.submit(), workers.execute.open_arrays

    def open_arrays(folder):
        delete_dataset_data(harness.db, harness.settings, harness.dataset)
        return honest(folder)

    monkeypatch.setattr(workers.execute, "open_arrays", open_arrays)
    assert execute_one(harness.db, harness.settings)
    assert harness.row(job).state == "queued"
    harness.make_due()
    assert execute_one(harness.db, harness.settings)
    assert (harness.row(job).state, harness.row(job).error) == ("failed", "data_deleted")
    assert harness.balance() == (price(harness, job), 0)


def test_each_record_names_the_one_before(harness):
    for _ in range(3):
        job = harness.submit(0.05)
        claimed = harness.claim()
        harness.do(open_data, job, claimed.fence)
        harness.publish(job, claimed.fence)
    with harness.db.read() as connection:
        rows = connection.execute(select(audit_records).order_by(audit_records.c.seq)).all()
        head = connection.execute(select(datasets.c.chain_head)).scalar_one()
    bodies = [json.loads(row.body) for row in rows]
    assert [b["seq"] for b in bodies] == [1, 2, 3]
    assert [b["previous"] for b in bodies] == ["0" * 64, rows[0].hash, rows[1].hash]
    assert head == rows[2].hash


def test_a_worker_leaves_a_job_whose_data_was_deleted_failed_and_free(harness):
    """Not rolled back with the worker's attempt, which would be repeated until none is left."""
    job = harness.submit()
    with harness.db.write() as connection:
        connection.execute(update(datasets).values(state="deleted"))
    assert execute_one(harness.db, harness.settings)
    assert (harness.row(job).state, harness.row(job).error) == ("failed", "data_deleted")
    assert harness.balance() == (0, 0)
