"""Quotes: what a job would cost, release and predict."""

from typing import Any

from fastapi import APIRouter
from sqlalchemy import Connection

from service.api.auth import Me, usable_dataset
from service.api.context import Ctx
from service.api.released import resolved
from service.api.schemas.common import SpecRequest
from service.api.schemas.quotes import (
    BatchRequest,
    BatchView,
    ComparisonView,
    NoiseRequest,
    QuoteView,
)
from service.planning.spec import JobSpec
from service.quotes import quote as quotes
from service.quotes.batch import quote_batch

router = APIRouter(tags=["quotes"])


@router.post("/quotes", response_model=QuoteView)
async def quote(ctx: Ctx, me: Me, request: SpecRequest) -> Any:
    """The Plan and its price; the largest epsilon that fits, and how many jobs like this one."""

    def authorised(connection: Connection) -> JobSpec:
        usable_dataset(connection, me, request.dataset)
        return resolved(connection, me, request.spec())

    def answer() -> dict[str, Any]:
        return quotes.quote(ctx.db, ctx.settings, principal_id=me.id, authorised=authorised)

    return await ctx.limiter.run(me.id, answer)


@router.post("/quotes/comparison", response_model=ComparisonView)
async def compare_algorithms(ctx: Ctx, me: Me, request: SpecRequest) -> Any:
    """Every algorithm of the catalog on one spec, whichever it names. An algorithm that does not take
    the spec's parameters declines, so leave them out to see all."""

    def authorised(connection: Connection) -> JobSpec:
        usable_dataset(connection, me, request.dataset)
        return request.spec()

    def answer() -> dict[str, Any]:
        return quotes.comparison(ctx.db, ctx.settings, principal_id=me.id, authorised=authorised)

    return await ctx.limiter.run(me.id, answer)


@router.post("/quotes/noise", response_model=QuoteView)
async def quote_for_noise(ctx: Ctx, me: Me, request: NoiseRequest) -> Any:
    """The quote at the smallest epsilon whose noise is at most the wanted one; where the algorithm
    chooses steps or a solver the noise may rise with epsilon, and a smaller one might do too. The
    spec's own epsilon only serves `auto`, to choose an algorithm."""
    spec = request.spec()

    def authorised(connection: Connection) -> JobSpec:
        usable_dataset(connection, me, spec.dataset)
        return resolved(connection, me, spec)

    def answer() -> dict[str, Any]:
        return quotes.quote_for_noise(
            ctx.db,
            ctx.settings,
            principal_id=me.id,
            authorised=authorised,
            noise=request.noise,
        )

    return await ctx.limiter.run(me.id, answer)


@router.post("/quotes/batch", response_model=BatchView)
async def quote_jobs(ctx: Ctx, me: Me, request: BatchRequest) -> Any:
    """Several jobs priced together: which fit, in the given order, and whether all do. Free; reserve
    them all or none with POST /v1/groups."""

    def authorised(connection: Connection) -> list[JobSpec]:
        for dataset in sorted({spec.dataset for spec in request.jobs}):
            usable_dataset(connection, me, dataset)
        return [resolved(connection, me, spec.spec()) for spec in request.jobs]

    def answer() -> dict[str, Any]:
        return quote_batch(ctx.db, ctx.settings, principal_id=me.id, authorised=authorised)

    return await ctx.limiter.run(me.id, answer)
