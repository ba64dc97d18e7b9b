"""Who is calling, and what they may see.

A key is `eps_<prefix>_<secret>`: the prefix finds the row, the SHA-256 of the whole is compared in
constant time. Secrets are 32 random bytes, so a plain hash suffices. Whatever a caller may not see
answers 404, so that a foreign id is never confirmed.
"""

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy import Connection, Row, insert, select

from service.api.context import Ctx
from service.db import new_id, now_ms
from service.errors import Forbidden, NotFound, Unauthenticated
from service.tables import api_keys, datasets, grants, jobs, principals

_bearer = HTTPBearer(auto_error=False, description="An API key: eps_...")


@dataclass(frozen=True)
class Caller:
    id: str
    name: str
    role: str
    expires_ms: int | None

    def need(self, *roles: str) -> None:
        if self.role not in roles:
            raise Forbidden(f"this needs the role {' or '.join(roles)}; this key is {self.role}'s.")


def _caller(
    ctx: Ctx, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)]
) -> Caller:
    if credentials is None:
        raise Unauthenticated("send it as Authorization: Bearer eps_...")
    parts = credentials.credentials.split("_")
    query = (
        select(api_keys, principals.c.name, principals.c.role, now_ms().label("now"))
        .join(principals, principals.c.id == api_keys.c.principal_id)
        .where(api_keys.c.prefix == (parts[1] if len(parts) == 3 else ""))
    )
    with ctx.db.read() as connection:
        row = connection.execute(query).first()
    digest = key_hash(credentials.credentials)
    if row is None or not hmac.compare_digest(row.hash, digest):
        raise Unauthenticated("the key is not known.")
    if row.revoked_ms is not None or (row.expires_ms is not None and row.expires_ms <= row.now):
        raise Unauthenticated("the key has expired or was revoked.")
    return Caller(id=row.principal_id, name=row.name, role=row.role, expires_ms=row.expires_ms)


Me = Annotated[Caller, Depends(_caller)]


def key_hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def create_key(
    connection: Connection,
    principal_id: str,
    expires_days: int | None = None,
    latest_ms: int | None = None,
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
        raise NotFound("no dataset of yours has this id.")
    return row


def owned_dataset(connection: Connection, me: Caller, dataset_id: str) -> Row[Any]:
    row = visible_dataset(connection, me, dataset_id)
    if row.owner_id != me.id:
        raise Forbidden("only the dataset's owner may do that.")
    return row


def usable_dataset(connection: Connection, me: Caller, dataset_id: str) -> Row[Any]:
    """For jobs and quotes: the owner's own, or one that an analyst was granted."""
    row = visible_dataset(connection, me, dataset_id)
    if row.owner_id != me.id and not _granted(connection, me, row.id):
        raise Forbidden("jobs are for the dataset's owner and the analysts they granted it to.")
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
        raise NotFound("no job of yours has this id.")
    return row


def _granted(connection: Connection, me: Caller, dataset_id: str) -> bool:
    query = select(grants.c.dataset_id).where(
        grants.c.dataset_id == dataset_id, grants.c.principal_id == me.id
    )
    return connection.execute(query).first() is not None
