"""Datasets: declare, upload, list, grant, delete the data."""

import json
from functools import partial
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Header, Query, Request, Response
from sqlalchemy import Connection, Row, delete, insert, or_, select, update

from service.api.auth import Caller, Me, owned_dataset, visible_dataset
from service.api.context import Ctx
from service.api.once import Once
from service.api.pages import After, Limit, Page, after_name, newest_first
from service.api.problems import described
from service.api.schemas.datasets import (
    DatasetRequest,
    DatasetSummary,
    DatasetView,
    GrantRequest,
    GrantView,
    ReportView,
    SharingRequest,
    UploadView,
)
from service.datasets.formats import BY_MEDIA_TYPE, SUMMARY
from service.datasets.schema import Schema
from service.datasets.upload import delete_dataset_data, finish_upload, read_report, receive
from service.db import iso, lock, new_id, now_ms
from service.errors import (
    BudgetNotSet,
    DatasetNotEmpty,
    InvalidRequest,
    NameTaken,
    NotFound,
    UnsupportedMediaType,
)
from service.ledger.accounts import find_account
from service.ledger.adjust import NO_COSTS, costs_so_far, set_share
from service.ledger.limits import open_limits
from service.ledger.statement import committed_by, limit_view
from service.planning.price import AccountTerms
from service.planning.spec import Facts
from service.planning.suitable import suitable_losses
from service.tables import datasets, grants, principals

router = APIRouter(tags=["datasets"])


ANY_ACCOUNT = AccountTerms(kind="pure", delta=0.0)  # which losses suit does not depend on it


def whole_view(connection: Connection, me: Caller, row: Row[Any]) -> dict[str, Any]:
    """A dataset by itself: with what suits it, which is too long for a list."""
    losses = []
    if row.facts is not None:
        facts = Facts.model_validate({**json.loads(row.facts), "account": ANY_ACCOUNT})
        losses = suitable_losses(facts)
    return {**dataset_view(connection, me, row), "losses": losses}


def dataset_view(connection: Connection, me: Caller, row: Row[Any]) -> dict[str, Any]:
    schema = Schema.model_validate_json(row.schema)
    view = {
        "id": row.id,
        "name": row.name,
        "owner": row.owner_id,
        "lineage": None if me.role == "analyst" else row.lineage_id,
        "state": row.state,
        "schema": schema,
        **_counts(row.facts),
        "features": list(schema.feature_names),
        "columns": schema.width,
        "storage": schema.storage,
        "audit_length": row.chain_length,
        "audit_head": row.chain_head,
        "shared_ledger": row.shared_ledger,
        "created_at": iso(row.created_ms),
    }
    if me.role == "admin" and row.content_mac is not None:
        view["same_content_as"] = list(
            connection.execute(
                select(datasets.c.id).where(
                    datasets.c.content_mac == row.content_mac, datasets.c.owner_id != row.owner_id
                )
            ).scalars()
        )
    return view


def _counts(facts: str | None) -> dict[str, int | None]:
    if facts is None:
        return {"rows": None, "fit_rows": None, "held_out_rows": None}
    told = json.loads(facts)
    fit, held_out = told["rows"], told.get("held_out", 0)
    return {"rows": fit + held_out, "fit_rows": fit, "held_out_rows": held_out}


@router.post("/datasets", status_code=201, response_model=DatasetView)
def declare_dataset(me: Me, once: Once, request: DatasetRequest) -> Any:
    """Declare a dataset by its public facts; its data follows with PUT .../data."""
    me.need("owner")
    dataset_id = new_id("ds")

    def declare(connection: Connection) -> Any:
        lineage_id = None
        if request.same_people_as is not None:
            lineage_id = owned_dataset(connection, me, request.same_people_as).lineage_id
            if lineage_id is None:
                raise InvalidRequest("same_people_as must name a dataset that has data.")
        lock(connection, principals, me.id)  # of two requests with one name, one is first
        named = (datasets.c.owner_id == me.id) & (datasets.c.name == request.name)
        taken = select(datasets.c.id).where(named, datasets.c.state != "deleted")
        if (other := connection.execute(taken).scalar()) is not None:
            raise NameTaken(
                f"your dataset {other} is called that; choose another name, or delete that one.",
                id=other,
            )
        connection.execute(
            insert(datasets).values(
                id=dataset_id,
                owner_id=me.id,
                lineage_id=lineage_id,
                name=request.name,
                state="empty",
                schema=request.declared.model_dump_json(),
                shared_ledger=request.shared_ledger,
                created_ms=now_ms(),
            )
        )
        return whole_view(connection, me, owned_dataset(connection, me, dataset_id))

    return once.answer(declare)


@router.get("/datasets", response_model=Page[DatasetSummary])
def list_datasets(ctx: Ctx, me: Me, limit: Limit = 20, starting_after: After = None) -> Any:
    query = select(datasets)
    if me.role not in ("admin", "auditor"):
        granted = select(grants.c.dataset_id).where(grants.c.principal_id == me.id)
        query = query.where(or_(datasets.c.owner_id == me.id, datasets.c.id.in_(granted)))
    with ctx.db.read() as connection:
        rows, more = newest_first(connection, datasets, query, limit, starting_after)
        data = [dataset_view(connection, me, row) for row in rows]
    return {"data": data, "has_more": more, "url": "/v1/datasets"}


@router.get("/datasets/{dataset_id}", response_model=DatasetView)
def get_dataset(ctx: Ctx, me: Me, dataset_id: str) -> Any:
    with ctx.db.read() as connection:
        return whole_view(connection, me, visible_dataset(connection, me, dataset_id))


@router.delete("/datasets/{dataset_id}", status_code=204)
def delete_dataset(ctx: Ctx, me: Me, dataset_id: str) -> Response:
    """Delete a dataset that never had data, and its grants. One that had data stays, with its ledger
    and its audit chain; its rows go with DELETE .../data."""
    with ctx.db.write() as connection:
        owned_dataset(connection, me, dataset_id)
        this = datasets.c.id == dataset_id
        # the strongest lock: it waits for an upload that is about to tie its data to the dataset
        row = connection.execute(select(datasets).where(this).with_for_update()).one()
        if row.state != "empty":
            raise DatasetNotEmpty(f"it is {row.state}; delete its rows with DELETE .../data.")
        connection.execute(delete(grants).where(grants.c.dataset_id == dataset_id))
        connection.execute(delete(datasets).where(this))
    return Response(status_code=204)


@router.put("/datasets/{dataset_id}/sharing", response_model=DatasetView)
def share(ctx: Ctx, me: Me, dataset_id: str, request: SharingRequest) -> Any:
    """Let analysts see all of the ledger and the audit chain, or only what is their own."""
    with ctx.db.write() as connection:
        owned_dataset(connection, me, dataset_id)
        lock(connection, datasets, dataset_id)
        connection.execute(
            update(datasets)
            .where(datasets.c.id == dataset_id)
            .values(shared_ledger=request.shared_ledger)
        )
        return whole_view(connection, me, owned_dataset(connection, me, dataset_id))


@router.put(
    "/datasets/{dataset_id}/data",
    response_model=UploadView,
    responses={507: described("There is no space to store it; send it again when there is.")},
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": f"{SUMMARY}.",
            "content": {
                media: {
                    "schema": {"type": "string", "format": "binary"},
                    "x-suffixes": list(format_.suffixes),
                }
                for media, format_ in BY_MEDIA_TYPE.items()
            },
        }
    },
)
async def upload_data(
    ctx: Ctx,
    me: Me,
    dataset_id: str,
    request: Request,
    content_type: Annotated[str, Header()],
    dry_run: Annotated[
        bool, Query(description="Read and report, and store nothing: the dataset stays empty.")
    ] = False,
    refuse_above: Annotated[
        float | None,
        Query(
            ge=0,
            le=1,
            description="Refuse the file if a larger share of a column's cells is clipped, missing or "
            "of no category, or a larger share of rows is shortened to l2 or linf.",
        ),
    ] = None,
) -> Any:
    """The data itself, once, in one of the formats listed. Streamed to disk, encoded in a process of
    its own under limits, and stored immutable. Errors name row and column, and the report says how
    much was clipped, filled, unknown and constant: to the owner alone."""
    media = content_type.partition(";")[0].strip().lower()
    if media not in BY_MEDIA_TYPE:
        raise UnsupportedMediaType(f"send one of: {', '.join(BY_MEDIA_TYPE)}.")

    def begin() -> Row[Any]:
        with ctx.db.read() as connection:
            return owned_dataset(connection, me, dataset_id)

    row = await to_thread.run_sync(begin)
    file = await receive(ctx.settings, row, request.stream())
    report = await to_thread.run_sync(
        partial(
            finish_upload,
            ctx.db,
            ctx.settings,
            row,
            file,
            BY_MEDIA_TYPE[media],
            refuse_above=refuse_above,
            dry_run=dry_run,
        ),
        limiter=ctx.ingestions,
    )
    view = await to_thread.run_sync(get_dataset, ctx, me, dataset_id)
    return {**view, "report": report}


@router.get("/datasets/{dataset_id}/report", response_model=ReportView)
def get_report(ctx: Ctx, me: Me, dataset_id: str) -> Any:
    """What ingestion did to the rows, in exact counts; for the owner, as long as they are kept."""
    with ctx.db.read() as connection:
        row = owned_dataset(connection, me, dataset_id)
    return {"dataset": row.id, "report": read_report(ctx.settings, row)}


@router.delete("/datasets/{dataset_id}/data", status_code=204)
def delete_data(ctx: Ctx, me: Me, dataset_id: str) -> Response:
    """Delete the rows. The ledger, the models and the audit chain stay; the budget stays spent."""
    with ctx.db.read() as connection:
        owned_dataset(connection, me, dataset_id)
    delete_dataset_data(ctx.db, ctx.settings, dataset_id)
    return Response(status_code=204)


@router.get("/datasets/{dataset_id}/grants", response_model=Page[GrantView])
def list_grants(
    ctx: Ctx, me: Me, dataset_id: str, limit: Limit = 100, starting_after: After = None
) -> Any:
    """Whom the dataset was granted to, oldest first; the cursor is the principal."""
    with ctx.db.read() as connection:
        row = visible_dataset(connection, me, dataset_id)
        if row.owner_id != me.id:
            me.need("admin", "auditor")
        granted = _grants(connection, row)
    data, more = after_name(granted, "principal", limit, starting_after)
    return {"data": data, "has_more": more, "url": f"/v1/datasets/{dataset_id}/grants"}


@router.put("/datasets/{dataset_id}/grants/{principal_id}", response_model=GrantView)
def grant(ctx: Ctx, me: Me, dataset_id: str, principal_id: str, request: GrantRequest) -> Any:
    """Let an analyst use the dataset. A given `epsilon_cap` bounds what they may commit in the account
    that this dataset spends from (null lifts the bound); left out, the bound stays as it is."""
    known = NO_COSTS
    with ctx.db.read() as connection:
        account = find_account(connection, owned_dataset(connection, me, dataset_id).lineage_id)
        if account is not None and request.epsilon_cap is not None:
            known = costs_so_far(connection, account, request.epsilon_cap, principal_id)
    with ctx.db.write() as connection:
        owned_dataset(connection, me, dataset_id)
        row = lock(connection, datasets, dataset_id)
        analyst = connection.execute(
            select(principals).where(
                principals.c.id == principal_id, principals.c.role == "analyst"
            )
        ).first()
        if analyst is None:
            raise NotFound("no analyst has this id; GET /v1/principals lists them.")
        if not any(g["principal"] == principal_id for g in _grants(connection, row)):
            connection.execute(
                insert(grants).values(
                    dataset_id=dataset_id, principal_id=principal_id, created_ms=now_ms()
                )
            )
        account = find_account(connection, row.lineage_id)
        if "epsilon_cap" in request.model_fields_set:
            if account is None:
                raise BudgetNotSet("set the dataset's budget before shares of it.")
            set_share(connection, account.id, principal_id, request.epsilon_cap, known)
        return next(g for g in _grants(connection, row) if g["principal"] == principal_id)


@router.delete("/datasets/{dataset_id}/grants/{principal_id}", status_code=204)
def revoke_grant(ctx: Ctx, me: Me, dataset_id: str, principal_id: str) -> Response:
    """Take the grant back. Jobs already submitted stay, and so does what they cost."""
    with ctx.db.write() as connection:
        owned_dataset(connection, me, dataset_id)
        gone = connection.execute(
            delete(grants).where(
                grants.c.dataset_id == dataset_id, grants.c.principal_id == principal_id
            )
        )
        if gone.rowcount == 0:
            raise NotFound("there is no such grant.")
    return Response(status_code=204)


def _grants(connection: Connection, dataset: Row[Any]) -> list[dict[str, Any]]:
    account = find_account(connection, dataset.lineage_id)
    shares = {} if account is None else open_limits(connection, account.id)[1]
    committed = {} if account is None else committed_by(connection, account.id)
    rows = connection.execute(
        select(grants, principals.c.name)
        .join(principals, principals.c.id == grants.c.principal_id)
        .where(grants.c.dataset_id == dataset.id)
        .order_by(grants.c.created_ms, grants.c.principal_id)
    )
    found = []
    for row in rows:
        share, units = shares.get(row.principal_id), committed.get(row.principal_id, 0)
        found.append(
            {
                "dataset": row.dataset_id,
                "principal": row.principal_id,
                "name": row.name,
                "units_committed": units,
                "fraction_committed": 0.0 if account is None else units / account.ceiling_units,
                "epsilon_cap": None if share is None else share.epsilon,
                "share": None if share is None else limit_view(share, share.terms.delta),
                "created_at": iso(row.created_ms),
            }
        )
    return found
