"""Bodies that come with Content-Encoding: gzip, inflated as they arrive and never held whole.

Whatever limit applies to a body counts inflated bytes (limits.py). Beyond FREE_BYTES, a body that
inflates to more than RATIO times what was sent is a bomb: tables of real data stay far below.
"""

import zlib
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from service.errors import BodyTooLarge, MalformedRequest

PIECE = 1 << 18
RATIO = 200
FREE_BYTES = 1 << 24


class Inflated:
    """Takes the place of an application's `receive`."""

    def __init__(self, receive: Callable[[], Awaitable[Any]]) -> None:
        self._receive = receive
        self._pieces: Iterator[dict[str, Any]] = iter(())
        self._sent = self._made = 0
        self._decoder: Any = None

    async def __call__(self) -> Any:
        while True:
            if (piece := next(self._pieces, None)) is not None:
                return piece
            message = await self._receive()
            if message["type"] != "http.request":
                return message
            self._sent += len(message.get("body", b""))
            self._pieces = self._inflate(message)

    def _inflate(self, message: Any) -> Iterator[dict[str, Any]]:
        data, last = message.get("body", b""), not message.get("more_body", False)
        try:
            while data:
                if self._decoder is None or self._decoder.eof:  # a file may be several, one by one
                    self._decoder = zlib.decompressobj(16 + zlib.MAX_WBITS)
                out = self._decoder.decompress(data, PIECE)
                data = self._decoder.unused_data or self._decoder.unconsumed_tail
                self._made += len(out)
                if self._made > max(FREE_BYTES, RATIO * self._sent):
                    raise BodyTooLarge(
                        f"the body inflates to more than {RATIO} times its size; send it as it is."
                    )
                yield {"type": "http.request", "body": out, "more_body": True}
        except zlib.error:
            raise MalformedRequest(
                "the body is not gzip, as Content-Encoding says it is."
            ) from None
        if last:
            if self._sent and not (self._decoder and self._decoder.eof):
                raise MalformedRequest("the gzip body ends early; send it again.")
            yield {"type": "http.request", "body": b"", "more_body": False}
