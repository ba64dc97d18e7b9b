"""HEAD is GET without the body, at every address that has a GET."""

from service.api.limits import App, Message, Receive, Send


class Head:
    def __init__(self, app: App) -> None:
        self._app = app

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        ended = False

        async def without_body(message: Message) -> None:
            nonlocal ended
            if message["type"] == "http.response.start":
                await send(message)
            elif ended:  # a stream, which would not end by itself
                raise OSError("its reader has gone")
            else:
                ended = True
                await send({"type": "http.response.body", "body": b"", "more_body": False})

        try:
            await self._app({**scope, "method": "GET"}, receive, without_body)
        except Exception:
            if not ended:
                raise
