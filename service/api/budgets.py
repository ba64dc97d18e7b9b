"""A dataset's budget and the ledger behind it."""

import csv
import io
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection, Row, Select, or_

from service.api.auth import Me, owned_dataset, sees_all, visible_dataset
from service.api.context import Ctx
from service.api.once import Once
from service.api.pages import AfterNumber, Limit, Page, by_number
from service.api.schemas.budgets import (
    BudgetRequest,
    BudgetView,
    EntryView,
    ReasonRequest,
    TopUpRequest,
)
from service.db import lock
from service.errors import BudgetNotSet, DatasetNotReady
from service.ledger.accounts import Account, find_account, open_account
from service.ledger.adjust import costs_so_far, set_frozen, top_up
from service.ledger.admission import standing
from service.ledger.statement import budget, entry_view, statement
from service.tables import lineages

router = APIRouter(tags=["budget"])
FORMULA = "=+-@\t\r\n＝＋－＠"  # full width too: some spreadsheets read them alike


@router.put("/datasets/{dataset_id}/budget", status_code=201, response_model=BudgetView)
def set_budget(ctx: Ctx, me: Me, dataset_id: str, request: BudgetRequest) -> Any:
    """Fix the ceiling (epsilon, delta), once and for ever, and the cap to operate under."""
    with ctx.db.write() as connection:
        row = owned_dataset(connection, me, dataset_id)
        if row.lineage_id is None:
            raise DatasetNotReady(
                "upload its data first: identical data shares one account, whatever it is called."
            )
        lock(connection, lineages, row.lineage_id)
        account = open_account(
            connection,
            lineage_id=row.lineage_id,
            principal_id=me.id,
            epsilon=request.epsilon,
            delta=request.delta,
            cap_epsilon=request.epsilon_cap,
            kind=request.kind,
        )
        return budget(connection, standing(connection, account, me.id))


@router.get("/datasets/{dataset_id}/budget", response_model=BudgetView)
def get_budget(ctx: Ctx, me: Me, dataset_id: str) -> Any:
    with ctx.db.read() as connection:
        row = visible_dataset(connection, me, dataset_id)
        return budget(connection, standing(connection, _account(connection, row), me.id))


@router.post("/datasets/{dataset_id}/budget/top-ups", status_code=201, response_model=BudgetView)
def add_top_up(ctx: Ctx, me: Me, once: Once, dataset_id: str, request: TopUpRequest) -> Any:
    """Raise the cap, at most to the ceiling: an entry of the ledger, with the owner's reason. The new
    cap counts every job so far at an order of its own."""
    with ctx.db.read() as connection:
        account = _account(connection, owned_dataset(connection, me, dataset_id))
        known = costs_so_far(connection, account, request.epsilon_cap)
    return _adjust(
        once,
        me,
        dataset_id,
        lambda connection, account: top_up(
            connection,
            account.id,
            cap_epsilon=request.epsilon_cap,
            principal_id=me.id,
            reason=request.reason,
            known=known,
        ),
    )


@router.post("/datasets/{dataset_id}/budget/freeze", response_model=BudgetView)
def freeze(me: Me, once: Once, dataset_id: str, request: ReasonRequest) -> Any:
    """Admit no more jobs to the account that this dataset spends from. Jobs admitted before run on."""
    return _set_frozen(once, me, dataset_id, True, request.reason)


@router.post("/datasets/{dataset_id}/budget/unfreeze", response_model=BudgetView)
def unfreeze(me: Me, once: Once, dataset_id: str, request: ReasonRequest) -> Any:
    return _set_frozen(once, me, dataset_id, False, request.reason)


Kind = Annotated[
    Literal["open", "reserve", "post", "void", "top_up", "freeze", "unfreeze"] | None, Query()
]
Filter = Annotated[str | None, Query(max_length=64)]


@router.get("/datasets/{dataset_id}/ledger", response_model=Page[EntryView])
def list_ledger(
    ctx: Ctx,
    me: Me,
    dataset_id: str,
    kind: Kind = None,
    principal: Filter = None,
    job: Filter = None,
    limit: Limit = 100,
    starting_after: AfterNumber = 0,
) -> Any:
    """The entries of the account that this dataset spends from, in order: every one, or to an analyst,
    unless the owner shares the ledger, their own and the owner's."""
    with ctx.db.read() as connection:
        row = visible_dataset(connection, me, dataset_id)
        account = _account(connection, row)
        query = _visible(me, row, account, kind=kind, principal_id=principal, job_id=job)
        rows, more = by_number(connection, query.selected_columns.seq, query, limit, starting_after)
    data = [entry_view(row, account) for row in rows]
    return {"data": data, "has_more": more, "url": f"/v1/datasets/{dataset_id}/ledger"}


@router.get(
    "/datasets/{dataset_id}/ledger.csv",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
def export_ledger(
    ctx: Ctx,
    me: Me,
    dataset_id: str,
    kind: Kind = None,
    principal: Filter = None,
    job: Filter = None,
) -> StreamingResponse:
    """The same ledger as a table."""
    with ctx.db.read() as connection:
        row = visible_dataset(connection, me, dataset_id)
        account = _account(connection, row)

    query = _visible(me, row, account, kind=kind, principal_id=principal, job_id=job)

    def lines() -> Iterator[str]:
        yield _line(EntryView.model_fields)
        after, more = 0, True
        while more:
            with ctx.db.read() as connection:
                rows, more = by_number(connection, query.selected_columns.seq, query, 1000, after)
            for row in rows:
                view = EntryView.model_validate(entry_view(row, account))
                yield _line(view.model_dump().values())
                after = row.seq

    name = f'attachment; filename="ledger-{account.id}.csv"'
    return StreamingResponse(lines(), headers={"Content-Disposition": name}, media_type="text/csv")


def _visible(me: Me, dataset: Row[Any], account: Account, **filters: str | None) -> Select[Any]:
    """What the caller may see of the account's entries. In a shared ledger an analyst sees what
    concerns this dataset; of other datasets of the same people, what is theirs."""
    query = statement(account, **filters)
    if me.id == dataset.owner_id or me.role in ("admin", "auditor"):
        return query
    entry = query.selected_columns
    seen = [entry.job_id.is_(None), entry.principal_id == me.id]
    if sees_all(me, dataset):
        seen.append(entry.dataset_id == dataset.id)
    return query.where(or_(*seen))


def _account(connection: Connection, dataset: Row[Any]) -> Account:
    account = find_account(connection, dataset.lineage_id)
    if account is None:
        raise BudgetNotSet("its owner sets it with PUT /v1/datasets/{id}/budget.")
    return account


def _adjust(
    once: Once, me: Me, dataset_id: str, change: Callable[[Connection, Account], Account]
) -> Any:
    def adjusted(connection: Connection) -> Any:
        row = owned_dataset(connection, me, dataset_id)
        changed = change(connection, _account(connection, row))
        return budget(connection, standing(connection, changed, me.id))

    return once.answer(adjusted)


def _set_frozen(once: Once, me: Me, dataset_id: str, frozen: bool, reason: str) -> Any:
    return _adjust(
        once,
        me,
        dataset_id,
        lambda connection, account: set_frozen(
            connection, account.id, frozen=frozen, principal_id=me.id, reason=reason
        ),
    )


def _line(values: Any) -> str:
    """One line of CSV. A text that a spreadsheet would take for a formula gets a quote in front."""
    text = io.StringIO()
    csv.writer(text).writerow(
        f"'{value}" if isinstance(value, str) and value[:1] in FORMULA and value else value
        for value in values
    )
    return text.getvalue()
