"""Several jobs priced together: which of them fit, one after the other, and whether all do.

A job fits if every limit admits it after those before it that fit; one that does not is passed over,
as the ledger would refuse it alone. A group (POST /v1/groups) reserves all or none.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, select

from service.config import Settings
from service.db import Database
from service.errors import Problem
from service.jobs.planned import PlannedSpec, facts_for, plan_for, with_columns
from service.ledger.accounts import find_account
from service.ledger.admission import Standing, admission, standing
from service.ledger.statement import limit_view
from service.planning.spec import Facts, JobSpec
from service.tables import datasets


def quote_batch(
    db: Database,
    settings: Settings,
    *,
    principal_id: str,
    authorised: Callable[[Connection], Sequence[JobSpec]],
) -> dict[str, Any]:
    with db.read() as connection:
        specs = authorised(connection)
        used = {spec.dataset for spec in specs}
        rows = connection.execute(select(datasets).where(datasets.c.id.in_(sorted(used)))).all()
        known = {row.id: facts_for(connection, row, principal_id) for row in rows}
    of_id = {row.id: row for row in rows}
    abouts = [with_columns(known[one.dataset][0], of_id[one.dataset], one) for one in specs]
    planned = [_plan(settings, *pair) for pair in zip(specs, abouts, strict=True)]
    of = {name: account.lineage_id for name, (_, account) in known.items()}
    with db.read() as connection:
        accounts = {name: find_account(connection, lineage) for name, lineage in of.items()}
        now = {
            account.id: standing(connection, account, principal_id)
            for account in accounts.values()
            if account is not None
        }
    ids = {name: account.id for name, account in accounts.items() if account is not None}
    answers = []
    for number, (spec, plan) in enumerate(zip(specs, planned, strict=True)):
        account_id = ids[spec.dataset]
        row, now[account_id] = _row(number, spec, plan, now[account_id])
        answers.append(row)
    fitting = sum(row["fits"] for row in answers)
    return {
        "all_fit": fitting == len(answers),
        "fitting": fitting,
        "data": answers,
        "after": [
            {
                "account": found.account.id,
                "limits": [limit_view(one, found.account.terms.delta) for one in found.limits],
            }
            for found in now.values()
        ],
    }


def _plan(settings: Settings, spec: JobSpec, facts: Facts) -> PlannedSpec | Problem:
    try:
        return plan_for(facts, settings, spec)
    except Problem as problem:
        return problem


def _row(
    number: int, spec: JobSpec, made: PlannedSpec | Problem, found: Standing
) -> tuple[dict[str, Any], Standing]:
    """What becomes of one job, and the account after it."""
    named = {"index": number, "dataset": spec.dataset, "epsilon": spec.privacy.epsilon}
    if isinstance(made, Problem):
        nothing = dict.fromkeys(("price_units", "fraction", "plan_digest"))
        refused = {"algorithm": spec.algorithm, "fits": False, "refusal": made.detail}
        return named | nothing | refused, found
    plan = made.plan
    refusal = admission(found, made.price, plan.guarantee.delta)
    row = named | {
        "algorithm": plan.algorithm,
        "fits": refusal is None,
        "refusal": None if refusal is None else refusal.detail,
        "price_units": plan.price.units,
        "fraction": plan.price.units / found.account.ceiling_units,
        "plan_digest": made.digest,
    }
    return row, found if refusal is not None else found.with_reserved(made.price)
