"""A dataset's budget and the ledger behind it."""

from typing import Any

from fastapi import APIRouter
from sqlalchemy import select

from service.api.auth import Me, owned_dataset, visible_dataset
from service.api.context import Ctx
from service.api.pages import AfterNumber, Limit, Page, by_number
from service.api.shapes import BudgetRequest, BudgetShape, EntryShape
from service.db import iso, lock
from service.errors import BudgetNotSet, DatasetNotReady
from service.ledger.accounts import find_account, open_account
from service.tables import entries, lineages

router = APIRouter(tags=["budget"])


@router.put("/datasets/{dataset_id}/budget", status_code=201, response_model=BudgetShape)
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
    return account.balance()


@router.get("/datasets/{dataset_id}/budget", response_model=BudgetShape)
def get_budget(ctx: Ctx, me: Me, dataset_id: str) -> Any:
    with ctx.db.read() as connection:
        account = find_account(connection, visible_dataset(connection, me, dataset_id).lineage_id)
    if account is None:
        raise BudgetNotSet("its owner sets it with PUT on this address.")
    return account.balance()


@router.get("/datasets/{dataset_id}/ledger", response_model=Page[EntryShape])
def list_ledger(
    ctx: Ctx,
    me: Me,
    dataset_id: str,
    limit: Limit = 100,
    starting_after: AfterNumber = 0,
) -> Any:
    """Every entry of the account that this dataset spends from, in order."""
    with ctx.db.read() as connection:
        account = find_account(connection, visible_dataset(connection, me, dataset_id).lineage_id)
        if account is None:
            raise BudgetNotSet("there is no ledger before there is a budget.")
        book = select(entries).where(entries.c.account_id == account.id)
        rows, more = by_number(connection, entries.c.seq, book, limit, starting_after)
    data = [
        {
            "account": row.account_id,
            "seq": row.seq,
            "kind": row.kind,
            "units": row.units,
            "resolves": row.resolves_seq,
            "principal": row.principal_id,
            "dataset": row.dataset_id,
            "job": row.job_id,
            "reason": row.reason,
            "created_at": iso(row.created_ms),
        }
        for row in rows
    ]
    return {"data": data, "has_more": more, "url": f"/v1/datasets/{dataset_id}/ledger"}
