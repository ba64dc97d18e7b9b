"""Around every request: an id that comes back in a header, and a bound on the body, counted as it
arrives and once it is inflated, so that nothing larger is ever held. Around every answer: what belongs
to one caller is kept by nobody in between, and is what its type says."""

import contextlib
import re
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from service.api.inflate import Inflated
from service.api.problems import problem_response
from service.errors import BodyTooLarge, NotFound, Problem, UnsupportedMediaType

PRIVATE = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"private, no-cache"),
    (b"vary", b"Authorization, Cookie"),
)
UPLOAD = re.compile(r"/v1/datasets/[^/]+/data")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class Limits:
    def __init__(self, app: App, body_bytes: int, upload_bytes: int) -> None:
        self._app, self._body_bytes, self._upload_bytes = app, body_bytes, upload_bytes

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        upload = scope["method"] == "PUT" and UPLOAD.fullmatch(scope["path"])
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            nothing = NotFound(
                "there is nothing at this address; GET /openapi.json lists what there is."
            )
            await problem_response(nothing)(scope, receive, send)
            return
        limit = self._upload_bytes if upload else self._body_bytes
        given = dict(scope["headers"]).get(b"x-request-id", b"")[:64]
        request_id = given if given.isalnum() else secrets.token_hex(8).encode()
        encoding = dict(scope["headers"]).get(b"content-encoding", b"identity").strip().lower()
        if encoding not in (b"identity", b"gzip"):
            unknown = UnsupportedMediaType("Content-Encoding is gzip, or is left out.")
            await problem_response(unknown, scope["path"])(scope, receive, send)
            return
        take = Inflated(receive) if encoding == b"gzip" else receive
        received = 0
        refusal: Problem | None = None

        async def counted() -> Message:
            nonlocal received, refusal
            try:
                message = await take()
                received += len(message.get("body", b""))
                if received > limit:
                    raise BodyTooLarge(
                        f"at most {limit} bytes are accepted here; send less.", limit=limit
                    )
            except Problem as problem:
                refusal = problem
                raise
            return message

        async def labelled(message: Message) -> None:
            if refusal is not None:
                return  # whatever the application makes of a body cut short, ours is the answer
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *_unless_said(message["headers"]),
                    (b"x-request-id", request_id),
                ]
            await send(message)

        with contextlib.suppress(Problem):
            await self._app(scope, counted, labelled)
        if refusal is not None:
            problem, refusal = refusal, None
            await problem_response(problem, scope["path"])(scope, receive, labelled)


def _unless_said(headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    said = {name for name, _ in headers}
    return [(name, value) for name, value in PRIVATE if name not in said]
