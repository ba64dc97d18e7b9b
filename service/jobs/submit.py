"""Submit jobs: plan their specs, then reserve the prices and insert the jobs in one transaction.

Planning and pricing happen before that transaction: a dataset's facts and its account's terms never
change once set, so a Plan cannot go stale, and the account's lock is held only while entries are
written. A cap or share that is set meanwhile applies all the same; only then is a price computed under
the lock. Jobs of a group are reserved all or none. What several requests want of one account at the
same time is written in one transaction (turns.py).
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any

from sqlalchemy import Connection, Row, insert, select, tuple_
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
from service.jobs.transitions import record_events
from service.jobs.turns import Turns
from service.jobs.view import job_view
from service.ledger.accounts import Account, find_account
from service.ledger.limits import applying
from service.ledger.reserve import Wanted, reserve
from service.planning.choose import AUTO, Choice, choose, compare, plan_named
from service.planning.plan import Plan, canonical_json, sha256
from service.planning.price import AccountTerms, measures, price_units
from service.planning.spec import Facts, JobSpec
from service.tables import grants, idempotency, jobs

Authorise = Callable[[Connection, str], Row[Any]]
"""The dataset, or an exception if the caller may not use it."""


class PlannedSpec:
    """A Plan, why `auto` took its algorithm, and all that is derived from it, once."""

    def __init__(self, plan: Plan, choice: Choice | None) -> None:
        self.plan, self.choice = plan, choice
        self._prices = {plan.facts.account: plan.price.units}

    def price(self, terms: AccountTerms) -> int:
        """What it costs at the terms of a limit."""
        if terms not in self._prices:
            self._prices[terms] = price_units(self.plan.release, terms)
        return self._prices[terms]

    @cached_property
    def spec_text(self) -> str:
        return self.plan.spec.model_dump_json()

    @cached_property
    def text(self) -> str:
        return self.plan.canonical()

    @cached_property
    def digest(self) -> str:
        return sha256(self.text)

    @cached_property
    def choice_text(self) -> str | None:
        return None if self.choice is None else canonical_json(self.choice.view())


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

    job_id: str
    plan: PlannedSpec
    account_id: str
    metadata: dict[str, str]


@dataclass(frozen=True)
class Submittal:
    """One caller's job, or group of jobs, planned and ready to be reserved."""

    authorise: Authorise
    principal_id: str
    granted: tuple[str, ...]  # of its datasets those that are others'
    planned: tuple[Planned, ...]
    group_id: str | None
    idempotency_key: str | None
    digest: str


def facts_for(
    connection: Connection, dataset: Row[Any], principal_id: str
) -> tuple[Facts, Account]:
    """The public facts of a dataset that holds data, with the terms of the limits that apply to this
    person's jobs, and the account that pays for them."""
    if dataset.state != "ready":
        raise DatasetNotReady("its owner must first upload data with PUT /v1/datasets/{id}/data.")
    account = find_account(connection, dataset.lineage_id)
    if account is None:
        raise BudgetNotSet("its owner must first set one with PUT /v1/datasets/{id}/budget.")
    limits = applying(connection, account.id, principal_id)
    further = {limit.terms.key: limit.terms for limit in limits if limit.terms != account.terms}
    facts = Facts.model_validate(
        {
            **json.loads(dataset.facts),
            "account": account.terms,
            "limits": tuple(further[key] for key in sorted(further)),
        }
    )
    return facts, account


def plan_for(facts: Facts, settings: Settings, spec: JobSpec) -> PlannedSpec:
    """The Plan of a spec with its prices: made once, for the same is often asked again."""
    return _planned(spec.model_dump_json(), facts, settings.gradients_max)


@lru_cache(maxsize=512)
def _planned(spec_text: str, facts: Facts, gradients_max: int) -> PlannedSpec:
    spec = JobSpec.model_validate_json(spec_text)
    if spec.algorithm != AUTO:
        return PlannedSpec(plan_named(spec, facts, gradients_max), None)
    return PlannedSpec(*choose(compare(spec, facts, gradients_max)))


def submit(
    db: Database,
    settings: Settings,
    *,
    authorise: Authorise,
    principal_id: str,
    asked: Sequence[Asked],
    group: bool = False,
    idempotency_key: str | None = None,
    turns: Turns[Submittal, Submission] | None = None,
) -> Submission:
    """Admit a job, or the jobs of a group, or return the stored response of an earlier request with
    the same key."""
    digest = _digest(asked, group)
    with db.read() as connection:
        used = sorted({one.spec.dataset for one in asked})
        rows = {dataset_id: authorise(connection, dataset_id) for dataset_id in used}
        if replay := _earlier_response(connection, principal_id, idempotency_key, digest):
            return replay
        known = {name: facts_for(connection, row, principal_id) for name, row in rows.items()}
    planned = []
    for number, one in enumerate(asked):
        facts, account = known[one.spec.dataset]
        with _naming(number, len(asked) if group else 1):
            plan = plan_for(facts, settings, one.spec)
        for terms in (*measures(account.terms), *facts.limits):
            plan.price(terms)
        planned.append(Planned(new_id("job"), plan, account.id, one.metadata))
    request = Submittal(
        authorise=authorise,
        principal_id=principal_id,
        granted=tuple(name for name, row in rows.items() if row.owner_id != principal_id),
        planned=tuple(planned),
        group_id=new_id("grp") if group else None,
        idempotency_key=idempotency_key,
        digest=digest,
    )
    try:
        if group:
            return _admit_group(db, settings, request)
        turns = turns or turns_of(db, settings)
        return turns.take(planned[0].account_id, request)
    except (IntegrityError, BudgetExceeded, AnalystCapExceeded, BudgetFrozen):
        # the same key may have committed first, on another connection, and taken what was left
        with db.read() as connection:
            if replay := _earlier_response(connection, principal_id, idempotency_key, digest):
                return replay
        raise


def turns_of(db: Database, settings: Settings) -> Turns[Submittal, Submission]:
    """Single jobs of one account, of any callers, that are written in one transaction."""

    def act(requests: Sequence[Submittal]) -> list[Submission | Problem]:
        with db.write() as connection:
            outcomes = _before(connection, requests)
            going = [r for r, outcome in zip(requests, outcomes, strict=True) if outcome is None]
            wanted = [(request.principal_id, request.planned[0]) for request in going]
            found = list(zip(going, _reserve(connection, wanted), strict=True))
            admitted = [(r, r.planned[0], seq) for r, seq in found if isinstance(seq, int)]
            rows = iter(_insert(connection, settings, admitted))
            ended = iter(
                outcome if isinstance(outcome, Problem) else _answer(connection, r, [next(rows)])
                for r, outcome in found
            )
            return [next(ended) if outcome is None else outcome for outcome in outcomes]

    return Turns(act)


def _admit_group(db: Database, settings: Settings, request: Submittal) -> Submission:
    """All of them, or an exception. Accounts are locked in the order of their ids."""
    with db.write() as connection:
        (earlier,) = _before(connection, [request])
        if isinstance(earlier, Submission):
            return earlier
        if earlier is not None:
            raise earlier
        order = sorted(range(len(request.planned)), key=lambda i: request.planned[i].account_id)
        wanted = [(request.principal_id, request.planned[i]) for i in order]
        seqs: dict[int, int] = {}
        for i, outcome in zip(order, _reserve(connection, wanted), strict=True):
            with _naming(i, len(order)):
                if isinstance(outcome, Problem):
                    raise outcome
            seqs[i] = outcome
        jobs_of = [(request, one, seqs[i]) for i, one in enumerate(request.planned)]
        return _answer(connection, request, _insert(connection, settings, jobs_of))


def group_view(group_id: str, views: list[dict[str, Any]]) -> dict[str, Any]:
    return {"object": "group", "id": group_id, "data": views}


def _before(
    connection: Connection, requests: Sequence[Submittal]
) -> list[Submission | Problem | None]:
    """The stored response of each, or why its caller may no longer do this. None: they may, and may
    until this transaction ends, for whoever revokes a grant waits."""
    wanted = sorted({(name, one.principal_id) for one in requests for name in one.granted})
    held = set()
    if wanted:
        query = select(grants.c.dataset_id, grants.c.principal_id).where(
            tuple_(grants.c.dataset_id, grants.c.principal_id).in_(wanted)
        )
        query = query.order_by(grants.c.dataset_id, grants.c.principal_id)
        rows = connection.execute(query.with_for_update(read=True, key_share=True))
        held = {(row.dataset_id, row.principal_id) for row in rows}
    return [_before_one(connection, one, held) for one in requests]


def _before_one(
    connection: Connection, one: Submittal, held: set[tuple[str, str]]
) -> Submission | Problem | None:
    try:
        for name in one.granted:
            if (name, one.principal_id) not in held:
                one.authorise(connection, name)
        return _earlier_response(connection, one.principal_id, one.idempotency_key, one.digest)
    except Problem as problem:
        return problem


def _reserve(connection: Connection, wanted: Sequence[tuple[str, Planned]]) -> list[int | Problem]:
    """The entries of these jobs, or why one is refused; jobs come sorted by their accounts."""
    outcomes: list[int | Problem] = []
    for account_id, jobs_of in groupby(wanted, key=lambda item: item[1].account_id):
        asks = [
            Wanted(
                price=one.plan.price,
                epsilon=one.plan.plan.guarantee.epsilon,
                delta=one.plan.plan.guarantee.delta,
                principal_id=principal_id,
                dataset_id=one.plan.plan.spec.dataset,
                job_id=one.job_id,
            )
            for principal_id, one in jobs_of
        ]
        outcomes += reserve(connection, account_id, asks)
    return outcomes


def _insert(
    connection: Connection, settings: Settings, admitted: Sequence[tuple[Submittal, Planned, int]]
) -> list[Row[Any]]:
    """The jobs, queued. Their noise keys exist before the data is opened, and only wrapped."""
    if not admitted:
        return []
    values = [
        {
            "id": one.job_id,
            "dataset_id": one.plan.plan.spec.dataset,
            "principal_id": request.principal_id,
            "account_id": one.account_id,
            "group_id": request.group_id,
            "entry_seq": seq,
            "state": "queued",
            "spec": one.plan.spec_text,
            "plan": one.plan.text,
            "plan_digest": one.plan.digest,
            "choice": one.plan.choice_text,
            "metadata": canonical_json(one.metadata),
            "wrapped_key": settings.keys.new_noise_key(one.job_id),
            "steps_total": one.plan.plan.schedule.steps,
            "events": 1,
        }
        for request, one, seq in admitted
    ]
    made = insert(jobs).values(hint_ms=now_ms(), created_ms=now_ms())
    rows = connection.execute(made.returning(jobs, sort_by_parameter_order=True), values).all()
    record_events(connection, rows)
    return list(rows)


def _answer(connection: Connection, request: Submittal, rows: Sequence[Row[Any]]) -> Submission:
    views = [job_view(row) for row in rows]
    group_id = request.group_id
    body = canonical_json(views[0] if group_id is None else group_view(group_id, views))
    if request.idempotency_key is not None:
        connection.execute(
            insert(idempotency).values(
                principal_id=request.principal_id,
                key=request.idempotency_key,
                request_digest=request.digest,
                job_id=rows[0].id,
                response=body,
                created_ms=now_ms(),
            )
        )
    return Submission(group_id or rows[0].id, body, replayed=False)


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
