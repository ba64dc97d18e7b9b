"""Admission: who may still do this, the reservations, the jobs and their answers, in one transaction.

What several requests want of one account at the same time is written in one transaction (turns.py).
A request that was made of what a process remembers (planned.py) is admitted only if this transaction
finds all of that to be so: the caller's key or session valid, the data there, a grant held, and the
limits those that its Plan was made for. Otherwise it is `Outdated`, and its caller begins anew, with
nothing but what the database says.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from types import SimpleNamespace
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, tuple_

from service.config import Settings
from service.db import Database, now_ms
from service.errors import IdempotencyConflict, Problem
from service.jobs.planned import Authorise, PlannedSpec
from service.jobs.transitions import record_events
from service.jobs.turns import Turns
from service.jobs.view import job_view
from service.ledger.reserve import Outdated, Wanted, reserve
from service.planning.plan import canonical_json
from service.tables import datasets, grants, idempotency, jobs

Valid = Callable[[Connection, set[str]], set[str]]
"""Those of these credentials that are neither revoked nor expired."""


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
    credential: str | None = None  # made of what is remembered of the caller with this one


Outcome = Submission | Problem | Outdated


def turns_of(db: Database, settings: Settings, valid: Valid) -> Turns[Submittal, Submission]:
    """Single jobs of one account, of any callers, that are written in one transaction."""

    def act(requests: Sequence[Submittal]) -> list[Outcome]:
        with db.write() as connection:
            outcomes = _before(connection, requests, valid)
            going = [r for r, outcome in zip(requests, outcomes, strict=True) if outcome is None]
            found = list(
                zip(going, _reserve(connection, [(r, r.planned[0]) for r in going]), strict=True)
            )
            admitted = [(r, r.planned[0], seq) for r, seq in found if isinstance(seq, int)]
            views = _insert(connection, settings, admitted)
            made = [(r, [view]) for (r, _, _), view in zip(admitted, views, strict=True)]
            answers = iter(_answers(connection, made))
            ended = iter(next(answers) if isinstance(seq, int) else seq for _, seq in found)
            return [next(ended) if outcome is None else outcome for outcome in outcomes]

    return Turns(act)


def admit_group(db: Database, settings: Settings, request: Submittal) -> Submission:
    """All of them, or an exception. Accounts are locked in the order of their ids."""
    with db.write() as connection:
        (earlier,) = _before(connection, [request])
        if isinstance(earlier, Submission):
            return earlier
        if earlier is not None:
            raise earlier
        order = sorted(range(len(request.planned)), key=lambda i: request.planned[i].account_id)
        wanted = [(request, request.planned[i]) for i in order]
        seqs: dict[int, int] = {}
        for i, outcome in zip(order, _reserve(connection, wanted), strict=True):
            with naming(i, len(order)):
                if not isinstance(outcome, int):
                    raise outcome
            seqs[i] = outcome
        jobs_of = [(request, one, seqs[i]) for i, one in enumerate(request.planned)]
        return _answers(connection, [(request, _insert(connection, settings, jobs_of))])[0]


def group_view(group_id: str, views: list[dict[str, Any]]) -> dict[str, Any]:
    return {"object": "group", "id": group_id, "data": views}


_GRANTS = (
    select(grants.c.dataset_id, grants.c.principal_id)
    .where(
        tuple_(grants.c.dataset_id, grants.c.principal_id).in_(bindparam("wanted", expanding=True))
    )
    .order_by(grants.c.dataset_id, grants.c.principal_id)
    .with_for_update(read=True, key_share=True)
)
_READY = select(datasets.c.id).where(
    datasets.c.id.in_(bindparam("wanted", expanding=True)), datasets.c.state == "ready"
)
_EARLIER = select(idempotency).where(
    tuple_(idempotency.c.principal_id, idempotency.c.key).in_(bindparam("wanted", expanding=True))
)


def _before(
    connection: Connection, requests: Sequence[Submittal], valid: Valid | None = None
) -> list[Outcome | None]:
    """The stored response of each, or why its caller may no longer do this. None: they may, and may
    until this transaction ends, for whoever revokes a grant waits."""
    wanted = sorted({(name, one.principal_id) for one in requests for name in one.granted})
    held = set()
    if wanted:
        rows = connection.execute(_GRANTS, {"wanted": wanted})
        held = {(row.dataset_id, row.principal_id) for row in rows}
    earlier = earlier_responses(connection, requests)
    remembered = [one for one in requests if one.credential is not None]
    good: set[str] = set()
    if remembered and valid is not None:
        good = valid(connection, {one.credential for one in remembered if one.credential})
        names = sorted({one.planned[0].plan.plan.spec.dataset for one in remembered})
        good |= set(connection.execute(_READY, {"wanted": names}).scalars())
    outcomes: list[Outcome | None] = []
    for one, response in zip(requests, earlier, strict=True):
        if one.credential is not None:
            needed = {one.credential, one.planned[0].plan.plan.spec.dataset}
            if not (needed <= good and {(n, one.principal_id) for n in one.granted} <= held):
                outcomes.append(Outdated())
                continue
        outcomes.append(_refusal(connection, one, held) or response)
    return outcomes


def _refusal(connection: Connection, one: Submittal, held: set[tuple[str, str]]) -> Problem | None:
    try:
        for name in one.granted:
            if (name, one.principal_id) not in held:
                one.authorise(connection, name)
    except Problem as problem:
        return problem
    return None


def earlier_responses(
    connection: Connection, requests: Sequence[Submittal]
) -> list[Submission | Problem | None]:
    """The stored response to each principal's earlier request with the same idempotency key."""
    keyed = sorted(
        {(r.principal_id, r.idempotency_key) for r in requests if r.idempotency_key is not None}
    )
    rows = connection.execute(_EARLIER, {"wanted": keyed}).all() if keyed else []
    found = {(row.principal_id, row.key): row for row in rows}
    return [_earlier(found.get((r.principal_id, r.idempotency_key or "")), r) for r in requests]


def _earlier(row: Row[Any] | None, request: Submittal) -> Submission | Problem | None:
    if row is None or request.idempotency_key is None:
        return None
    if row.request_digest != request.digest:
        return IdempotencyConflict("send a new Idempotency-Key with a changed request.")
    return Submission(json.loads(row.response)["id"], row.response, replayed=True)


def _reserve(
    connection: Connection, wanted: Sequence[tuple[Submittal, Planned]]
) -> list[int | Problem | Outdated]:
    """The entries of these jobs, or why one is refused; jobs come sorted by their accounts."""
    outcomes: list[int | Problem | Outdated] = []
    for account_id, jobs_of in groupby(wanted, key=lambda item: item[1].account_id):
        asks = [
            Wanted(
                price=one.plan.price,
                epsilon=one.plan.plan.guarantee.epsilon,
                delta=one.plan.plan.guarantee.delta,
                principal_id=request.principal_id,
                dataset_id=one.plan.plan.spec.dataset,
                job_id=one.job_id,
                only_at=None if request.credential is None else one.plan.plan.facts.limits,
            )
            for request, one in jobs_of
        ]
        outcomes += reserve(connection, account_id, asks)
    return outcomes


_JOBS, _NOW, _ANSWERS = insert(jobs), select(now_ms()), insert(idempotency)


def _insert(
    connection: Connection, settings: Settings, admitted: Sequence[tuple[Submittal, Planned, int]]
) -> list[dict[str, Any]]:
    """The jobs, queued, as their callers see them. Their noise keys exist before the data is opened,
    and only wrapped."""
    if not admitted:
        return []
    now: int = connection.execute(_NOW).scalar_one()
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
            "steps_done": 0,
            "steps_total": one.plan.plan.schedule.steps,
            "events": 1,
            "hint_ms": now,
            "created_ms": now,
        }
        for request, one, seq in admitted
    ]
    connection.execute(_JOBS, values)
    nothing_yet = dict.fromkeys(("opened_ms", "error", "started_ms", "finished_ms"))
    rows = [SimpleNamespace(**nothing_yet, **row) for row in values]
    record_events(connection, rows)
    return [job_view(row) for row in rows]


def _answers(
    connection: Connection, made: Sequence[tuple[Submittal, list[dict[str, Any]]]]
) -> list[Submission]:
    """What each caller is answered; kept for those who may ask again."""
    answers, kept = [], []
    for request, views in made:
        group_id, job_id = request.group_id, views[0]["id"]
        body = canonical_json(views[0] if group_id is None else group_view(group_id, views))
        answers.append(Submission(group_id or job_id, body, replayed=False))
        if request.idempotency_key is not None:
            kept.append(
                {
                    "principal_id": request.principal_id,
                    "key": request.idempotency_key,
                    "request_digest": request.digest,
                    "job_id": job_id,
                    "response": body,
                }
            )
    if kept:
        connection.execute(_ANSWERS.values(created_ms=now_ms()), kept)
    return answers


@contextmanager
def naming(number: int, count: int) -> Iterator[None]:
    """A refusal says which job of a group it is about."""
    try:
        yield
    except Problem as problem:
        if count == 1:
            raise
        detail = f"job {number + 1} of {count}, and so none of them: {problem.detail}"
        raise type(problem)(detail, **problem.members, index=number) from None
