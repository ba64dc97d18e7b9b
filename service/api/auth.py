"""Who is calling, and what they may see.

A caller sends a key with every request, or the cookie of a session that a key opened
(service/api/sessions.py). A key is `eps_<prefix>_<secret>`: the prefix finds the row, the SHA-256 of
the whole is compared in constant time. Secrets are 32 random bytes, so a plain hash suffices. Whatever
a caller may not see answers 404, so that a foreign id is never confirmed.
"""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from anyio import to_thread
from fastapi import Depends, Request, Security
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import Connection, Row, bindparam, insert, select, update
from starlette.requests import HTTPConnection

from service.api.context import Context, Ctx
from service.api.credentials import is_valid, key_hash
from service.db import new_id, now_ms
from service.errors import Forbidden, NotFound, Unauthenticated
from service.tables import api_keys, datasets, grants, jobs, principals, sessions

COOKIE = "epsilond_session"
CSRF_HEADER = "X-CSRF-Token"
SAFE = ("GET", "HEAD", "OPTIONS")
CALLERS_MAX = 4096  # that a process remembers
_bearer = HTTPBearer(auto_error=False, description="An API key: eps_...")


def cookie_name(request: HTTPConnection) -> str:
    """Over https a name that browsers keep for Secure cookies of this host alone, so that no page of a
    neighbouring host and no plain connection can put a session of its own in its place."""
    return f"__Host-{COOKIE}" if request.url.scheme == "https" else COOKIE


def session_token(request: HTTPConnection) -> str | None:
    """The value of the cookie of exactly this name, if there is one and no other. Browsers guard the
    bytes of the name; a parser that also strips 0xA0, or takes the last of two, would undo that."""
    name = cookie_name(request).encode()
    sent = b";".join(value for key, value in request.scope["headers"] if key == b"cookie")
    pairs = (pair.strip(b" \t").partition(b"=") for pair in sent.split(b";"))
    found = [value for key, _, value in pairs if key == name]
    return found[0].decode("latin-1") if len(found) == 1 else None


class _SessionCookie(APIKeyCookie):
    async def __call__(self, request: HTTPConnection) -> str | None:
        return session_token(request)


_cookie = _SessionCookie(
    scheme_name="APIKeyCookie",
    name=COOKIE,
    auto_error=False,
    description="A session from POST /v1/session; __Host- stands before the name over https. Unsafe "
    f"methods also need {CSRF_HEADER}.",
)


@dataclass(frozen=True)
class Caller:
    id: str
    name: str
    role: str
    expires_ms: int | None  # of the key
    credential: str  # the id of the key or session
    key: str = ""  # the id of the key, also that of a session

    def need(self, *roles: str) -> None:
        if self.role not in roles:
            raise Forbidden(f"this needs the role {' or '.join(roles)}; yours is {self.role}.")


def _caller(
    ctx: Ctx,
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
    token: Annotated[str | None, Security(_cookie)],
) -> Caller:
    if credentials is not None:
        return caller_of_key(ctx, credentials.credentials)
    if token is None:
        raise Unauthenticated("send it as Authorization: Bearer eps_..., or POST /v1/session.")
    me = _caller_of_session(ctx, token)
    if request.method not in SAFE:
        given = request.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(given.encode(), csrf_token(token).encode()):
            raise Forbidden(f"with a session, send {CSRF_HEADER}; GET /v1/session says its value.")
    return me


@dataclass(frozen=True)
class Presumed:
    """Who a request comes from, if their key is still good: that is for whoever acts on it to find
    out, in the transaction that acts. All else waits for `certain`."""

    me: Caller
    certain: Callable[[], Caller]


async def _presumed(
    ctx: Ctx,
    request: Request,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
    token: Annotated[str | None, Security(_cookie)],
) -> Presumed:
    known = None
    if credentials is not None:
        known = ctx.callers.get(key_hash(credentials.credentials))
    if known is None:
        me = await to_thread.run_sync(_caller, ctx, request, credentials, token)
        return Presumed(me, lambda: me)
    who = Presumed(known, partial(_caller, ctx, request, credentials, token))
    request.state.presumed = who  # a malformed request has no transaction: problems.py
    return who


_KEY = (
    select(api_keys, principals.c.name, principals.c.role, is_valid(api_keys).label("valid"))
    .join(principals, principals.c.id == api_keys.c.principal_id)
    .where(api_keys.c.prefix == bindparam("prefix"))
)


def caller_of_key(ctx: Context, key: str) -> Caller:
    parts, digest = key.split("_"), key_hash(key)
    ctx.callers.pop(digest, None)
    with ctx.db.read() as connection:
        row = connection.execute(_KEY, {"prefix": parts[1] if len(parts) == 3 else ""}).first()
    if row is None or not hmac.compare_digest(row.hash, digest):
        raise Unauthenticated("the key is not known; check it, or ask an administrator for one.")
    if not row.valid:
        raise Unauthenticated(
            "the key has expired or was revoked; ask an administrator for a new one."
        )
    me = Caller(row.principal_id, row.name, row.role, row.expires_ms, row.id, row.id)
    if len(ctx.callers) >= CALLERS_MAX:
        ctx.callers.clear()
    ctx.callers[digest] = me
    return me


def _caller_of_session(ctx: Context, token: str) -> Caller:
    """The owner of a session, which is prolonged once half of its time has passed unused."""
    query = (
        select(
            sessions,
            principals.c.id.label("principal_id"),
            principals.c.name,
            principals.c.role,
            api_keys.c.expires_ms.label("key_expires_ms"),
            (is_valid(sessions) & is_valid(api_keys)).label("valid"),
            now_ms().label("now"),
        )
        .join(api_keys, api_keys.c.id == sessions.c.key_id)
        .join(principals, principals.c.id == api_keys.c.principal_id)
        .where(sessions.c.hash == key_hash(token))
    )
    with ctx.db.read() as connection:
        row = connection.execute(query).first()
    if row is None or not row.valid:
        raise Unauthenticated("the session has ended; sign in again with POST /v1/session.")
    idle_ms = int(ctx.settings.session_seconds * 1000)
    later = min(row.now + idle_ms, row.ends_ms)
    if row.expires_ms - row.now < idle_ms / 2 and later > row.expires_ms:
        with ctx.db.write() as connection:
            connection.execute(
                update(sessions).where(sessions.c.id == row.id).values(expires_ms=later)
            )
    return Caller(row.principal_id, row.name, row.role, row.key_expires_ms, row.id, row.key_id)


def csrf_token(token: str) -> str:
    """A function of the session's token that a page may hold; the cookie itself it cannot read."""
    return hashlib.sha256(f"csrf {token}".encode()).hexdigest()


Me = Annotated[Caller, Depends(_caller)]
Who = Annotated[Presumed, Depends(_presumed)]


def create_key(
    connection: Connection,
    principal_id: str,
    expires_days: int | None = None,
    latest_ms: int | None = None,
    minted_by: str | None = None,
    outlives: bool = False,
) -> tuple[str, str]:
    """A new key for a principal: its id, and the secret that is shown once and never stored."""
    now: int = connection.execute(select(now_ms())).scalar_one()
    ends = [latest_ms, None if expires_days is None else now + expires_days * 86_400_000]
    key_id, prefix = new_id("key"), secrets.token_hex(6)
    key = f"eps_{prefix}_{secrets.token_hex(32)}"
    connection.execute(
        insert(api_keys).values(
            id=key_id,
            principal_id=principal_id,
            prefix=prefix,
            hash=key_hash(key),
            created_ms=now,
            expires_ms=min((end for end in ends if end is not None), default=None),
            minted_by=minted_by,
            outlives=outlives,
        )
    )
    return key_id, key


def create_principal(connection: Connection, name: str, role: str) -> str:
    principal_id = new_id("prn")
    connection.execute(
        insert(principals).values(id=principal_id, name=name, role=role, created_ms=now_ms())
    )
    return principal_id


def visible_dataset(connection: Connection, me: Caller, dataset_id: str) -> Row[Any]:
    row = connection.execute(select(datasets).where(datasets.c.id == dataset_id)).first()
    if row is None or not (
        me.role in ("admin", "auditor") or row.owner_id == me.id or _granted(connection, me, row.id)
    ):
        raise NotFound("no dataset of yours has this id; GET /v1/datasets lists them.")
    return row


def sees_all(me: Caller, dataset: Row[Any]) -> bool:
    """Whether the caller sees all of this dataset's ledger and chain, and not only what is theirs: its
    owner, auditors, administrators; analysts where the owner has shared it."""
    return me.role in ("admin", "auditor") or dataset.owner_id == me.id or dataset.shared_ledger


def owned_dataset(connection: Connection, me: Caller, dataset_id: str) -> Row[Any]:
    row = visible_dataset(connection, me, dataset_id)
    if row.owner_id != me.id:
        raise Forbidden("only the dataset's owner may do that; ask them.")
    return row


def usable_dataset(connection: Connection, me: Caller, dataset_id: str) -> Row[Any]:
    """For jobs and quotes: the owner's own, or one that an analyst was granted."""
    query = select(datasets).where(datasets.c.id == dataset_id)
    if me.role == "analyst":
        mine = (grants.c.dataset_id == datasets.c.id) & (grants.c.principal_id == me.id)
        query = query.join(grants, mine)
    row = connection.execute(query).first()
    if row is None or (me.role != "analyst" and row.owner_id != me.id):
        visible_dataset(connection, me, dataset_id)
        raise Forbidden(
            "only the dataset's owner and those it was granted to may run jobs on it; ask the owner."
        )
    return row


def visible_job(connection: Connection, me: Caller, job_id: str) -> Row[Any]:
    """The submitter's, the dataset owner's, and those of auditors and administrators."""
    row = connection.execute(
        select(jobs, datasets.c.owner_id)
        .join(datasets, datasets.c.id == jobs.c.dataset_id)
        .where(jobs.c.id == job_id)
    ).first()
    if row is None or not (
        me.role in ("admin", "auditor") or me.id in (row.principal_id, row.owner_id)
    ):
        raise NotFound("no job of yours has this id; GET /v1/jobs lists them.")
    return row


def _granted(connection: Connection, me: Caller, dataset_id: str) -> bool:
    query = select(grants.c.dataset_id).where(
        grants.c.dataset_id == dataset_id, grants.c.principal_id == me.id
    )
    return connection.execute(query).first() is not None
