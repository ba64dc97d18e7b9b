"""Publish: the model, its audit record, the charge and the job's end, in one transaction.

A result leaves the worker here or nowhere, so of two runs of one job at most one is ever seen.
"""

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select

from service.audit.chain import APPEND, next_record
from service.db import lock, now_ms
from service.jobs.card import Released, Software, model_card, weights_of
from service.jobs.transitions import Move, end_without_model, transition
from service.keys import Keys
from service.ledger.limits import Limit
from service.ledger.reserve import post
from service.planning.plan import Plan, canonical_json, sha256
from service.tables import datasets, jobs, models

_DATASET = (
    select(datasets, now_ms().label("now_ms"))
    .where(datasets.c.id == bindparam("dataset"))
    .with_for_update(key_share=True)
)
_MODEL = insert(models).values(
    job_id=bindparam("model_job"), card=bindparam("model_card"), digest=bindparam("model_digest")
)
_SUCCEED = Move("succeeded", _MODEL, *APPEND, steps_done=bindparam("steps"))


class PlanChangedError(RuntimeError):
    """What is stored no longer has the digest that was charged: the database was tampered with."""


def check_plan(job: Row[Any]) -> None:
    """The text of the job's Plan must be the one whose price was reserved."""
    if sha256(job.plan) != job.plan_digest:
        raise PlanChangedError(
            f"the stored Plan of job {job.id} does not have the digest that was recorded when it was "
            "submitted, so it is not run or published; restore the row, or cancel the job."
        )


def released_models(connection: Connection, plan: Plan) -> list[float] | None:
    """The weights of the models that the Plan names, one after the other, if it does and if those are
    still the same."""
    found: list[float] = []
    for of in plan.spec.named:
        query = select(models.c.card).where(models.c.job_id == of.job)
        card = connection.execute(query).scalar_one()
        if sha256(card) != of.digest:
            raise PlanChangedError(
                f"the stored model of job {of.job} does not have the digest that the Plan names, so "
                "nothing is computed about it; restore the row, or cancel the job."
            )
        found += weights_of(json.loads(card)) or []
    return found or None


def _cap_state(moved: Sequence[Limit]) -> dict[str, Any] | None:
    """The owner's cap as it stands after the charge, where there is one."""
    cap = next((limit for limit in moved if limit.purpose == "cap"), None)
    if cap is None:
        return None
    return {
        "id": cap.id,
        "terms": cap.terms.model_dump(mode="json"),
        "epsilon": cap.epsilon,
        "units": cap.units,
        "posted_units": cap.posted_units,
        "overdrawn": cap.overdrawn,
    }


def publish(
    connection: Connection,
    keys: Keys,
    job_id: str,
    fence: int,
    released: Released,
    software: Software,
) -> bool:
    """False, and nothing changed, if the job is no longer this worker's to publish."""
    job = lock(connection, jobs, job_id)
    if job.fence != fence:
        return False
    if job.state == "cancelling":
        end_without_model(connection, job, "cancelled")
        return False
    if job.state != "running" or job.opened_ms is None:
        return False
    check_plan(job)
    # locked before the account: everyone's order
    dataset = connection.execute(_DATASET, {"dataset": job.dataset_id}).one()
    account, moved = post(connection, job.account_id, job.entry_seq, "job succeeded")
    plan = Plan.model_validate_json(job.plan)
    of = released_models(connection, plan)
    text = canonical_json(model_card(job_id, plan, job.plan_digest, dataset.schema, released, of))
    record = next_record(
        keys,
        dataset,
        dataset.now_ms,
        job_id=job_id,
        body={
            "plan": json.loads(job.plan),
            "plan_digest": job.plan_digest,
            "model_digest": sha256(text),
            "charge": {"entry": job.entry_seq, "units": plan.price.units},
            "account": {
                "id": account.id,
                "terms": account.terms.model_dump(mode="json"),
                "epsilon": account.epsilon,
                "ceiling_units": account.ceiling_units,
                "posted_units": account.posted_units,
                "entries": account.entries,
                "cap": _cap_state(moved),
            },
            "software": software.model_dump(),
        },
    )
    model = {"model_job": job_id, "model_card": text, "model_digest": sha256(text)}
    transition(connection, job, _SUCCEED, steps=job.steps_total, **model, **record)
    return True
