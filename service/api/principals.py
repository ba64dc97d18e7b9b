"""Principals and their API keys."""

from typing import Any

from fastapi import APIRouter, Response
from sqlalchemy import Connection, Row, select, update
from sqlalchemy.exc import IntegrityError

from service.api.auth import Caller, Me, create_key, create_principal
from service.api.context import Ctx
from service.api.pages import After, Limit, Page, newest_first
from service.api.schemas.principals import (
    KeyRequest,
    KeyView,
    NewKeyView,
    PrincipalRequest,
    PrincipalView,
)
from service.db import iso, now_ms
from service.errors import InvalidRequest, NotFound
from service.tables import api_keys, principals

router = APIRouter(tags=["principals"])


def _principal_view(row: Row[Any]) -> dict[str, Any]:
    return {"id": row.id, "name": row.name, "role": row.role, "created_at": iso(row.created_ms)}


def _key_view(row: Row[Any]) -> dict[str, Any]:
    return {
        "id": row.id,
        "principal": row.principal_id,
        "prefix": row.prefix,
        "created_at": iso(row.created_ms),
        "expires_at": iso(row.expires_ms),
        "revoked_at": iso(row.revoked_ms),
    }


@router.get("/me", response_model=PrincipalView)
def who_am_i(ctx: Ctx, me: Me) -> Any:
    with ctx.db.read() as connection:
        row = connection.execute(select(principals).where(principals.c.id == me.id)).one()
    return _principal_view(row)


@router.post("/principals", status_code=201, response_model=PrincipalView)
def add_principal(ctx: Ctx, me: Me, request: PrincipalRequest) -> Any:
    me.need("admin")
    try:
        with ctx.db.write() as connection:
            principal_id = create_principal(connection, request.name, request.role)
            row = connection.execute(
                select(principals).where(principals.c.id == principal_id)
            ).one()
    except IntegrityError:
        raise InvalidRequest("somebody has this name already; choose another.") from None
    return _principal_view(row)


@router.get("/principals", response_model=Page[PrincipalView])
def list_principals(ctx: Ctx, me: Me, limit: Limit = 20, starting_after: After = None) -> Any:
    """Administrators see everyone; owners see the analysts whom they may grant a dataset to."""
    me.need("admin", "owner")
    query = select(principals)
    if me.role == "owner":
        query = query.where(principals.c.role == "analyst")
    with ctx.db.read() as connection:
        rows, more = newest_first(connection, principals, query, limit, starting_after)
    return {"data": [_principal_view(r) for r in rows], "has_more": more, "url": "/v1/principals"}


@router.post("/keys", status_code=201, response_model=NewKeyView)
def add_key(ctx: Ctx, me: Me, request: KeyRequest) -> Any:
    """A key for yourself; for others, as an administrator. The secret is shown once."""
    principal_id = request.principal or me.id
    if principal_id != me.id:
        me.need("admin")
    with ctx.db.write() as connection:
        if (
            connection.execute(
                select(principals.c.id).where(principals.c.id == principal_id)
            ).first()
            is None
        ):
            raise NotFound("no principal has this id; GET /v1/principals lists them.")
        return _new_key(connection, me, principal_id, request.expires_days)


@router.get("/keys", response_model=Page[KeyView])
def list_keys(ctx: Ctx, me: Me, limit: Limit = 20, starting_after: After = None) -> Any:
    query = select(api_keys)
    if me.role != "admin":
        query = query.where(api_keys.c.principal_id == me.id)
    with ctx.db.read() as connection:
        rows, more = newest_first(connection, api_keys, query, limit, starting_after)
    return {"data": [_key_view(row) for row in rows], "has_more": more, "url": "/v1/keys"}


@router.post("/keys/{key_id}/rotate", status_code=201, response_model=NewKeyView)
def rotate_key(ctx: Ctx, me: Me, key_id: str, request: KeyRequest | None = None) -> Any:
    """A new key for the same principal; the old one stops working in the same moment."""
    expires_days = None if request is None else request.expires_days
    with ctx.db.write() as connection:
        row = _revoke(connection, me, key_id)
        return _new_key(connection, me, row.principal_id, expires_days)


@router.delete("/keys/{key_id}", status_code=204)
def revoke_key(ctx: Ctx, me: Me, key_id: str) -> Response:
    with ctx.db.write() as connection:
        _revoke(connection, me, key_id)
    return Response(status_code=204)


def _revoke(connection: Connection, me: Caller, key_id: str) -> Row[Any]:
    live = update(api_keys).where(api_keys.c.id == key_id, api_keys.c.revoked_ms.is_(None))
    if me.role != "admin":
        live = live.where(api_keys.c.principal_id == me.id)
    row = connection.execute(live.values(revoked_ms=now_ms()).returning(api_keys)).first()
    if row is None:
        raise NotFound("no valid key of yours has this id; GET /v1/keys lists them.")
    return row


def _new_key(
    connection: Connection, me: Caller, principal_id: str, expires_days: int | None
) -> dict[str, Any]:
    """A key that expires makes none that outlive it; an administrator's may."""
    latest_ms = None if me.role == "admin" else me.expires_ms
    key_id, key = create_key(connection, principal_id, expires_days, latest_ms)
    row = connection.execute(select(api_keys).where(api_keys.c.id == key_id)).one()
    return _key_view(row) | {"key": key}
