"""ETag and If-None-Match on every JSON answer to a GET: unchanged answers leave as an empty 304."""

import hashlib

from service.api.limits import App, Message, Receive, Send


def etag(body: bytes) -> str:
    return f'"{hashlib.sha256(body).hexdigest()[:32]}"'


def matches(if_none_match: str | None, tag: str) -> bool:
    given = [item.strip().removeprefix("W/") for item in (if_none_match or "").split(",")]
    return "*" in given or tag in given


class Conditional:
    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        asked = dict(scope["headers"]).get(b"if-none-match", b"").decode("latin-1")
        held: Message | None = None
        body = b""

        async def tagged(message: Message) -> None:
            nonlocal held, body
            if message["type"] == "http.response.start" and _is_json(message):
                held = message
                return
            if held is None:
                await send(message)
                return
            body += message.get("body", b"")
            if message.get("more_body"):
                return
            tag = etag(body)
            held["headers"] = [*held["headers"], (b"etag", tag.encode())]
            if matches(asked, tag):
                dropped = (b"content-length", b"content-type")
                headers = [(k, v) for k, v in held["headers"] if k not in dropped]
                held, body = held | {"status": 304, "headers": headers}, b""  # type: ignore[operator]
            await send(held)
            await send({"type": "http.response.body", "body": body})

        await self._app(scope, receive, tagged)


def _is_json(start: Message) -> bool:
    media = dict(start["headers"]).get(b"content-type", b"")
    return bool(start["status"] == 200 and media.startswith(b"application/json"))
