"""A concurrency limiter for what takes a processor: planning and verifying.

Each caller runs a few requests at a time and may have some waiting; whoever sends more is refused
(429), and nobody waits behind another caller's queue. What is free of charge, quotes and
verifications, is besides limited to a few at a time for the whole process, so that it still answers
other requests.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from service.errors import TooManyRequests

T = TypeVar("T")
FREE_AT_ONCE = 2  # of all callers together
AT_ONCE_EACH = 2
WAITING_MAX_EACH = 100


class ConcurrencyLimiter:
    def __init__(self) -> None:
        self._free = CapacityLimiter(FREE_AT_ONCE)
        self._by_caller: dict[str, CapacityLimiter] = {}

    async def run(self, caller: str, act: Callable[[], T], *, charged: bool = False) -> T:
        """Run `act` in a thread as soon as this caller may; what is charged waits for no other's."""
        async with self.turn(caller):
            return await to_thread.run_sync(act, limiter=None if charged else self._free)

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """Entered as soon as this caller may."""
        own = self._by_caller.setdefault(caller, CapacityLimiter(AT_ONCE_EACH))
        if own.statistics().tasks_waiting >= WAITING_MAX_EACH:
            raise TooManyRequests(
                f"{WAITING_MAX_EACH} of your requests are waiting already; "
                "send the next one when one of them is answered."
            )
        try:
            async with own:
                yield
        finally:
            usage = own.statistics()
            if not usage.borrowed_tokens and not usage.tasks_waiting:
                self._by_caller.pop(caller, None)
