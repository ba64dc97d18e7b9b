"""Claim, fence, lease, cancel, reap and publish, step by step, on both databases."""

import json
import time

import numpy as np
import pytest
from sqlalchemy import insert, select, update

from service.api.auth import create_principal
from service.config import Settings
from service.datasets.schema import Schema
from service.db import new_id, now_ms
from service.errors import JobAlreadyFinished
from service.jobs.cancel import cancel
from service.jobs.claim import claim, give_up, keep, open_data
from service.jobs.publish import PlanChangedError, publish
from service.jobs.reap import HintError, reap, relay
from service.jobs.submit import submit
from service.ledger.accounts import find_account, open_account
from service.ledger.check import check_ledger
from service.planning.spec import JobSpec
from service.tables import audit_records, datasets, jobs, lineages, models
from tests.harness import numeric_schema

ROWS = 200


class Office:
    """The books, one dataset, and a hand on every lever that workers and reapers pull."""

    def __init__(self, db, folder):
        self.db = db
        self.settings = Settings(
            data_dir=folder, database_url=db.url, attempts_max=3, lease_seconds=5.0
        )
        self.dataset, self.lineage = new_id("ds"), new_id("lin")
        schema = Schema.model_validate(numeric_schema(3))
        facts = {
            "rows": ROWS,
            "columns": 4,
            "storage": "fixed",
            "feature_step": 0.5 / 4095,
            "linf_units": 4095,
            "l2_units": 8190,
            "label": "binary",
        }
        with db.write() as connection:
            self.owner = create_principal(connection, "owner", "owner")
            connection.execute(
                insert(lineages).values(id=self.lineage, owner_id=self.owner, created_ms=now_ms())
            )
            connection.execute(
                insert(datasets).values(
                    id=self.dataset,
                    owner_id=self.owner,
                    lineage_id=self.lineage,
                    name="rows",
                    state="ready",
                    schema=schema.model_dump_json(),
                    facts=json.dumps(facts),
                    folder=self.dataset,
                    content_mac="00" * 32,
                    created_ms=now_ms(),
                )
            )
            open_account(
                connection,
                lineage_id=self.lineage,
                principal_id=self.owner,
                epsilon=1.0,
                delta=1e-6,
            )
        folder = folder / "datasets" / self.dataset
        folder.mkdir(parents=True)
        np.save(folder / "x.npy", np.ones((ROWS, 4), dtype=np.int16))
        np.save(folder / "y.npy", np.ones(ROWS))

    def submit(self, epsilon=0.1):
        spec = JobSpec.model_validate(
            {
                "dataset": self.dataset,
                "algorithm": "gradient-descent",
                "loss": "logistic",
                "privacy": {"epsilon": epsilon},
                "parameters": {"steps": 3},
            }
        )
        return submit(
            self.db,
            self.settings,
            authorise=lambda connection: None,
            principal_id=self.owner,
            spec=spec,
            metadata={},
        ).job_id

    def do(self, action, *arguments):
        with self.db.write() as connection:
            return action(connection, *arguments)

    def claim(self, job=None):
        return self.do(claim, self.settings.lease_seconds, job)

    def publish(self, job, fence, card=None):
        card = card or {"coef_": [1.0]}
        return self.do(publish, self.settings.keys, job, fence, card, {})

    def expire(self):
        with self.db.write() as connection:
            connection.execute(update(jobs).values(lease_ms=now_ms() - 1))
        return reap(self.db, self.settings)

    def row(self, job):
        with self.db.read() as connection:
            return connection.execute(select(jobs).where(jobs.c.id == job)).one()

    def money(self):
        with self.db.read() as connection:
            assert check_ledger(connection) == []
            account = find_account(connection, self.lineage)
        return account.posted_units, account.pending_units


@pytest.fixture
def office(db, tmp_path):
    return Office(db, tmp_path)


def price(office, job):
    return json.loads(office.row(job).plan)["price"]["units"]


def test_jobs_are_claimed_once_and_oldest_first(office):
    first = office.submit()
    time.sleep(0.005)
    second = office.submit()
    assert [office.claim().id, office.claim().id, office.claim()] == [first, second, None]
    assert office.claim(first) is None


def test_a_published_job_posts_its_price_and_forgets_its_key(office):
    job = office.submit()
    assert office.row(job).wrapped_key is not None
    held = office.claim()
    assert office.do(open_data, job, held.fence)
    assert office.publish(job, held.fence)
    row = office.row(job)
    assert (row.state, row.wrapped_key, row.lease_ms) == ("succeeded", None, None)
    assert office.money() == (price(office, job), 0)


def test_nothing_is_published_twice_or_by_a_stale_fence(office):
    job = office.submit()
    stale = office.claim()
    office.do(open_data, job, stale.fence)
    office.expire()
    fresh = office.claim()
    assert fresh.fence > stale.fence
    assert not office.do(keep, job, stale.fence, 1, 5.0)
    assert not office.do(open_data, job, stale.fence)
    assert not office.publish(job, stale.fence, {"coef_": [6.0]})
    assert office.publish(job, fresh.fence, {"coef_": [7.0]})
    assert not office.publish(job, fresh.fence, {"coef_": [8.0]})
    with office.db.read() as connection:
        cards = connection.execute(select(models.c.card)).scalars().all()
        assert [json.loads(card)["coef_"] for card in cards] == [[7.0]]
        assert len(connection.execute(select(audit_records)).all()) == 1
    assert office.money() == (price(office, job), 0)


def test_nothing_is_published_before_the_data_was_marked_open(office):
    job = office.submit()
    assert not office.publish(job, office.claim().fence)
    assert office.row(job).state == "running"


def test_a_plan_that_was_tampered_with_is_not_published(office):
    job = office.submit()
    held = office.claim()
    office.do(open_data, job, held.fence)
    with office.db.write() as connection:
        connection.execute(update(jobs).values(plan=jobs.c.plan + " "))
    with pytest.raises(PlanChangedError):
        office.publish(job, held.fence)
    assert office.money()[0] == 0


@pytest.mark.parametrize(
    ("reached", "state", "charged"),
    [
        ("queued", "cancelled", False),
        ("claimed", "cancelled", False),
        ("opened", "cancelling", True),
        ("opened, then requeued", "cancelled", True),
    ],
)
def test_cancel_is_free_until_the_data_was_opened(office, reached, state, charged):
    job = office.submit()
    if reached != "queued":
        held = office.claim()
    if reached.startswith("opened"):
        office.do(open_data, job, held.fence)
    if reached.endswith("requeued"):
        office.expire()
    office.do(cancel, job)
    assert office.row(job).state == state
    if state == "cancelling":  # its worker notices, or is dead and reaped: the same end
        assert not office.do(keep, job, held.fence, 1, 5.0)
        office.do(give_up, job, held.fence)
        assert office.row(job).state == "cancelled"
    assert office.money() == (price(office, job) if charged else 0, 0)
    with pytest.raises(JobAlreadyFinished):
        office.do(cancel, job)


def test_a_cancelling_job_whose_worker_died_is_reaped_and_charged(office):
    job = office.submit()
    held = office.claim()
    office.do(open_data, job, held.fence)
    office.do(cancel, job)
    office.expire()
    assert office.row(job).state == "cancelled"
    assert office.money() == (price(office, job), 0)


def test_a_job_cancelled_before_opening_cannot_be_opened_after(office):
    job = office.submit()
    held = office.claim()
    office.do(cancel, job)
    assert not office.do(open_data, job, held.fence)
    assert office.money() == (0, 0)


@pytest.mark.parametrize(("opened", "charged"), [(False, False), (True, True)])
def test_attempts_are_bounded_and_then_the_job_fails(office, opened, charged):
    job = office.submit()
    for _ in range(office.settings.attempts_max):
        held = office.claim()
        if opened:
            assert office.do(open_data, job, held.fence)
        office.expire()
    assert office.claim() is None
    row = office.row(job)
    assert (row.state, row.error, row.wrapped_key) == ("failed", "attempts_exhausted", None)
    assert office.money() == (price(office, job) if charged else 0, 0)


def test_a_worker_that_gives_up_hands_the_job_on_at_once(office):
    job = office.submit()
    held = office.claim()
    office.do(give_up, job, held.fence)
    assert reap(office.db, office.settings) == 1
    assert office.row(job).state == "queued"


def test_a_live_lease_is_left_alone(office):
    office.submit()
    office.claim()
    assert reap(office.db, office.settings) == 0


def test_a_job_whose_data_is_deleted_before_opening_fails_for_free(office):
    job = office.submit()
    held = office.claim()
    with office.db.write() as connection:
        connection.execute(update(datasets).values(state="deleted"))
    assert not office.do(open_data, job, held.fence)
    assert (office.row(job).state, office.row(job).error) == ("failed", "data_deleted")
    assert office.money() == (0, 0)


def test_the_relay_sends_due_hints_and_repeats_lost_ones(office):
    job = office.submit()
    sent = []
    assert relay(office.db, office.settings, sent.append) == 0  # the submitter sent the first
    with office.db.write() as connection:
        connection.execute(update(jobs).values(hint_ms=0))

    def broken(job_id):
        raise HintError("no broker")

    with pytest.raises(HintError):
        relay(office.db, office.settings, broken)
    assert relay(office.db, office.settings, sent.append) == 0  # its next time has not come
    with office.db.write() as connection:
        connection.execute(update(jobs).values(hint_ms=0))
    assert relay(office.db, office.settings, sent.append) == 1
    assert relay(office.db, office.settings, sent.append) == 0
    assert sent == [job]


def test_each_record_names_the_one_before(office):
    for _ in range(3):
        job = office.submit(0.05)
        held = office.claim()
        office.do(open_data, job, held.fence)
        office.publish(job, held.fence)
    with office.db.read() as connection:
        rows = connection.execute(select(audit_records).order_by(audit_records.c.seq)).all()
        head = connection.execute(select(datasets.c.chain_head)).scalar_one()
    bodies = [json.loads(row.body) for row in rows]
    assert [b["seq"] for b in bodies] == [1, 2, 3]
    assert [b["previous"] for b in bodies] == ["0" * 64, rows[0].hash, rows[1].hash]
    assert head == rows[2].hash
