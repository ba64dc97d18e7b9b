"""Idempotency-Key on what changes something: the same request sent again gets the same answer.

The answer is stored in the transaction that made the change, for a week, and wrapped by the master
key, since that of a new API key holds its secret. Jobs and groups have a table of their own, beside
their reservations (service/jobs/submit.py); quotes change nothing.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Header, Request, Response
from pydantic import TypeAdapter
from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import IntegrityError

from service.api.auth import Me
from service.api.context import Context, Ctx
from service.db import now_ms
from service.errors import IdempotencyConflict, Problem
from service.tables import answers

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=255,
        description="The same request with the same key gets the same answer for a week.",
    ),
]


@dataclass(frozen=True)
class _Once:
    ctx: Context
    principal_id: str
    key: str | None
    digest: str
    model: Any
    status: int

    def answer(self, act: Callable[[Connection], Any]) -> Any:
        """What `act` makes of one transaction, or the stored answer to the same request."""
        if self.key is None:
            with self.ctx.db.write() as connection:
                return act(connection)
        try:
            with self.ctx.db.write() as connection:
                if (earlier := self._earlier(connection)) is not None:
                    return earlier
                model = TypeAdapter(self.model)
                made = model.dump_json(model.validate_python(act(connection)), by_alias=True)
                wrapped = self.ctx.settings.keys.wrap(made, self._bound)
                values = {"request_digest": self.digest, "response": wrapped}
                own = {"principal_id": self.principal_id, "key": self.key}
                connection.execute(insert(answers).values(**own, **values, created_ms=now_ms()))
        except (IntegrityError, Problem):
            # the same key may have committed first, on another connection, and taken the name
            with self.ctx.db.read() as connection:
                if (earlier := self._earlier(connection)) is not None:
                    return earlier
            raise
        return Response(made, self.status, media_type="application/json")

    @property
    def _bound(self) -> str:
        return f"answer {self.principal_id} {self.key}"

    def _earlier(self, connection: Connection) -> Response | None:
        mine = (answers.c.principal_id == self.principal_id) & (answers.c.key == self.key)
        row = connection.execute(select(answers).where(mine)).first()
        if row is None:
            return None
        if row.request_digest != self.digest:
            raise IdempotencyConflict("send a new Idempotency-Key with a changed request.")
        made = self.ctx.settings.keys.unwrap(row.response, self._bound)
        replayed = {"Idempotent-Replayed": "true"}
        return Response(made, self.status, replayed, media_type="application/json")


async def _once(ctx: Ctx, me: Me, request: Request, key: Key = None) -> _Once:
    asked = f"{request.method} {request.url.path}\n".encode() + await request.body()
    route = request.scope["route"]
    return _Once(
        ctx=ctx,
        principal_id=me.id,
        key=key,
        digest=hashlib.sha256(asked).hexdigest(),
        model=route.response_model,
        status=route.status_code or 200,
    )


Once = Annotated[_Once, Depends(_once)]
