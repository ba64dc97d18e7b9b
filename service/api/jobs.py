"""Jobs: submit, watch, cancel, fetch the model and its audit record."""

import asyncio
import json
import re
from typing import Annotated, Any, Literal

from anyio import to_thread
from fastapi import APIRouter, Header, Query, Response
from sqlalchemy import Connection, Row, or_, select

from service.api.audit import record_view
from service.api.auth import Caller, Me, Who, usable_dataset, visible_job
from service.api.conditional import etag, matches
from service.api.context import Ctx
from service.api.once import Once
from service.api.pages import After, Limit, Page, newest_first
from service.api.released import resolved
from service.api.schemas.audit import RecordView
from service.api.schemas.jobs import (
    EvaluationView,
    GroupRequest,
    GroupView,
    JobRequest,
    JobView,
    ModelView,
    ReleasesView,
    SummariesView,
)
from service.errors import JobNotFinished, JobWithoutModel, NotFound, Problem, Unauthenticated
from service.jobs.admit import Submission, group_view
from service.jobs.cancel import cancel
from service.jobs.planned import Authorise
from service.jobs.states import ENDED
from service.jobs.submit import ANEW, Asked, remembered, submit
from service.jobs.view import job_view
from service.planning.describe import describe
from service.planning.plan import Plan, canonical_json
from service.tables import audit_records, datasets, jobs, models

router = APIRouter(tags=["jobs"])

WAIT_SECONDS_MAX = 60
_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})")


@router.post(
    "/jobs",
    status_code=202,
    response_model=JobView,
    responses={202: {"description": "Reserved and queued; follow Location."}},
)
async def submit_job(
    ctx: Ctx,
    who: Who,
    request: JobRequest,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
) -> Response:
    """Plan, reserve and queue. The same Idempotency-Key gets the same answer for a week."""
    quick = await _once_more(ctx, who.me, request, idempotency_key)
    if quick is not None:
        return _accepted(ctx, quick, "jobs")
    me = await to_thread.run_sync(who.certain)
    return _accepted(ctx, await _submit(ctx, me, [request], idempotency_key), "jobs")


@router.post(
    "/groups",
    status_code=202,
    response_model=GroupView,
    responses={202: {"description": "All reserved and queued; follow Location."}},
)
async def submit_group(
    ctx: Ctx,
    me: Me,
    request: GroupRequest,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=255)] = None,
) -> Response:
    """Several jobs, all reserved or none: a refusal names the job that does not fit. From then on each
    runs, and is cancelled, by itself."""
    done = await _submit(ctx, me, request.jobs, idempotency_key, group=True)
    return _accepted(ctx, done, "groups")


async def _once_more(
    ctx: Ctx, me: Caller, request: JobRequest, idempotency_key: str | None
) -> Submission | None:
    """Another job of a spec that the caller was admitted with before: one transaction, which asks
    whether they still may. None: that remains to be asked from the start."""
    spec = request.spec()
    if spec.of is not None:  # which model that is, the database knows
        return None
    again = remembered(
        ctx.memory,
        authorise=_authorise(me),
        principal_id=me.id,
        credential=me.credential,
        asked=Asked(spec, request.metadata),
        idempotency_key=idempotency_key,
    )
    if again is None:
        return None
    try:
        async with ctx.limiter.turn(me.id):
            return await ctx.turns.give(again.planned[0].account_id, again)
    except ANEW:
        return None


async def _submit(
    ctx: Ctx,
    me: Caller,
    requests: list[JobRequest],
    idempotency_key: str | None,
    *,
    group: bool = False,
) -> Submission:
    def asked(request: JobRequest) -> Asked:
        spec = request.spec()
        if spec.of is not None:
            with ctx.db.read() as connection:
                usable_dataset(connection, me, spec.dataset)
                spec = resolved(connection, me, spec)
        return Asked(spec, request.metadata)

    def answer() -> Submission:
        return submit(
            ctx.db,
            ctx.settings,
            authorise=_authorise(me),
            principal_id=me.id,
            asked=[asked(request) for request in requests],
            group=group,
            idempotency_key=idempotency_key,
            turns=ctx.turns,
            memory=None if group else ctx.memory,
        )

    return await ctx.limiter.run(me.id, answer, charged=True)


def _authorise(me: Caller) -> Authorise:
    return lambda connection, dataset_id: usable_dataset(connection, me, dataset_id)


def _accepted(ctx: Ctx, submission: Submission, where: str) -> Response:
    headers = {"Location": f"/v1/{where}/{submission.id}", "Retry-After": "1"}
    if submission.replayed:
        headers["Idempotent-Replayed"] = "true"
    else:
        ctx.hint()
    return Response(
        submission.body, status_code=202, headers=headers, media_type="application/json"
    )


@router.get("/groups/{group_id}", response_model=GroupView)
def get_group(ctx: Ctx, me: Me, group_id: str) -> Any:
    """The jobs of a group as they are, in the order of their entries."""
    with ctx.db.read() as connection:
        query = select(jobs.c.id).where(jobs.c.group_id == group_id)
        ids = connection.execute(query.order_by(jobs.c.account_id, jobs.c.entry_seq)).scalars()
        try:
            rows = [visible_job(connection, me, job_id) for job_id in ids.all()]
        except NotFound:
            rows = []
    if not rows:
        raise NotFound("no group of yours has this id; a job names its group.")
    return group_view(group_id, [job_view(row) for row in rows])


@router.get("/jobs", response_model=Page[JobView])
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


@router.get("/jobs/{job_id}", response_model=JobView)
async def get_job(
    ctx: Ctx,
    me: Me,
    job_id: str,
    prefer: Annotated[
        str, Header(description="wait=N: answer once the job has changed, or after N <= 60 s.")
    ] = "",
    if_none_match: Annotated[
        str | None, Header(description="With wait: changed from this ETag; default: from now.")
    ] = None,
) -> Response:
    """The job as it is. With `Prefer: wait=N`, as it is once it differs from If-None-Match (without
    it: from what it was when asked), at the latest after N seconds; at once if it has ended."""

    def read() -> tuple[bytes, bool]:
        with ctx.db.read() as connection:
            row = visible_job(connection, me, job_id)
        return canonical_json(job_view(row)).encode(), row.state in ENDED

    body, ended = await to_thread.run_sync(read)
    wanted = _WAIT.search(prefer)
    seconds = min(int(wanted[1]), WAIT_SECONDS_MAX) if wanted else 0
    headers = {"Preference-Applied": f"wait={seconds}"} if wanted else {}
    seen = if_none_match or etag(body)
    if seconds and not ended and matches(seen, etag(body)):
        listener = None
        try:
            async with asyncio.timeout(seconds):
                listener = await ctx.feed.join(me, job_id)
                body, ended = await to_thread.run_sync(read)
                while not ended and matches(seen, etag(body)) and await listener.next(seconds):
                    body, ended = await to_thread.run_sync(read)
        except TimeoutError:
            pass  # unchanged: said with a 304, or with the same again
        finally:
            if listener is not None:
                ctx.feed.leave(listener)
        if listener is not None and listener.revoked:
            raise Unauthenticated(
                "the key or session was revoked or has expired meanwhile; sign in again."
            )
    return Response(body, headers=headers, media_type="application/json")


@router.post("/jobs/{job_id}/cancel", response_model=JobView)
def cancel_job(me: Me, once: Once, job_id: str) -> Any:
    """Free of charge before the data was opened; after it the full price stays."""

    def cancelled(connection: Connection) -> Any:
        visible_job(connection, me, job_id)
        me.need("owner", "analyst", "admin")
        cancel(connection, job_id)
        return job_view(visible_job(connection, me, job_id))

    return once.answer(cancelled)


@router.get("/jobs/{job_id}/plan")
def get_plan(ctx: Ctx, me: Me, job_id: str) -> dict[str, Any]:
    """The Plan as it was charged: every release, its sensitivity, its noise, its price."""
    with ctx.db.read() as connection:
        plan: dict[str, Any] = json.loads(visible_job(connection, me, job_id).plan)
    return plan


@router.get("/jobs/{job_id}/releases", response_model=ReleasesView)
def get_releases(ctx: Ctx, me: Me, job_id: str) -> Any:
    """The job's Plan in words and numbers: each release, its noise, how often, over which rows."""
    with ctx.db.read() as connection:
        job = visible_job(connection, me, job_id)
    described = describe(Plan.model_validate_json(job.plan))
    return {"job": job.id, "plan_digest": job.plan_digest, **described.model_dump()}


@router.get("/jobs/{job_id}/model", response_model=ModelView, response_model_exclude_unset=True)
def get_model(ctx: Ctx, me: Me, job_id: str) -> Any:
    """The card as it was published, whose digest is in the audit record."""
    with ctx.db.read() as connection:
        job = visible_job(connection, me, job_id)
        card = connection.execute(select(models.c.card).where(models.c.job_id == job_id)).scalar()
    if card is None:
        raise _nothing_published(job, "model")
    return json.loads(card)


@router.get("/jobs/{job_id}/summary", response_model=SummariesView)
def get_summary(ctx: Ctx, me: Me, job_id: str) -> Any:
    """What the job's summaries told, each number with its interval."""
    card = get_model(ctx, me, job_id)
    if "summaries" not in card:
        raise NotFound("this job fitted a model; ask GET /v1/jobs/{id}/model for it.")
    with ctx.db.read() as connection:
        plan = json.loads(visible_job(connection, me, job_id).plan)
    told = {name: card[name] for name in ("job", "guarantee", "plan_digest")}
    return told | {"rows": plan["facts"]["rows"], "data": card["summaries"]}


@router.get("/jobs/{job_id}/evaluation", response_model=EvaluationView)
def get_evaluation(ctx: Ctx, me: Me, job_id: str) -> Any:
    """How good models are on the rows that were held out: metrics and curves, each number with its
    interval."""
    card = get_model(ctx, me, job_id)
    if "evaluation" not in card:
        raise NotFound(
            "this job evaluates no model; submit one that names it in 'of', by an algorithm for that."
        )
    with ctx.db.read() as connection:
        plan = json.loads(visible_job(connection, me, job_id).plan)
    told = {name: card[name] for name in ("job", "loss", "guarantee", "plan_digest")}
    return told | {"rows": plan["facts"]["held_out"], "data": card["evaluation"]}


@router.get("/jobs/{job_id}/audit", response_model=RecordView)
def get_record(ctx: Ctx, me: Me, job_id: str) -> Any:
    with ctx.db.read() as connection:
        job = visible_job(connection, me, job_id)
        row = connection.execute(
            select(audit_records).where(audit_records.c.job_id == job_id)
        ).first()
    if row is None:
        raise _nothing_published(job, "record")
    return record_view(row)


def _nothing_published(job: Row[Any], what: str) -> Problem:
    if job.state in ENDED:
        ended = {"cancelled": "it was cancelled", "failed": "it failed"}.get(job.state, job.state)
        return JobWithoutModel(f"{ended}, so it has no {what} and gets none; submit another job.")
    return JobNotFinished(f"it is {job.state}; its {what} can be fetched once it has succeeded.")
