"""Principals and their API keys.

A key ends with the key that it was minted by: it expires no later, and is revoked with it. So whoever
had a key for a while has nothing left once that key is revoked. An administrator may say otherwise,
and says so by minting a key for somebody else.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from sqlalchemy import ColumnElement, Connection, Row, Select, func, select, update
from sqlalchemy.exc import IntegrityError

from service.api.auth import Caller, Me, create_key, create_principal
from service.api.context import Ctx
from service.api.credentials import is_valid
from service.api.once import Once
from service.api.pages import After, Limit, Page, newest_first
from service.api.schemas.principals import (
    KeyRequest,
    KeyView,
    NewKeyView,
    PrincipalRequest,
    PrincipalView,
)
from service.db import iso, lock, now_ms
from service.errors import Forbidden, LastWayIn, NameTaken, NotFound, Unauthenticated
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
        "minted_by": row.minted_by,
        "outlives": row.outlives,
    }


@router.get("/me", response_model=PrincipalView)
def who_am_i(ctx: Ctx, me: Me) -> Any:
    with ctx.db.read() as connection:
        row = connection.execute(select(principals).where(principals.c.id == me.id)).one()
    return _principal_view(row)


@router.post("/principals", status_code=201, response_model=PrincipalView)
def add_principal(me: Me, once: Once, request: PrincipalRequest) -> Any:
    me.need("admin")

    def add(connection: Connection) -> Any:
        principal_id = create_principal(connection, request.name, request.role)
        found = select(principals).where(principals.c.id == principal_id)
        return _principal_view(connection.execute(found).one())

    try:
        return once.answer(add)
    except IntegrityError:
        raise NameTaken("somebody has this name already; choose another.") from None


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
def add_key(me: Me, once: Once, request: KeyRequest) -> Any:
    """A key for yourself; for others, as an administrator. The secret is shown once."""
    principal_id = request.principal or me.id
    outlives = principal_id != me.id if request.outlives is None else request.outlives
    if outlives or principal_id != me.id:
        me.need("admin")

    def add(connection: Connection) -> Any:
        _known(connection, principal_id)
        latest_ms = None if outlives else me.expires_ms
        return _new_key(connection, me, principal_id, request.expires_days, latest_ms, outlives)

    return once.answer(add)


@router.get("/keys", response_model=Page[KeyView])
def list_keys(ctx: Ctx, me: Me, limit: Limit = 20, starting_after: After = None) -> Any:
    query = select(api_keys)
    if me.role != "admin":
        query = query.where(api_keys.c.principal_id == me.id)
    with ctx.db.read() as connection:
        rows, more = newest_first(connection, api_keys, query, limit, starting_after)
    return {"data": [_key_view(row) for row in rows], "has_more": more, "url": "/v1/keys"}


@router.post("/keys/{key_id}/rotate", status_code=201, response_model=NewKeyView)
def rotate_key(me: Me, once: Once, key_id: str, request: KeyRequest | None = None) -> Any:
    """A new key for the same principal; the old one, and keys minted by it, stop working in the same
    moment. A key that rotates itself leaves its place to the new one."""
    expires_days = None if request is None else request.expires_days

    def rotate(connection: Connection) -> Any:
        mine = connection.execute(select(api_keys).where(api_keys.c.id == me.key)).one()
        row = _one(_end(connection, me, api_keys.c.id == key_id))
        if row.id == me.key:
            minted_by, outlives = mine.minted_by, mine.outlives
            free = me.role == "admin" and (outlives or minted_by is None)
        else:
            minted_by, outlives = me.key, row.principal_id != me.id
            free = outlives
        latest_ms = None if free else me.expires_ms
        made = create_key(
            connection, row.principal_id, expires_days, latest_ms, minted_by, outlives
        )
        return _made(connection, *made)

    return once.answer(rotate)


@router.delete("/keys/{key_id}", status_code=204)
def revoke_key(
    ctx: Ctx,
    me: Me,
    key_id: str,
    everything: Annotated[
        bool, Query(description="Administrators: also the keys made with it that outlive it.")
    ] = False,
) -> Response:
    """Revoke a key and the keys that were minted by it."""
    if everything:
        me.need("admin")
    with ctx.db.write() as connection:
        _one(_end(connection, me, api_keys.c.id == key_id, everything))
        _keep_a_way_in(connection, me)
    return Response(status_code=204)


@router.delete("/principals/{principal_id}/keys", status_code=204)
def revoke_keys(ctx: Ctx, me: Me, principal_id: str) -> Response:
    """Revoke all keys of a principal, your own or, as an administrator, anybody's; and the keys that
    were minted by them."""
    if principal_id != me.id:
        me.need("admin")
    with ctx.db.write() as connection:
        _known(connection, principal_id)
        _end(connection, me, api_keys.c.principal_id == principal_id)
        _keep_a_way_in(connection, me)
    return Response(status_code=204)


def _known(connection: Connection, principal_id: str) -> None:
    found = connection.execute(select(principals.c.id).where(principals.c.id == principal_id))
    if found.first() is None:
        raise NotFound("no principal has this id; GET /v1/principals lists them.")


def _one(rows: list[Row[Any]]) -> Row[Any]:
    if not rows:
        raise NotFound("no valid key of yours has this id; GET /v1/keys lists them.")
    return rows[0]


def _end(
    connection: Connection, me: Caller, which: ColumnElement[bool], everything: bool = False
) -> list[Row[Any]]:
    """Revoke these keys, as far as they are the caller's to revoke, and their heirs; returns them
    without the heirs."""
    if me.role == "admin":  # one at a time, so that two cannot revoke each other's last key
        admins = select(principals.c.id).where(principals.c.role == "admin")
        connection.execute(admins.order_by(principals.c.id).with_for_update(key_share=True)).all()
    else:
        which = which & (api_keys.c.principal_id == me.id)
        if connection.execute(_line(me.key, up=True).where(which, api_keys.c.id != me.key)).first():
            raise Forbidden(
                "a key cannot revoke the one it was made with; use that, or ask an administrator."
            )
    live = update(api_keys).where(api_keys.c.revoked_ms.is_(None)).values(revoked_ms=now_ms())
    ended = list(connection.execute(live.where(which).returning(api_keys)))
    for row in ended:
        heirs = live.where(api_keys.c.id.in_(_line(row.id, everything=everything)))
        while connection.execute(heirs.returning(api_keys.c.id)).all():
            pass  # again: one of them may just have minted another
    return ended


def _line(key_id: str, up: bool = False, everything: bool = False) -> Select[Any]:
    """The ids of a key and its heirs; or upwards, of those that it ends with."""
    line = select(api_keys.c.id, api_keys.c.minted_by, api_keys.c.outlives)
    line_cte = line.where(api_keys.c.id == key_id).cte(recursive=True)
    if up:
        following = line.join(
            line_cte, (api_keys.c.id == line_cte.c.minted_by) & ~line_cte.c.outlives
        )
    else:
        following = line.join(line_cte, api_keys.c.minted_by == line_cte.c.id)
        following = following if everything else following.where(~api_keys.c.outlives)
    whole = line_cte.union(following)
    return select(api_keys.c.id).where(api_keys.c.id.in_(select(whole.c.id)))


def _keep_a_way_in(connection: Connection, me: Caller) -> None:
    if me.role != "admin":
        return
    left = connection.execute(
        select(func.count())
        .select_from(api_keys)
        .join(principals, principals.c.id == api_keys.c.principal_id)
        .where(principals.c.role == "admin", is_valid(api_keys))
    ).scalar_one()
    if left == 0:
        raise LastWayIn("mint another administrator's key that outlives these, then revoke them.")


def _new_key(
    connection: Connection,
    me: Caller,
    principal_id: str,
    expires_days: int | None,
    latest_ms: int | None,
    outlives: bool,
) -> dict[str, Any]:
    """Under the lock of the key that it is made with: whoever revokes that finds this one too."""
    if lock(connection, api_keys, me.key).revoked_ms is not None:
        raise Unauthenticated("the key was revoked; ask an administrator for a new one.")
    made = create_key(connection, principal_id, expires_days, latest_ms, me.key, outlives)
    return _made(connection, *made)


def _made(connection: Connection, key_id: str, key: str) -> dict[str, Any]:
    row = connection.execute(select(api_keys).where(api_keys.c.id == key_id)).one()
    return _key_view(row) | {"key": key}
