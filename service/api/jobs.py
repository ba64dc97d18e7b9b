"""Quotes and jobs: ask the price, submit, watch, cancel, fetch the model and its audit record."""

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response
from sqlalchemy import or_, select

from service.api.audit import record_view
from service.api.auth import Me, usable_dataset, visible_job
from service.api.context import Ctx
from service.api.pages import After, Limit, Page, newest_first
from service.api.shapes import (
    EventShape,
    JobRequest,
    JobShape,
    ModelShape,
    QuoteShape,
    RecordShape,
)
from service.db import iso
from service.errors import JobNotFinished
from service.jobs.cancel import cancel
from service.jobs.submit import plan_for, submit
from service.jobs.view import job_view
from service.planning.price import largest_fitting_epsilon
from service.planning.spec import JobSpec
from service.tables import audit_records, datasets, job_events, jobs, models

router = APIRouter(tags=["jobs"])


@router.post("/quotes", response_model=QuoteShape)
def quote(ctx: Ctx, me: Me, request: JobSpec) -> Any:
    """The Plan and its price, for nothing: no reservation, no charge, no data read."""
    with ctx.db.read() as connection:
        usable_dataset(connection, me, request.dataset)
        planned, account = plan_for(connection, ctx.settings, request)
    return {
        "fits": planned.price.units <= account.remaining_units,
        "largest_epsilon": largest_fitting_epsilon(
            account.remaining_units, planned.guarantee.delta, account.terms
        ),
        "plan": planned,
        "plan_digest": planned.digest(),
        "budget": account.balance(),
    }


@router.post(
    "/jobs",
    status_code=202,
    response_model=JobShape,
    responses={202: {"description": "Reserved and queued; follow Location."}},
)
def submit_job(
    ctx: Ctx,
    me: Me,
    request: JobRequest,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
) -> Response:
    """Plan, reserve and queue. The same Idempotency-Key gets the same answer for a week."""
    submission = submit(
        ctx.db,
        ctx.settings,
        authorise=lambda connection: usable_dataset(connection, me, request.dataset),
        principal_id=me.id,
        spec=request.spec(),
        metadata=request.metadata,
        idempotency_key=idempotency_key,
    )
    headers = {"Location": f"/v1/jobs/{submission.job_id}", "Retry-After": "1"}
    if submission.replayed:
        headers["Idempotent-Replayed"] = "true"
    else:
        ctx.try_hint(submission.job_id)
    return Response(
        submission.body, status_code=202, headers=headers, media_type="application/json"
    )


@router.get("/jobs", response_model=Page[JobShape])
def list_jobs(
    ctx: Ctx,
    me: Me,
    dataset: Annotated[str | None, Query(max_length=64)] = None,
    state: Annotated[
        Literal["queued", "running", "cancelling", "succeeded", "failed", "cancelled"] | None,
        Query(),
    ] = None,
    limit: Limit = 20,
    starting_after: After = None,
) -> Any:
    query = select(jobs)
    if me.role not in ("admin", "auditor"):
        owned = select(datasets.c.id).where(datasets.c.owner_id == me.id)
        query = query.where(or_(jobs.c.principal_id == me.id, jobs.c.dataset_id.in_(owned)))
    if dataset is not None:
        query = query.where(jobs.c.dataset_id == dataset)
    if state is not None:
        query = query.where(jobs.c.state == state)
    with ctx.db.read() as connection:
        rows, more = newest_first(connection, jobs, query, limit, starting_after)
    return {"data": [job_view(row) for row in rows], "has_more": more, "url": "/v1/jobs"}


@router.get("/jobs/{job_id}", response_model=JobShape)
def get_job(ctx: Ctx, me: Me, job_id: str) -> Any:
    with ctx.db.read() as connection:
        return job_view(visible_job(connection, me, job_id))


@router.post("/jobs/{job_id}/cancel", response_model=JobShape)
def cancel_job(ctx: Ctx, me: Me, job_id: str) -> Any:
    """Free of charge before the data was opened; after it the full price stays."""
    with ctx.db.write() as connection:
        visible_job(connection, me, job_id)
        me.need("owner", "analyst", "admin")
        cancel(connection, job_id)
        return job_view(visible_job(connection, me, job_id))


@router.get("/jobs/{job_id}/events", response_model=Page[EventShape])
def list_events(ctx: Ctx, me: Me, job_id: str) -> Any:
    with ctx.db.read() as connection:
        visible_job(connection, me, job_id)
        rows = connection.execute(
            select(job_events).where(job_events.c.job_id == job_id).order_by(job_events.c.seq)
        ).all()
    data = [{"id": r.seq, "type": r.type, "created_at": iso(r.created_ms)} for r in rows]
    return {"data": data, "has_more": False, "url": f"/v1/jobs/{job_id}/events"}


@router.get("/jobs/{job_id}/plan")
def get_plan(ctx: Ctx, me: Me, job_id: str) -> dict[str, Any]:
    """The Plan as it was charged: every release, its sensitivity, its noise, its price."""
    with ctx.db.read() as connection:
        plan: dict[str, Any] = json.loads(visible_job(connection, me, job_id).plan)
    return plan


@router.get("/jobs/{job_id}/model", response_model=ModelShape)
def get_model(ctx: Ctx, me: Me, job_id: str) -> Any:
    with ctx.db.read() as connection:
        job = visible_job(connection, me, job_id)
        card = connection.execute(select(models.c.card).where(models.c.job_id == job_id)).scalar()
    if card is None:
        raise JobNotFinished(f"it is {job.state}; a model is there once it has succeeded.")
    return json.loads(card)


@router.get("/jobs/{job_id}/audit", response_model=RecordShape)
def get_record(ctx: Ctx, me: Me, job_id: str) -> Any:
    with ctx.db.read() as connection:
        job = visible_job(connection, me, job_id)
        row = connection.execute(
            select(audit_records).where(audit_records.c.job_id == job_id)
        ).first()
    if row is None:
        raise JobNotFinished(f"it is {job.state}; a record is there once it has succeeded.")
    return record_view(row)
