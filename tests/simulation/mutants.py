"""Mistakes that we know how to make, in the service's own functions. The simulation finds each."""

import secrets
from contextlib import contextmanager
from unittest.mock import patch

from sqlalchemy import select, update

from service.db import lock
from service.errors import Problem
from service.jobs import cancel, claim, maintenance, publish, submit, transitions
from service.keys import NOISE_KEY_BYTES
from service.ledger import reserve
from service.tables import jobs

_publish, _take_back, _submit = publish.publish, claim.take_back, submit.submit
_move_balances, _transition = reserve.move_balances, claim.transition


def publish_ignores_the_fence(connection, keys, job_id, fence, card, software):
    now = connection.execute(select(jobs.c.fence).where(jobs.c.id == job_id)).scalar_one()
    return _publish(connection, keys, job_id, now, card, software)


def reap_resets_nothing(connection, settings, job, *, failed=False):
    _transition(connection, job, "queued")


def an_end_after_the_data_was_opened_is_free(connection, account_id, seq, reason):
    reserve.void(connection, account_id, seq, reason)


def a_retry_draws_fresh_noise(connection, settings, job, *, failed=False):
    _take_back(connection, settings, job, failed=failed)
    fresh = settings.keys.wrap(secrets.token_bytes(NOISE_KEY_BYTES), job.id)
    queued = (jobs.c.id == job.id) & (jobs.c.state == "queued")
    connection.execute(update(jobs).where(queued).values(wrapped_key=fresh))


def a_charge_counts_at_another_limits_order(connection, moved, cost, pending, posted):
    moved = list(moved)
    at = moved[-1].terms if moved and posted else None
    _move_balances(connection, moved, lambda terms: cost(at or terms), pending, posted)


def a_group_reserves_what_fits(connection, settings, principal_id, planned, group_id):
    rows = []
    for one in planned:
        try:
            rows.append(submit._insert_job(connection, settings, principal_id, one, group_id))
        except Problem:
            if not rows:
                raise
    return rows


def idempotency_is_ignored(*arguments, idempotency_key=None, **named):
    return _submit(*arguments, **named)


def cancel_voids_an_opened_job(connection, job_id):
    job = lock(connection, jobs, job_id)
    if job.state in ("queued", "running"):
        reserve.void(connection, job.account_id, job.entry_seq, "job cancelled")
        _transition(connection, job, "cancelled")


def a_claim_takes_no_new_fence(connection, job, state, *also, **values):
    return _transition(connection, job, state, *also, **{**values, "fence": max(1, job.fence)})


def a_job_keeps_its_key(connection, job, state, *also, **values):
    moved = _transition(connection, job, state, *also, **values)
    if state == "succeeded":
        connection.execute(
            update(jobs).where(jobs.c.id == job.id).values(wrapped_key=job.wrapped_key)
        )
    return moved


MUTANTS = {
    publish_ignores_the_fence: [(publish, "publish")],
    reap_resets_nothing: [(maintenance, "take_back"), (claim, "take_back")],
    an_end_after_the_data_was_opened_is_free: [(transitions, "post")],
    a_retry_draws_fresh_noise: [(maintenance, "take_back"), (claim, "take_back")],
    a_charge_counts_at_another_limits_order: [(reserve, "move_balances")],
    a_group_reserves_what_fits: [(submit, "_insert_all")],
    idempotency_is_ignored: [(submit, "submit")],
    cancel_voids_an_opened_job: [(cancel, "cancel")],
    a_claim_takes_no_new_fence: [(claim, "transition")],
    a_job_keeps_its_key: [(publish, "transition")],
}


@contextmanager
def mutated(mutant):
    patches = [patch.object(module, name, mutant) for module, name in MUTANTS[mutant]]
    for one in patches:
        one.start()
    try:
        yield
    finally:
        for one in patches:
            one.stop()
