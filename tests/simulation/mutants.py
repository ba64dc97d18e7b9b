"""Mistakes that we know how to make, in the service's own functions. The simulation finds each."""

from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch

from sqlalchemy import select, update

from service.db import lock
from service.jobs import admit, cancel, claim, maintenance, publish, submit, transitions, turns
from service.jobs.transitions import Move
from service.ledger import reserve
from service.ledger.reserve import Wanted
from service.tables import jobs
from tests.simulation import world

_publish, _take_back, _submit = publish.publish, claim.take_back, submit.submit
_before = admit._before
_move_balances, _transition, _do = reserve.move_balances, claim.transition, turns.Turns._do


def publish_ignores_the_fence(connection, keys, job_id, fence, card, software):
    now = connection.execute(select(jobs.c.fence).where(jobs.c.id == job_id)).scalar_one()
    return _publish(connection, keys, job_id, now, card, software)


def reap_resets_nothing(connection, settings, job, *, failed=False):
    _transition(connection, job, Move("queued"))


def an_end_after_the_data_was_opened_is_free(connection, account_id, seq, reason):
    reserve.void(connection, account_id, seq, reason)


def a_retry_draws_fresh_noise(connection, settings, job, *, failed=False):
    _take_back(connection, settings, job, failed=failed)
    fresh = settings.keys.new_noise_key(job.id)
    queued = (jobs.c.id == job.id) & (jobs.c.state == "queued")
    connection.execute(update(jobs).where(queued).values(wrapped_key=fresh))


def a_charge_counts_at_another_limits_order(connection, moved, cost, pending, posted):
    moved = list(moved)
    at = moved[-1].terms if moved and posted else None
    return _move_balances(connection, moved, lambda terms: cost(at or terms), pending, posted)


def a_group_reserves_what_fits(db, settings, request):
    with db.write() as connection:
        (earlier,) = admit._before(connection, [request])
        if earlier is not None:
            return earlier
        wanted = sorted(request.planned, key=lambda one: one.account_id)
        outcomes = admit._reserve(connection, [(request, one) for one in wanted])
        both = zip(wanted, outcomes, strict=True)
        fitting = [(request, one, seq) for one, seq in both if isinstance(seq, int)]
        if not fitting:
            raise outcomes[0]
        views = admit._insert(connection, settings, fitting)
        return admit._answers(connection, [(request, views)])[0]


def a_batch_mixes_up_its_answers(self, batch):
    _do(self, batch)
    answers = [one.answer for one in batch if one.error is None]
    for one in batch:
        if one.error is None:
            one.answer = answers.pop()


def what_is_remembered_is_believed(connection, requests, valid=None):
    return _before(connection, [replace(one, credential=None) for one in requests], valid)


def a_revoked_key_still_submits(connection, credentials):
    return credentials


def a_plan_is_admitted_at_other_limits(**named):
    return Wanted(**named | {"only_at": None})


def idempotency_is_ignored(*arguments, idempotency_key=None, **named):
    return _submit(*arguments, **named)


def cancel_voids_an_opened_job(connection, job_id):
    job = lock(connection, jobs, job_id)
    if job.state in ("queued", "running"):
        reserve.void(connection, job.account_id, job.entry_seq, "job cancelled")
        _transition(connection, job, Move("cancelled"))


def a_claim_takes_no_new_fence(connection, job, move, **values):
    moved = _transition(connection, job, move, **values)
    if move.state != "running":
        return moved
    same = update(jobs).where(jobs.c.id == job.id).values(fence=max(1, job.fence))
    return connection.execute(same.returning(jobs)).one()


def a_job_keeps_its_key(connection, job, move, **values):
    moved = _transition(connection, job, move, **values)
    kept = update(jobs).where(jobs.c.id == job.id).values(wrapped_key=job.wrapped_key)
    connection.execute(kept)
    return moved


MUTANTS = {
    publish_ignores_the_fence: [(publish, "publish")],
    reap_resets_nothing: [(maintenance, "take_back"), (claim, "take_back")],
    an_end_after_the_data_was_opened_is_free: [(transitions, "post")],
    a_retry_draws_fresh_noise: [(maintenance, "take_back"), (claim, "take_back")],
    a_charge_counts_at_another_limits_order: [(reserve, "move_balances")],
    a_group_reserves_what_fits: [(submit, "admit_group")],
    a_batch_mixes_up_its_answers: [(turns.Turns, "_do")],
    what_is_remembered_is_believed: [(admit, "_before")],
    a_revoked_key_still_submits: [(world, "valid_credentials")],
    a_plan_is_admitted_at_other_limits: [(admit, "Wanted")],
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
