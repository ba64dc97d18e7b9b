"""Sign in with a key, stay signed in by a cookie that scripts cannot read.

The cookie goes with same-site requests only (SameSite=Strict), and a request that changes something
needs a second token in a header, which a foreign page can neither read nor send. A session ends with
its key.
"""

import secrets
from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy import insert, select, update

from service.api.auth import Me, caller_of_key, cookie_name, csrf_token, session_token
from service.api.context import Ctx
from service.api.credentials import key_hash
from service.api.schemas.principals import SessionRequest, SessionView
from service.db import iso, new_id, now_ms
from service.errors import Forbidden, Unauthenticated
from service.tables import api_keys, principals, sessions

router = APIRouter(tags=["session"])


@router.post("/session", status_code=201, response_model=SessionView)
def sign_in(ctx: Ctx, request: SessionRequest, http: Request, response: Response) -> Any:
    """Exchange a key for a session cookie. Needs no key but the one in the body."""
    if http.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Forbidden("only a page of this service may sign a browser in; open the dashboard.")
    me = caller_of_key(ctx, request.key.strip())
    token, session_id = secrets.token_urlsafe(32), new_id("ses")
    longest = int(ctx.settings.session_seconds_max)
    idle = min(int(ctx.settings.session_seconds), longest)
    with ctx.db.write() as connection:
        now: int = connection.execute(select(now_ms())).scalar_one()
        connection.execute(
            insert(sessions).values(
                id=session_id,
                key_id=me.credential,
                hash=key_hash(token),
                created_ms=now,
                expires_ms=now + idle * 1000,
                ends_ms=now + longest * 1000,
            )
        )
    response.set_cookie(cookie_name(http), token, max_age=longest, **_attributes(http))
    return _view(ctx, session_id, token)


@router.get("/session", response_model=SessionView)
def who_is_signed_in(ctx: Ctx, me: Me, http: Request) -> Any:
    """Who is signed in with this browser, and the token that its changes need."""
    return _view(ctx, me.credential, session_token(http) or "")


@router.delete("/session", status_code=204)
def sign_out(ctx: Ctx, me: Me, http: Request) -> Response:
    with ctx.db.write() as connection:
        connection.execute(
            update(sessions).where(sessions.c.id == me.credential).values(revoked_ms=now_ms())
        )
    response = Response(status_code=204)
    response.delete_cookie(cookie_name(http), **_attributes(http))
    return response


def _attributes(http: Request) -> dict[str, Any]:
    return {
        "path": "/",
        "httponly": True,
        "samesite": "strict",
        "secure": http.url.scheme == "https",
    }


def _view(ctx: Ctx, session_id: str, token: str) -> dict[str, Any]:
    query = (
        select(
            sessions,
            api_keys.c.principal_id,
            principals.c.name,
            principals.c.role,
            principals.c.created_ms.label("since_ms"),
        )
        .join(api_keys, api_keys.c.id == sessions.c.key_id)
        .join(principals, principals.c.id == api_keys.c.principal_id)
        .where(sessions.c.id == session_id)
    )
    with ctx.db.read() as connection:
        row = connection.execute(query).first()
    if row is None or row.hash != key_hash(token):
        raise Unauthenticated("this request came with a key; POST /v1/session opens a session.")
    principal = {
        "id": row.principal_id,
        "name": row.name,
        "role": row.role,
        "created_at": iso(row.since_ms),
    }
    return {
        "id": row.id,
        "principal": principal,
        "csrf": csrf_token(token),
        "created_at": iso(row.created_ms),
        "expires_at": iso(row.expires_ms),
        "ends_at": iso(row.ends_ms),
    }
