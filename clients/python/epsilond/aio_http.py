"""A connection to the service, for asyncio. sync_http.py is made of this file by `make docs`.

What is safe to send again is sent again; lists are read page by page; events are a stream.
"""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Self

import httpx

from epsilond import http
from epsilond.encode import JSON
from epsilond.http import answer
from epsilond.results import Result, Results, listed
from epsilond.timing import async_sleep as sleep


class AsyncConnection:
    """`url` and `key` default to EPSILOND_URL and EPSILOND_KEY. What is safe to send again is sent
    again, up to `retries` times, where the service cannot be reached or is busy; every POST has an
    Idempotency-Key, so that it is done once. A refusal is an ApiError, with its `problem`."""

    def __init__(
        self,
        url: str | None = None,
        key: str | None = None,
        timeout: float = 3600.0,
        retries: int = 4,
    ) -> None:
        self.url, self._retries = http.where(url), retries
        headers = http.headers_of(key)
        self._http = httpx.AsyncClient(base_url=self.url, headers=headers, timeout=timeout)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    def __deepcopy__(self, _memo: object) -> Self:
        """A connection is shared, not copied: an estimator that is cloned keeps it."""
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        """No key is written into a pickle; where that is read, EPSILOND_KEY is the key."""
        return type(self), (self.url,)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *args: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def request(self, method: str, path: str, **kwargs: Any) -> JSON:
        """Any request; the answer's JSON."""
        return answer(await self._send(method, path, **kwargs))

    async def _send(
        self,
        method: str,
        path: str,
        *,
        file: Path | None = None,
        headers: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> httpx.Response:
        sent = http.headers_to_send(method, headers, self._retries)
        turn = 0
        while True:
            if file is not None:
                kwargs["content"] = _chunks(file)
            try:
                response = await self._http.request(method, path, headers=sent, **kwargs)
                pause = http.pause_after_answer(method, response, turn)
                if pause is None or turn == self._retries:
                    return response
            except httpx.TransportError as error:
                pause = http.pause_after_error(method, error, turn)
                if pause is None or turn == self._retries:
                    raise
            await sleep(pause)
            turn += 1

    async def pages(self, path: str, cursor: str = "id", **params: Any) -> AsyncIterator[JSON]:
        """Every element of a list, page by page."""
        params = {"limit": 100, **{k: v for k, v in params.items() if v is not None}}
        while True:
            page = await self.request("GET", path, params=params)
            for one in page["data"]:
                yield one
            if not page["has_more"]:
                return
            params |= {"starting_after": http.position(page["data"][-1], cursor)}

    async def _list(self, path: str, cursor: str = "id", **params: Any) -> Results[Result]:
        return listed([one async for one in self.pages(path, cursor, **params)])

    async def stream(
        self, job: str | None = None, last_event_id: str | None = None
    ) -> AsyncIterator[JSON]:
        """Events as they happen, of one job until it has ended or of all: dicts of event, id, data."""
        path = "/v1/events" if job is None else f"/v1/jobs/{job}/events"
        headers = {"Accept": "text/event-stream"}
        if last_event_id is not None:
            headers["Last-Event-ID"] = last_event_id
        async with self._http.stream("GET", path, headers=headers) as response:
            if not response.is_success:
                await response.aread()
                answer(response)
            seen: JSON = {"id": last_event_id}
            async for line in response.aiter_lines():
                name, _, value = line.partition(": ")
                if name in ("id", "event"):
                    seen[name] = value
                elif name == "data":
                    seen["data"] = json.loads(value)
                elif not line and "data" in seen:
                    yield seen
                    seen = {"id": seen["id"]}


async def _chunks(file: Path) -> AsyncIterator[bytes]:
    with file.open("rb") as handle:
        while block := handle.read(http.CHUNK_BYTES):
            yield block
