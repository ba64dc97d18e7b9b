"""The audit chain and the key that signs it."""

import json
from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query
from sqlalchemy import Connection, Row, select

from service.api.auth import Me, visible_dataset
from service.api.context import Ctx
from service.api.pages import AfterNumber, Limit, Page, by_number
from service.api.schemas.audit import HeadView, PublicKeyView, RecordView, VerificationView
from service.audit.verify import verify_chain, verify_record
from service.errors import NotFound
from service.tables import audit_records

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
    """The dataset's chain of signed records, in order: what `epsilond verify` reads."""
    with ctx.db.read() as connection:
        visible_dataset(connection, me, dataset_id)
        chain = select(audit_records).where(audit_records.c.dataset_id == dataset_id)
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
    that does not trust this service is `epsilond verify` on the exported chain."""
    key = ctx.settings.keys.public_hex()

    def answer() -> dict[str, Any]:
        with ctx.db.read() as connection:
            dataset = visible_dataset(connection, me, dataset_id)
            if seq is None:
                checked = dataset.chain_length
                findings = verify_chain(_chain(connection, dataset_id), key, dataset.chain_head)
            else:
                pair = list(_chain(connection, dataset_id, seq - 1, 2 if seq > 1 else 1))
                if not pair or pair[-1]["body"].get("seq") != seq:
                    raise NotFound(
                        "the chain has no record of this number; GET .../audit/head says its length."
                    )
                checked = 1
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


def _chain(
    connection: Connection, dataset_id: str, first: int = 1, count: int | None = None
) -> Iterator[dict[str, Any]]:
    query = (
        select(audit_records)
        .where(audit_records.c.dataset_id == dataset_id, audit_records.c.seq >= first)
        .order_by(audit_records.c.seq)
        .limit(count)
        .execution_options(yield_per=100)
    )
    return (record_view(row) for row in connection.execute(query))


@router.get("/audit/public-key", response_model=PublicKeyView)
def public_key(ctx: Ctx) -> Any:
    """Needs no key: anyone may verify."""
    return {"public_key": ctx.settings.keys.public_hex()}
