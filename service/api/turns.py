"""Turns at what takes a processor and is free: planning and verifying.

Each caller has a few turns at a time and may have some requests waiting for one; whoever asks for more
is refused, and nobody waits behind them. Quotes and verifications are besides a few at a time for the
whole process, so that other requests find it awake.
"""

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from service.errors import TooManyRequests

T = TypeVar("T")
AT_ONCE = 2
EACH = 2
WAITING = 100


class Turns:
    def __init__(self) -> None:
        self._free = CapacityLimiter(AT_ONCE)
        self._own: dict[str, CapacityLimiter] = {}

    async def take(self, caller: str, act: Callable[[], T], *, charged: bool = False) -> T:
        """Run `act` in a thread once it is the caller's turn; what is charged waits for no other's."""
        own = self._own.setdefault(caller, CapacityLimiter(EACH))
        if own.statistics().tasks_waiting >= WAITING:
            raise TooManyRequests(
                f"{WAITING} of your requests wait for their turn already; "
                "send the next one when one of them is answered."
            )
        try:
            async with own:
                return await to_thread.run_sync(act, limiter=None if charged else self._free)
        finally:
            usage = own.statistics()
            if not usage.borrowed_tokens and not usage.tasks_waiting:
                self._own.pop(caller, None)
