"""Submit jobs: plan their specs, then reserve the prices and insert the jobs in one transaction.

Planning and pricing happen before that transaction: a dataset's facts and its account's terms never
change once set, so a Plan cannot go stale, and the account's lock is held only while entries are
written. A cap or share that is set meanwhile applies all the same; only then is a price computed under
the lock. Jobs of a group are reserved all or none.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Row, insert, select
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
    Problem,
)
from service.jobs.transitions import record_event
from service.jobs.view import job_view
from service.ledger.accounts import Account, find_account, limits_for
from service.ledger.limits import Limit, Price
from service.ledger.reserve import reserve
from service.planning.choose import AUTO, Choice, choose, compare, plan_named
from service.planning.plan import Plan, canonical_json, sha256
from service.planning.price import AccountTerms, measures, price_units
from service.planning.spec import Facts, JobSpec
from service.tables import datasets, idempotency, jobs

Authorise = Callable[[Connection, str, bool], object]
"""Raises unless the caller may use the dataset; if asked to, keeps that true until the transaction
ends."""


@dataclass(frozen=True)
class Asked:
    spec: JobSpec
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Submission:
    id: str  # of the job, or of the group
    body: str  # the response, kept so that a repeated request gets the same one
    replayed: bool


@dataclass(frozen=True)
class Planned:
    """A job that is ready to be reserved."""

    plan: Plan
    choice: Choice | None
    account: Account
    price: Price
    metadata: dict[str, str]


def facts_for(
    connection: Connection, dataset_id: str, principal_id: str
) -> tuple[Facts, Account, tuple[Limit, ...]]:
    """The public facts of a dataset that holds data, the account that pays for its jobs, and the
    limits that apply to this person's."""
    dataset = connection.execute(select(datasets).where(datasets.c.id == dataset_id)).one()
    if dataset.state != "ready":
        raise DatasetNotReady("its owner must first upload data with PUT /v1/datasets/{id}/data.")
    account = find_account(connection, dataset.lineage_id)
    if account is None:
        raise BudgetNotSet("its owner must first set one with PUT /v1/datasets/{id}/budget.")
    limits = limits_for(connection, account, principal_id)
    further = {limit.terms.key: limit.terms for limit in limits if limit.terms != account.terms}
    facts = Facts.model_validate(
        {
            **json.loads(dataset.facts),
            "account": account.terms,
            "limits": tuple(further[key] for key in sorted(further)),
        }
    )
    return facts, account, limits


def plan_for(facts: Facts, settings: Settings, spec: JobSpec) -> tuple[Plan, Choice | None]:
    """The Plan of a spec and, where the algorithm is `auto`, why this one was chosen."""
    if spec.algorithm != AUTO:
        return plan_named(spec, facts, settings.gradients_max), None
    return choose(compare(spec, facts, settings.gradients_max))


def price_of(plan: Plan) -> Price:
    """What a Plan costs at any terms; each is computed once."""
    known = {plan.facts.account: plan.price.units}

    def price(terms: AccountTerms) -> int:
        if terms not in known:
            known[terms] = price_units(plan.release, terms)
        return known[terms]

    return price


def submit(
    db: Database,
    settings: Settings,
    *,
    authorise: Authorise,
    principal_id: str,
    asked: Sequence[Asked],
    group: bool = False,
    idempotency_key: str | None = None,
) -> Submission:
    """Admit a job, or the jobs of a group, or return the stored response of an earlier request with
    the same key."""
    request = _digest(asked, group)
    used = sorted({one.spec.dataset for one in asked})
    with db.read() as connection:
        for dataset_id in used:
            authorise(connection, dataset_id, False)
        if replay := _earlier_response(connection, principal_id, idempotency_key, request):
            return replay
        known = {name: facts_for(connection, name, principal_id) for name in used}
    planned = []
    for number, one in enumerate(asked):
        facts, account, limits = known[one.spec.dataset]
        with _naming(number, len(asked) if group else 1):
            plan, choice = plan_for(facts, settings, one.spec)
        price = price_of(plan)
        for terms in (*measures(account.terms), *(limit.terms for limit in limits)):
            price(terms)
        planned.append(Planned(plan, choice, account, price, one.metadata))
    try:
        with db.write() as connection:
            for dataset_id in used:  # again: a grant may have been revoked meanwhile
                authorise(connection, dataset_id, True)
            if replay := _earlier_response(connection, principal_id, idempotency_key, request):
                return replay
            group_id = new_id("grp") if group else None
            rows = _insert_all(connection, settings, principal_id, planned, group_id)
            views = [job_view(row) for row in rows]
            body = canonical_json(views[0] if group_id is None else group_view(group_id, views))
            if idempotency_key is not None:
                connection.execute(
                    insert(idempotency).values(
                        principal_id=principal_id,
                        key=idempotency_key,
                        request_digest=request,
                        job_id=rows[0].id,
                        response=body,
                        created_ms=now_ms(),
                    )
                )
            return Submission(group_id or rows[0].id, body, replayed=False)
    except (IntegrityError, BudgetExceeded, AnalystCapExceeded, BudgetFrozen):
        # the same key may have committed first, on another connection, and taken what was left
        with db.read() as connection:
            if replay := _earlier_response(connection, principal_id, idempotency_key, request):
                return replay
        raise


def group_view(group_id: str, views: list[dict[str, Any]]) -> dict[str, Any]:
    return {"object": "group", "id": group_id, "data": views}


def _insert_all(
    connection: Connection,
    settings: Settings,
    principal_id: str,
    planned: Sequence[Planned],
    group_id: str | None,
) -> list[Row[Any]]:
    """All of them, or an exception. Accounts are locked in the order of their ids."""
    rows: dict[int, Row[Any]] = {}
    for number, one in sorted(enumerate(planned), key=lambda item: item[1].account.id):
        with _naming(number, 1 if group_id is None else len(planned)):
            rows[number] = _insert_job(connection, settings, principal_id, one, group_id)
    return [rows[number] for number in range(len(planned))]


def _insert_job(
    connection: Connection,
    settings: Settings,
    principal_id: str,
    planned: Planned,
    group_id: str | None,
) -> Row[Any]:
    plan, choice, account = planned.plan, planned.choice, planned.account
    job_id, dataset_id = new_id("job"), plan.spec.dataset
    entry_seq = reserve(
        connection,
        account.id,
        price=planned.price,
        epsilon=plan.guarantee.epsilon,
        delta=plan.guarantee.delta,
        principal_id=principal_id,
        dataset_id=dataset_id,
        job_id=job_id,
    )
    row = connection.execute(
        insert(jobs)
        .values(
            id=job_id,
            dataset_id=dataset_id,
            principal_id=principal_id,
            account_id=account.id,
            group_id=group_id,
            entry_seq=entry_seq,
            state="queued",
            spec=plan.spec.model_dump_json(),
            plan=plan.canonical(),
            plan_digest=plan.digest(),
            choice=None if choice is None else canonical_json(choice.view()),
            metadata=canonical_json(planned.metadata),
            wrapped_key=settings.keys.new_noise_key(job_id),  # before the data is opened
            hint_ms=now_ms(),
            steps_total=plan.schedule.steps,
            events=1,
            created_ms=now_ms(),
        )
        .returning(jobs)
    ).one()
    record_event(connection, row)
    return row


@contextmanager
def _naming(number: int, count: int) -> Iterator[None]:
    """A refusal says which job of a group it is about."""
    try:
        yield
    except Problem as problem:
        if count == 1:
            raise
        detail = f"job {number + 1} of {count}, and so none of them: {problem.detail}"
        raise type(problem)(detail, **problem.members, index=number) from None


def _digest(asked: Sequence[Asked], group: bool) -> str:
    said = [{"spec": a.spec.model_dump(mode="json"), "metadata": a.metadata} for a in asked]
    return sha256(canonical_json(said if group else said[0]))


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
    return Submission(json.loads(row.response)["id"], row.response, replayed=True)
