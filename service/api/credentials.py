"""Keys and sessions that are good at this moment."""

import hashlib
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, or_, select, union_all

from service.db import now_ms
from service.tables import api_keys, sessions


def key_hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def is_valid(table: Any) -> ColumnElement[bool]:
    """A key or a session that is neither revoked nor expired."""
    unexpired = or_(table.c.expires_ms.is_(None), table.c.expires_ms > now_ms())
    return and_(table.c.revoked_ms.is_(None), unexpired)


_KEYS = select(api_keys.c.id).where(
    api_keys.c.id.in_(bindparam("credentials", expanding=True)), is_valid(api_keys)
)
_SESSIONS = (
    select(sessions.c.id)
    .join(api_keys, api_keys.c.id == sessions.c.key_id)
    .where(
        sessions.c.id.in_(bindparam("credentials", expanding=True)),
        is_valid(sessions),
        is_valid(api_keys),
    )
)
_VALID = union_all(_KEYS, _SESSIONS)


def valid_credentials(connection: Connection, credentials: set[str]) -> set[str]:
    """Those of these keys and sessions that are neither revoked nor expired."""
    return set(connection.execute(_VALID, {"credentials": sorted(credentials)}).scalars())
