"""A dataset's budget and the ledger behind it."""

import csv
import io
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from sqlalchemy import Connection, Row, Select, func, select

from service.api.auth import Caller, Me, owned_dataset, visible_dataset
from service.api.context import Ctx
from service.api.pages import AfterNumber, Limit, Page, by_number
from service.api.schemas.budgets import (
    BudgetRequest,
    BudgetView,
    EntryView,
    ReasonRequest,
    TopUpRequest,
)
from service.db import iso, lock
from service.errors import BudgetNotSet, DatasetNotReady
from service.ledger.accounts import Account, find_account, open_account
from service.ledger.adjust import set_frozen, top_up
from service.ledger.reserve import own_room
from service.planning.conversion import epsilon_of_units, largest_epsilon
from service.tables import entries, lineages

router = APIRouter(tags=["budget"])
FORMULA = "=+-@\t\r\n＝＋－＠"  # full width too: some spreadsheets read them alike


def budget_view(connection: Connection, me: Caller, account: Account) -> dict[str, Any]:
    """The balance, what adding up the charges' epsilons would read, and the caller's own share."""
    delta = account.terms.delta
    charges = connection.execute(
        select(entries.c.units, func.count().label("times"))
        .where(entries.c.account_id == account.id, entries.c.kind == "post")
        .group_by(entries.c.units)
    )
    summed = sum(row.times * epsilon_of_units(row.units, delta) for row in charges)
    cap, committed = own_room(connection, account, me.id)
    share = None
    if cap is not None:
        left = min(cap - committed, account.remaining_units)
        share = {
            "epsilon_cap": epsilon_of_units(cap, delta),
            "epsilon_remaining": largest_epsilon(left, delta),
            "units_cap": cap,
            "units_committed": committed,
            "units_remaining": left,
        }
    return account.balance() | {"epsilon_summed": round(summed, 6), "share": share}


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
        )
        return budget_view(connection, me, account)


@router.get("/datasets/{dataset_id}/budget", response_model=BudgetView)
def get_budget(ctx: Ctx, me: Me, dataset_id: str) -> Any:
    with ctx.db.read() as connection:
        row = visible_dataset(connection, me, dataset_id)
        return budget_view(connection, me, _account(connection, row))


@router.post("/datasets/{dataset_id}/budget/top-ups", status_code=201, response_model=BudgetView)
def add_top_up(ctx: Ctx, me: Me, dataset_id: str, request: TopUpRequest) -> Any:
    """Raise the cap, at most to the ceiling: an entry of the ledger, with the owner's reason."""
    return _adjust(
        ctx,
        me,
        dataset_id,
        lambda connection, account: top_up(
            connection,
            account.id,
            cap_epsilon=request.epsilon_cap,
            principal_id=me.id,
            reason=request.reason,
        ),
    )


@router.post("/datasets/{dataset_id}/budget/freeze", response_model=BudgetView)
def freeze(ctx: Ctx, me: Me, dataset_id: str, request: ReasonRequest) -> Any:
    """Admit no more jobs to the account that this dataset spends from. Jobs admitted before run on."""
    return _set_frozen(ctx, me, dataset_id, True, request.reason)


@router.post("/datasets/{dataset_id}/budget/unfreeze", response_model=BudgetView)
def unfreeze(ctx: Ctx, me: Me, dataset_id: str, request: ReasonRequest) -> Any:
    return _set_frozen(ctx, me, dataset_id, False, request.reason)


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
    """Every entry of the account that this dataset spends from, in order."""
    with ctx.db.read() as connection:
        account = _account(connection, visible_dataset(connection, me, dataset_id))
        book = _book(account, kind, principal, job)
        rows, more = by_number(connection, entries.c.seq, book, limit, starting_after)
    data = [_entry_view(row, account) for row in rows]
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
    """The whole ledger as a table."""
    with ctx.db.read() as connection:
        account = _account(connection, visible_dataset(connection, me, dataset_id))

    def lines() -> Iterator[str]:
        yield _line(EntryView.model_fields)
        after, more = 0, True
        while more:
            with ctx.db.read() as connection:
                book = _book(account, kind, principal, job)
                rows, more = by_number(connection, entries.c.seq, book, 1000, after)
            for row in rows:
                view = EntryView.model_validate(_entry_view(row, account))
                yield _line(view.model_dump().values())
                after = row.seq

    name = f'attachment; filename="ledger-{account.id}.csv"'
    return StreamingResponse(lines(), headers={"Content-Disposition": name}, media_type="text/csv")


def _account(connection: Connection, dataset: Row[Any]) -> Account:
    account = find_account(connection, dataset.lineage_id)
    if account is None:
        raise BudgetNotSet("its owner sets it with PUT /v1/datasets/{id}/budget.")
    return account


def _adjust(
    ctx: Ctx, me: Me, dataset_id: str, change: Callable[[Connection, Account], Account]
) -> dict[str, Any]:
    with ctx.db.write() as connection:
        row = owned_dataset(connection, me, dataset_id)
        return budget_view(connection, me, change(connection, _account(connection, row)))


def _set_frozen(ctx: Ctx, me: Me, dataset_id: str, frozen: bool, reason: str) -> dict[str, Any]:
    return _adjust(
        ctx,
        me,
        dataset_id,
        lambda connection, account: set_frozen(
            connection, account.id, frozen=frozen, principal_id=me.id, reason=reason
        ),
    )


def _book(
    account: Account, kind: str | None, principal: str | None, job: str | None
) -> Select[Any]:
    given = {"kind": kind, "principal_id": principal, "job_id": job}
    query = select(entries).where(entries.c.account_id == account.id)
    for column, value in given.items():
        if value is not None:
            query = query.where(entries.c[column] == value)
    return query


def _entry_view(row: Row[Any], account: Account) -> dict[str, Any]:
    return {
        "account": row.account_id,
        "seq": row.seq,
        "kind": row.kind,
        "units": row.units,
        "epsilon": epsilon_of_units(row.units, account.terms.delta),
        "resolves": row.resolves_seq,
        "principal": row.principal_id,
        "dataset": row.dataset_id,
        "job": row.job_id,
        "reason": row.reason,
        "created_at": iso(row.created_ms),
    }


def _line(values: Any) -> str:
    """One line of CSV. A text that a spreadsheet would take for a formula gets a quote in front."""
    text = io.StringIO()
    csv.writer(text).writerow(
        f"'{value}" if isinstance(value, str) and value[:1] in FORMULA and value else value
        for value in values
    )
    return text.getvalue()
