"""The algorithm catalog, and whether the service is well."""

from typing import Any

from anyio import fail_after, to_thread
from fastapi import APIRouter
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from service.api.auth import Me
from service.api.context import Ctx
from service.api.pages import After, Limit, Page, after_name
from service.api.schemas.catalog import AlgorithmView
from service.api.schemas.operations import HealthView
from service.errors import Unavailable
from service.planning.catalog import CATALOG

router = APIRouter(tags=["algorithms"])
health = APIRouter(tags=["health"])
READY_SECONDS = 1.0


@router.get("/algorithms", response_model=Page[AlgorithmView])
def list_algorithms(me: Me, limit: Limit = 100, starting_after: After = None) -> Any:
    """The catalog; the cursor is the name."""
    cards = [algorithm.card() for algorithm in CATALOG.values()]
    data, more = after_name(cards, "name", limit, starting_after)
    return {"data": data, "has_more": more, "url": "/v1/algorithms"}


@health.get("/healthz", response_model=HealthView)
async def healthz() -> Any:
    """The process answers; whether the database does is not asked, for no restart would mend it."""
    return {}


@health.get("/readyz", response_model=HealthView)
async def readyz(ctx: Ctx) -> Any:
    """The database answers within a second and is migrated, so requests can be served."""

    def ask() -> None:
        with ctx.db.read() as connection:
            connection.execute(text("SELECT 1 FROM jobs LIMIT 1"))

    try:
        with fail_after(READY_SECONDS):  # the thread goes on, within the database's own time-outs
            await to_thread.run_sync(ask, abandon_on_cancel=True, limiter=ctx.probes)
    except (SQLAlchemyError, TimeoutError):
        raise Unavailable(
            "the database does not answer, or `epsilond migrate` has not run."
        ) from None
    return {}
