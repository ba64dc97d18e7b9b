"""A job's noise key: its own, from the operating system, stored wrapped, used, and known to nobody."""

import hashlib
import json
import os
import random
from functools import partial

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from sqlalchemy import select, update

import service.keys
import workers.execute
from service.jobs.card import weights_of
from service.keys import NOISE_KEY_BYTES, Keys
from service.planning.plan import Plan
from service.tables import jobs, models
from workers.algorithms import RUNS
from workers.data import Data
from workers.execute import execute_one
from workers.progress import Progress
from workers.randomness import Randomness


def key_of(harness, job):
    return harness.settings.keys.unwrap(harness.row(job).wrapped_key, job)


def fitted(harness, job):
    """The weights that a worker publishes."""
    harness.make_due()
    while execute_one(harness.db, harness.settings):
        pass
    with harness.db.read() as connection:
        card = connection.execute(select(models.c.card).where(models.c.job_id == job)).scalar_one()
    return np.array(weights_of(json.loads(card)))


def weights_under(harness, plan, key):
    """What the Plan gives on the harness's rows under a key."""
    x, y = np.ones((plan.facts.rows, 4), dtype=np.int16), np.ones(plan.facts.rows)
    data = Data(plan, x, y, Randomness(key, plan.digest()))
    return RUNS[plan.algorithm](plan, data, Progress())


def public_keys(row):
    """Keys that anyone could think of: constants, and what can be made of what the API says."""
    said = [row.id, row.plan_digest, row.id + row.plan_digest, row.dataset_id, row.principal_id]
    yield bytes(NOISE_KEY_BYTES)
    yield b"\xff" * NOISE_KEY_BYTES
    yield bytes(range(NOISE_KEY_BYTES))
    for text in (*said, row.plan, row.spec, ""):
        yield hashlib.sha256(text.encode()).digest()
        yield text.encode()[:NOISE_KEY_BYTES].ljust(NOISE_KEY_BYTES, b"\0")
    yield bytes.fromhex(row.plan_digest)


def test_two_jobs_have_two_keys_and_one_plan_fits_two_models(harness):
    first, second = harness.submit(), harness.submit()
    rows = [harness.row(job) for job in (first, second)]
    assert rows[0].plan_digest == rows[1].plan_digest
    keys = {key_of(harness, job) for job in (first, second)}
    assert len(keys) == 2 and {len(key) for key in keys} == {NOISE_KEY_BYTES}
    assert (fitted(harness, first) != fitted(harness, second)).all()


def test_a_model_is_that_of_its_key_and_of_no_key_that_anyone_knows(harness):
    job = harness.submit()
    row, key = harness.row(job), key_of(harness, job)
    plan, published = Plan.model_validate_json(row.plan), fitted(harness, job)
    np.testing.assert_allclose(weights_under(harness, plan, key), published, rtol=1e-12)
    assert (weights_under(harness, plan, key) == weights_under(harness, plan, key)).all()
    for known in public_keys(row):
        assert (np.abs(weights_under(harness, plan, known) - published) > 1e-9).any()


def test_a_key_is_stored_wrapped_for_its_job_and_destroyed_with_its_end(harness):
    job, other = harness.submit(), harness.submit()
    wrapped, key = harness.row(job).wrapped_key, key_of(harness, job)
    assert key not in wrapped and len(wrapped) == 12 + NOISE_KEY_BYTES + 16
    with pytest.raises(InvalidTag):
        harness.settings.keys.unwrap(wrapped, other)
    with harness.db.write() as connection:  # another job's key in its place: nothing is run
        connection.execute(update(jobs).where(jobs.c.id == other).values(wrapped_key=wrapped))
    harness.make_due()
    while execute_one(harness.db, harness.settings):
        pass
    assert harness.row(job).state == "succeeded" and harness.row(job).wrapped_key is None
    assert harness.row(other).state != "succeeded"


def drawn_by_the_system(monkeypatch, keys):
    """A key for a job, and what the operating system gave meanwhile."""
    given = []

    def urandom(size):
        given.append(os.urandom(size))
        return given[-1]

    monkeypatch.setattr(random, "_urandom", urandom)
    return keys.unwrap(keys.new_noise_key("job_1"), "job_1"), given


def test_a_key_comes_from_the_operating_system(monkeypatch, harness):
    keys = harness.settings.keys
    key, given = drawn_by_the_system(monkeypatch, keys)
    assert NOISE_KEY_BYTES in [len(one) for one in given]
    stir = partial(service.keys.hmac.digest, keys.derive("noise keys"), digest="sha256")
    assert key in [stir(one + b"job_1") for one in given]
    assert len({keys.unwrap(keys.new_noise_key("job_1"), "job_1") for _ in range(100)}) == 100


class Known:
    """The mutant: a generator whose draws are public."""

    token_bytes = staticmethod(bytes)


def test_the_mutant_with_known_draws_is_caught_and_still_has_secret_keys(monkeypatch, harness):
    """Caught: one job has the same key twice. Not fatal: two jobs have two, neither of which follows
    from public facts without the master key."""
    keys = harness.settings.keys
    monkeypatch.setattr(service.keys, "secrets", Known)
    assert len({keys.unwrap(keys.new_noise_key("job_1"), "job_1") for _ in range(9)}) == 1
    _, given = drawn_by_the_system(monkeypatch, keys)
    assert given == []
    first, second = harness.submit(), harness.submit()
    assert key_of(harness, first) != key_of(harness, second)
    other = Keys(bytes(32), keys.signing)
    assert other.unwrap(other.new_noise_key(first), first) != key_of(harness, first)
    assert key_of(harness, first) not in set(public_keys(harness.row(first)))


@pytest.mark.parametrize("known", [bytes(32), bytes(range(32))])
def test_the_mutant_that_runs_under_a_known_key_is_caught(monkeypatch, harness, known):
    """Its model is one that anyone can make again, up to the data: what the tests above look for."""
    job = harness.submit()
    row, plan = harness.row(job), Plan.model_validate_json(harness.row(job).plan)
    monkeypatch.setattr(
        workers.execute, "Randomness", lambda key, digest: Randomness(known, digest)
    )
    published = fitted(harness, job)
    again = [weights_under(harness, plan, key) for key in public_keys(row)]
    assert any((np.abs(one - published) < 1e-9).all() for one in again)
