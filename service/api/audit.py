"""The audit chain and the key that signs it."""

import json
from typing import Any

from fastapi import APIRouter
from sqlalchemy import Row, select

from service.api.auth import Me, visible_dataset
from service.api.context import Ctx
from service.api.pages import AfterNumber, Limit, Page, by_number
from service.api.shapes import PublicKeyShape, RecordShape
from service.tables import audit_records

router = APIRouter(tags=["audit"])


def record_view(row: Row[Any]) -> dict[str, Any]:
    return {"body": json.loads(row.body), "hash": row.hash, "signature": row.signature}


@router.get("/datasets/{dataset_id}/audit", response_model=Page[RecordShape])
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


@router.get("/audit/public-key", response_model=PublicKeyShape)
def public_key(ctx: Ctx) -> Any:
    """Needs no key: anyone may verify."""
    return {"public_key": ctx.settings.keys.public_hex()}
