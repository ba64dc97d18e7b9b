"""Submit a job: plan its spec, then reserve the price and insert the job in one transaction.

Planning happens before that transaction: a dataset's facts and its account's terms never change once
set, so the Plan cannot go stale, and the account's lock is held only while its entry is written.
"""

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import IntegrityError

from service.config import Settings
from service.db import Database, new_id, now_ms
from service.errors import (
    AnalystCapExceeded,
    BudgetExceeded,
    BudgetFrozen,
    BudgetNotSet,
    DatasetNotReady,
    IdempotencyConflict,
)
from service.jobs.transitions import record_event
from service.jobs.view import job_view
from service.keys import NOISE_KEY_BYTES
from service.ledger.accounts import Account, find_account
from service.ledger.reserve import reserve
from service.planning.choose import AUTO, Choice, choose, compare, plan_named
from service.planning.plan import Plan, canonical_json, sha256
from service.planning.spec import Facts, JobSpec
from service.tables import datasets, idempotency, jobs


@dataclass(frozen=True)
class Submission:
    job_id: str
    body: str  # the response, kept so that a repeated request gets the same one
    replayed: bool


def facts_of(dataset: Any, account: Account) -> Facts:
    return Facts.model_validate({**json.loads(dataset.facts), "account": account.terms})


def facts_for(connection: Connection, dataset_id: str) -> tuple[Facts, Account]:
    """The public facts of a dataset that holds data, and the account that pays for its jobs."""
    dataset = connection.execute(select(datasets).where(datasets.c.id == dataset_id)).one()
    if dataset.state != "ready":
        raise DatasetNotReady("its owner must first upload data with PUT /v1/datasets/{id}/data.")
    account = find_account(connection, dataset.lineage_id)
    if account is None:
        raise BudgetNotSet("its owner must first set one with PUT /v1/datasets/{id}/budget.")
    return facts_of(dataset, account), account


def plan_for(facts: Facts, settings: Settings, spec: JobSpec) -> tuple[Plan, Choice | None]:
    """The Plan of a spec and, where the algorithm is `auto`, why this one was chosen."""
    if spec.algorithm != AUTO:
        return plan_named(spec, facts, settings.gradients_max), None
    return choose(compare(spec, facts, settings.gradients_max))


def submit(
    db: Database,
    settings: Settings,
    *,
    authorise: Callable[[Connection], object],
    authorise_and_lock: Callable[[Connection], object] | None = None,
    principal_id: str,
    spec: JobSpec,
    metadata: dict[str, str],
    idempotency_key: str | None = None,
) -> Submission:
    """Admit a job, or return the stored response of an earlier request with the same key.

    `authorise` raises unless the caller may use the dataset; `authorise_and_lock` also keeps that true
    until the transaction ends.
    """
    request = sha256(canonical_json({"spec": spec.model_dump(mode="json"), "metadata": metadata}))
    with db.read() as connection:
        authorise(connection)
        if replay := _earlier_response(connection, principal_id, idempotency_key, request):
            return replay
        facts, account = facts_for(connection, spec.dataset)
    planned, choice = plan_for(facts, settings, spec)
    try:
        with db.write() as connection:
            # again: the grant may have been revoked meanwhile
            (authorise_and_lock or authorise)(connection)
            if replay := _earlier_response(connection, principal_id, idempotency_key, request):
                return replay
            return _insert_job(
                connection,
                settings,
                principal_id=principal_id,
                planned=planned,
                choice=choice,
                account=account,
                metadata=metadata,
                idempotency_key=idempotency_key,
                request=request,
            )
    except (IntegrityError, BudgetExceeded, AnalystCapExceeded, BudgetFrozen):
        # the same key may have committed first, on another connection, and taken what was left
        with db.read() as connection:
            if replay := _earlier_response(connection, principal_id, idempotency_key, request):
                return replay
        raise


def _insert_job(
    connection: Connection,
    settings: Settings,
    *,
    principal_id: str,
    planned: Plan,
    choice: Choice | None,
    account: Account,
    metadata: dict[str, str],
    idempotency_key: str | None,
    request: str,
) -> Submission:
    job_id, dataset_id = new_id("job"), planned.spec.dataset
    entry_seq = reserve(
        connection,
        account.id,
        units=planned.price.units,
        principal_id=principal_id,
        dataset_id=dataset_id,
        job_id=job_id,
        delta=planned.guarantee.delta,
    )
    # the noise key exists before the data is opened, and only wrapped
    noise_key = secrets.token_bytes(NOISE_KEY_BYTES)
    row = connection.execute(
        insert(jobs)
        .values(
            id=job_id,
            dataset_id=dataset_id,
            principal_id=principal_id,
            account_id=account.id,
            entry_seq=entry_seq,
            state="queued",
            spec=planned.spec.model_dump_json(),
            plan=planned.canonical(),
            plan_digest=planned.digest(),
            choice=None if choice is None else canonical_json(choice.view()),
            metadata=canonical_json(metadata),
            wrapped_key=settings.keys.wrap(noise_key, job_id),
            hint_ms=now_ms(),
            steps_total=planned.schedule.steps,
            events=1,
            created_ms=now_ms(),
        )
        .returning(jobs)
    ).one()
    record_event(connection, row)
    body = canonical_json(job_view(row))
    if idempotency_key is not None:
        connection.execute(
            insert(idempotency).values(
                principal_id=principal_id,
                key=idempotency_key,
                request_digest=request,
                job_id=job_id,
                response=body,
                created_ms=now_ms(),
            )
        )
    return Submission(job_id=job_id, body=body, replayed=False)


def _earlier_response(
    connection: Connection, principal_id: str, key: str | None, request: str
) -> Submission | None:
    """The stored response to this principal's earlier request with the same idempotency key."""
    if key is None:
        return None
    row = connection.execute(
        select(idempotency).where(
            idempotency.c.principal_id == principal_id, idempotency.c.key == key
        )
    ).first()
    if row is None:
        return None
    if row.request_digest != request:
        raise IdempotencyConflict("send a new Idempotency-Key with a changed request.")
    return Submission(job_id=row.job_id, body=row.response, replayed=True)
