"""The audit chain and the key that signs it."""

import json
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import BigInteger, Row, Select, literal, select

from service.api.auth import Me, sees_all, visible_dataset
from service.api.context import Ctx
from service.api.pages import AfterNumber, Limit, Page, by_number
from service.api.schemas.audit import HeadView, PublicKeyView, RecordView, VerificationView
from service.audit.verify import verify_chain, verify_record
from service.db import Database
from service.errors import NotFound
from service.tables import audit_records, jobs

router = APIRouter(tags=["audit"])


def record_view(row: Row[Any]) -> dict[str, Any]:
    return {"body": json.loads(row.body), "hash": row.hash, "signature": row.signature}


@router.get("/datasets/{dataset_id}/audit", response_model=Page[RecordView])
def list_records(
    ctx: Ctx,
    me: Me,
    dataset_id: str,
    limit: Limit = 100,
    starting_after: AfterNumber = 0,
) -> Any:
    """The dataset's chain of signed records, in order: what `epsilond verify` reads. To an analyst,
    unless the owner shares the ledger, only the records of their own jobs."""
    with ctx.db.read() as connection:
        chain = _visible(me, visible_dataset(connection, me, dataset_id))
        rows, more = by_number(connection, audit_records.c.seq, chain, limit, starting_after)
    data = [record_view(row) for row in rows]
    return {"data": data, "has_more": more, "url": f"/v1/datasets/{dataset_id}/audit"}


@router.get("/datasets/{dataset_id}/audit/head", response_model=HeadView)
def get_head(ctx: Ctx, me: Me, dataset_id: str) -> Any:
    """What to keep outside: a chain that no longer contains this hash has lost releases."""
    with ctx.db.read() as connection:
        row = visible_dataset(connection, me, dataset_id)
    return {
        "dataset": dataset_id,
        "length": row.chain_length,
        "hash": row.chain_head,
        "public_key": ctx.settings.keys.public_hex(),
    }


@router.get("/datasets/{dataset_id}/audit/verification", response_model=VerificationView)
async def verify(
    ctx: Ctx,
    me: Me,
    dataset_id: str,
    seq: Annotated[int | None, Query(ge=1, le=2**62, description="One record only.")] = None,
) -> Any:
    """Verify the whole chain as it is stored, or one record and its link to the one before. A proof
    that does not trust this service is `epsilond verify` on the exported chain. The whole chain is
    verified for whoever may see a part of it; of records that they may not see, only findings."""
    key = ctx.settings.keys.public_hex()

    def answer() -> dict[str, Any]:
        with ctx.db.read() as connection:
            dataset = visible_dataset(connection, me, dataset_id)
            own = _visible(me, dataset).where(audit_records.c.seq == literal(seq, BigInteger))
            if seq is not None and connection.execute(own).first() is None:
                raise NotFound(
                    "no record of yours has this number; GET .../audit lists those that you may see."
                )
        if seq is None:
            checked = dataset.chain_length
            chain = _chain(ctx.db, dataset_id, 1, checked)
            findings = verify_chain(chain, key, dataset.chain_head)
        else:
            checked = 1
            pair = list(_chain(ctx.db, dataset_id, max(1, seq - 1), seq))
            findings = verify_record(pair[-1], pair[0] if seq > 1 else None, key)
        return {
            "dataset": dataset_id,
            "seq": seq,
            "records": checked,
            "head": dataset.chain_head,
            "verified": not findings,
            "findings": findings[:100],
        }

    return await ctx.limiter.run(me.id, answer)


def _visible(me: Me, dataset: Row[Any]) -> Select[Any]:
    records = select(audit_records).where(audit_records.c.dataset_id == dataset.id)
    if sees_all(me, dataset):
        return records
    own = select(jobs.c.id).where(jobs.c.principal_id == me.id, jobs.c.dataset_id == dataset.id)
    return records.where(audit_records.c.job_id.in_(own))


def _chain(db: Database, dataset_id: str, first: int, last: int) -> Iterator[dict[str, Any]]:
    """A part of the chain, page by page: nobody holds a transaction while Plans are made again."""
    number = audit_records.c.seq
    chain = select(audit_records).where(audit_records.c.dataset_id == dataset_id, number <= last)
    more = True
    while more:
        with db.read() as connection:
            rows, more = by_number(connection, number, chain, 100, first - 1)
        yield from map(record_view, rows)
        first += len(rows)


@router.get("/audit/public-key", response_model=PublicKeyView)
def public_key(ctx: Ctx) -> Any:
    """Needs no key: anyone may verify."""
    return {"public_key": ctx.settings.keys.public_hex()}
