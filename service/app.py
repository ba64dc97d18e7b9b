"""The application: routers, limits, problems, and the engine that runs while it serves."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from fastapi import FastAPI

from service import __version__
from service.api import (
    audit,
    budgets,
    catalog,
    dashboard,
    datasets,
    events,
    jobs,
    operations,
    principals,
    quotes,
    sessions,
)
from service.api.conditional import Conditional
from service.api.context import Context
from service.api.examples import add_examples
from service.api.feed import Feed
from service.api.head import Head
from service.api.limits import Limits
from service.api.problems import RESPONSES, ProblemDetails, install
from service.config import Settings
from service.db import Database
from service.identity import check_identity
from service.jobs.embedded import EmbeddedWorkers
from service.jobs.hints import CeleryHints
from service.jobs.maintenance import MaintenanceLoop
from service.planning.sets.l2_ball import L2Ball

DESCRIPTION = """Privacy-budgeted optimization. Owners upload datasets and fix a privacy budget for
each; analysts fit models under differential privacy; a ledger makes sure that no budget is overspent.
Errors are application/problem+json with a `code` from a closed list. Every JSON answer to a GET has an
ETag, and If-None-Match with it is answered 304 while nothing has changed."""


def create_app(settings: Settings) -> FastAPI:
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        db = Database(settings.url, patience=settings.database_seconds)
        engine = (EmbeddedWorkers if settings.engine == "embedded" else CeleryHints)(settings, db)
        check_identity(db, settings)
        feed = Feed(db, settings.keys, settings.streams_max, settings.streams_max_each)
        context = Context(settings=settings, db=db, hint=engine.hint, feed=feed)
        app.state.context = context
        maintenance = MaintenanceLoop(db, settings, "api")
        maintenance.start()
        feed_task = asyncio.create_task(feed.run())
        engine.start()
        try:
            yield
        finally:
            feed.end()
            feed_task.cancel()
            with suppress(asyncio.CancelledError):
                await feed_task
            engine.stop()
            maintenance.stop()
            context.turns.close()
            db.dispose()

    app = FastAPI(
        title="epsilond",
        version=__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        responses=RESPONSES,
        docs_url=None,
        redoc_url=None,
    )
    install(app)
    app.add_middleware(Conditional)
    app.add_middleware(Head)
    app.add_middleware(
        Limits,
        body_bytes=settings.body_bytes_max,
        upload_bytes=settings.upload_bytes_max,
    )
    for router in (
        datasets.router,
        budgets.router,
        quotes.router,
        jobs.router,
        events.router,
        catalog.router,
        audit.router,
        principals.router,
        sessions.router,
        operations.router,
    ):
        app.include_router(router, prefix="/v1")
    app.include_router(catalog.health)
    dashboard.mount(app)
    _complete_description(app)
    return app


def _complete_description(app: FastAPI) -> None:
    """Every response above refers to one schema, which FastAPI does not collect by itself."""
    generate = app.openapi

    def openapi() -> dict[str, object]:
        if app.openapi_schema is None:
            document = generate()
            document["components"]["schemas"]["ProblemDetails"] = ProblemDetails.model_json_schema(
                ref_template="#/components/schemas/{model}"
            )
            _require_kinds(document, document["components"]["schemas"])
            add_examples(document["components"]["schemas"])
        return app.openapi_schema  # type: ignore[return-value]

    app.openapi = openapi  # type: ignore[method-assign]


def _require_kinds(part: Any, schemas: dict[str, Any]) -> None:
    """One of several is told apart by its `kind`, so it has to be named, although every class has a
    default for it. Only a set may leave it out: it is then an l2_ball (service/planning/spec.py)."""
    inside = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
    for each in inside:
        _require_kinds(each, schemas)
    if isinstance(part, dict) and "discriminator" in part:
        tag = part["discriminator"]["propertyName"]
        for option in part["oneOf"]:
            schema = schemas[option["$ref"].rpartition("/")[2]]
            if tag not in schema.get("required", ()) and schema["title"] != L2Ball.__name__:
                schema["required"] = [*schema.get("required", ()), tag]
