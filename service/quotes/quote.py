"""Quotes: what a job would cost, release and predict. Free: nothing is reserved, charged or read.

Planning takes a processor for a while, so it happens between two short reads of the database: one for
the public facts, one for what the account has left. The verdict is the ledger's own (admission.py),
as of the second read.
"""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, select

from service.config import Settings
from service.db import Database
from service.errors import BudgetNotSet, PlanRefused
from service.jobs.planned import PlannedSpec, facts_for, plan_for, with_columns
from service.ledger.accounts import find_account
from service.ledger.admission import admission, standing
from service.ledger.statement import budget
from service.planning.advice import advice
from service.planning.choose import choose, compare, epsilon_for_noise
from service.planning.describe import describe
from service.planning.spec import Facts, JobSpec
from service.tables import datasets

Authorised = Callable[[Connection], JobSpec]
"""The spec that is asked about, once it is certain that the caller may ask."""


def quote(
    db: Database, settings: Settings, *, principal_id: str, authorised: Authorised
) -> dict[str, Any]:
    spec, facts, lineage_id = _facts(db, principal_id, authorised)
    return _answer(db, principal_id, lineage_id, plan_for(facts, settings, spec))


def quote_for_noise(
    db: Database, settings: Settings, *, principal_id: str, authorised: Authorised, noise: float
) -> dict[str, Any]:
    """The quote at the smallest epsilon whose noise in one mean is at most `noise`."""
    spec, facts, lineage_id = _facts(db, principal_id, authorised)
    named = plan_for(facts, settings, spec)
    asked = spec.model_copy(update={"algorithm": named.plan.algorithm})
    planned = epsilon_for_noise(asked, facts, settings.gradients_max, noise)
    return _answer(db, principal_id, lineage_id, PlannedSpec(planned, named.choice))


def comparison(
    db: Database, settings: Settings, *, principal_id: str, authorised: Authorised
) -> dict[str, Any]:
    """Every algorithm of the catalog on one spec, and what `auto` would take."""
    spec, facts, _ = _facts(db, principal_id, authorised)
    candidates = compare(spec, facts, settings.gradients_max)
    try:
        choice = choose(candidates)[1].view()
    except PlanRefused:
        choice = None
    data = [candidate.view() for candidate in candidates]
    return {"dataset": spec.dataset, "choice": choice, "data": data}


def _facts(db: Database, principal_id: str, authorised: Authorised) -> tuple[JobSpec, Facts, str]:
    with db.read() as connection:
        spec = authorised(connection)
        dataset = connection.execute(select(datasets).where(datasets.c.id == spec.dataset)).one()
        facts, account = facts_for(connection, dataset, principal_id)
        facts = with_columns(facts, dataset, spec)
    return spec, facts, account.lineage_id


def _answer(db: Database, principal_id: str, lineage_id: str, made: PlannedSpec) -> dict[str, Any]:
    planned, choice, price = made.plan, made.choice, made.price
    delta = planned.guarantee.delta
    with db.read() as connection:
        account = find_account(connection, lineage_id)
        if account is None:
            raise BudgetNotSet("its owner must first PUT /v1/datasets/{id}/budget.")
        found = standing(connection, account, principal_id)
        balance = budget(connection, found)
    refusal = admission(found, price, delta)
    return {
        **describe(planned).model_dump(),
        "epsilon": planned.guarantee.epsilon,
        "fits": refusal is None,
        "refusal": None if refusal is None else refusal.detail,
        "largest_epsilon": found.largest_epsilon(delta),
        "jobs_that_fit": found.jobs_that_fit(price),
        "steps": planned.schedule.steps,
        "advice": advice(planned),
        "choice": None if choice is None else choice.view(),
        "plan": planned,
        "plan_digest": made.digest,
        "budget": balance,
    }
