"""What every request needs: settings, database, and the way to hint at a new job."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated

from anyio import CapacityLimiter
from fastapi import Depends, Request

from service.api.concurrency import ConcurrencyLimiter
from service.api.credentials import valid_credentials
from service.config import Settings
from service.db import Database
from service.jobs.admit import Submission, Submittal, turns_of
from service.jobs.planned import Memory
from service.jobs.turns import Turns

if TYPE_CHECKING:  # it knows callers, and they know the context
    from service.api.auth import Caller
    from service.api.feed import Feed


@dataclass(frozen=True)
class Context:
    settings: Settings
    db: Database
    hint: Callable[[], None]  # there is work; never waits
    feed: "Feed"
    memory: Memory = field(default_factory=Memory)  # of submissions
    callers: dict[str, "Caller"] = field(default_factory=dict)  # by the hashes of their keys
    # encoding an upload takes a core for seconds: two at a time, whoever else is waiting
    ingestions: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(2))
    probes: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(2))  # of readiness
    limiter: ConcurrencyLimiter = field(default_factory=ConcurrencyLimiter)

    @cached_property
    def turns(self) -> Turns[Submittal, Submission]:
        return turns_of(self.db, self.settings, valid_credentials)


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


Ctx = Annotated[Context, Depends(_context)]
