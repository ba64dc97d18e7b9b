"""Submit jobs: plan their specs, then reserve the prices and insert the jobs in one transaction.

Planning and pricing happen before that transaction: a dataset's facts and its account's terms never
change once set, so a Plan cannot go stale, and the account's lock is held only while entries are
written. A cap or share that is set meanwhile applies all the same; only then is a price computed under
the lock. Jobs of a group are reserved all or none.

Whoever submits what they were admitted with before (another job of the same spec) need not wait for
anything to be read or planned: see `remembered`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from service.config import Settings
from service.db import Database, new_id
from service.errors import AnalystCapExceeded, BudgetExceeded, BudgetFrozen, Problem
from service.jobs.admit import (
    Planned,
    Submission,
    Submittal,
    admit_group,
    earlier_responses,
    naming,
    turns_of,
)
from service.jobs.planned import Authorise, Known, Memory, facts_for, plan_for, with_columns
from service.jobs.turns import Turns
from service.ledger.reserve import Outdated
from service.planning.plan import canonical_json, sha256
from service.planning.price import measures
from service.planning.spec import JobSpec

_REFUSED = (BudgetExceeded, AnalystCapExceeded, BudgetFrozen)
ANEW = (Outdated, IntegrityError, *_REFUSED)
"""What is not the last word on a request that was made of what is remembered."""


@dataclass(frozen=True)
class Asked:
    spec: JobSpec
    metadata: dict[str, str] = field(default_factory=dict)


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
    memory: Memory | None = None,
) -> Submission:
    """Admit a job, or the jobs of a group, or return the stored response of an earlier request with
    the same key."""
    request = Submittal(
        authorise=authorise,
        principal_id=principal_id,
        granted=(),
        planned=(),
        group_id=new_id("grp") if group else None,
        idempotency_key=idempotency_key,
        digest=_digest(asked, group),
    )
    with db.read() as connection:
        used = sorted({one.spec.dataset for one in asked})
        rows = {dataset_id: authorise(connection, dataset_id) for dataset_id in used}
        if replay := _replay(connection, request):
            return replay
        known = {name: facts_for(connection, row, principal_id) for name, row in rows.items()}
    planned = []
    for number, one in enumerate(asked):
        facts, account = known[one.spec.dataset]
        with naming(number, len(asked) if group else 1):
            about = with_columns(facts, rows[one.spec.dataset], one.spec)
            plan = plan_for(about, settings, one.spec)
        for terms in (*measures(account.terms), *facts.limits):
            plan.price(terms)
        planned.append(Planned(new_id("job"), plan, account.id, one.metadata))
    granted = tuple(name for name, row in rows.items() if row.owner_id != principal_id)
    request = replace(request, granted=granted, planned=tuple(planned))
    try:
        if group:
            return admit_group(db, settings, request)
        turns = turns or turns_of(db, settings, lambda connection, credentials: set())
        done = turns.take(planned[0].account_id, request)
    except (IntegrityError, *_REFUSED):
        # the same key may have committed first, on another connection, and taken what was left
        with db.read() as connection:
            if replay := _replay(connection, request):
                return replay
        raise
    if memory is not None:
        known_now = Known(planned[0].plan, planned[0].account_id, bool(granted))
        memory.learn(principal_id, asked[0].spec, known_now)
    return done


def remembered(
    memory: Memory,
    *,
    authorise: Authorise,
    principal_id: str,
    credential: str,
    asked: Asked,
    idempotency_key: str | None = None,
) -> Submittal | None:
    """The request as it can be made without asking the database, if the same spec was admitted for
    this person before. Whether all of it still holds, the transaction finds out that admits the job;
    whatever it answers of ANEW, `submit` has the last word."""
    known = memory.recall(principal_id, asked.spec)
    if known is None:
        return None
    planned = Planned(new_id("job"), known.plan, known.account_id, asked.metadata)
    return Submittal(
        authorise=authorise,
        principal_id=principal_id,
        granted=(asked.spec.dataset,) if known.granted else (),
        planned=(planned,),
        group_id=None,
        idempotency_key=idempotency_key,
        digest="" if idempotency_key is None else _digest([asked], group=False),
        credential=credential,
    )


def _digest(asked: Sequence[Asked], group: bool) -> str:
    said = [{"spec": a.spec.model_dump(mode="json"), "metadata": a.metadata} for a in asked]
    return sha256(canonical_json(said if group else said[0]))


def _replay(connection: Connection, request: Submittal) -> Submission | None:
    (earlier,) = earlier_responses(connection, [request])
    if isinstance(earlier, Problem):
        raise earlier
    return earlier
