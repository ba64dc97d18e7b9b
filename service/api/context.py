"""What every request needs: settings, database, and the way to hint at a new job."""

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from anyio import CapacityLimiter
from fastapi import Depends, Request

from service.api.concurrency import ConcurrencyLimiter
from service.config import Settings
from service.db import Database
from service.jobs.maintenance import Hint, HintError

if TYPE_CHECKING:  # it knows callers, and they know the context
    from service.api.feed import Feed

log = logging.getLogger("epsilond.api")


@dataclass(frozen=True)
class Context:
    settings: Settings
    db: Database
    hint: Hint
    feed: "Feed"
    # encoding an upload takes a core for seconds: two at a time, whoever else is waiting
    ingestions: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(2))
    probes: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(2))  # of readiness
    limiter: ConcurrencyLimiter = field(default_factory=ConcurrencyLimiter)

    def try_hint(self, job_id: str) -> None:
        """The job is safe in the database; a broker that is down only delays it."""
        try:
            self.hint(job_id)
        except HintError as error:
            log.warning("no hint for %s, the relay will send it: %s", job_id, error)


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


Ctx = Annotated[Context, Depends(_context)]
