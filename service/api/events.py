"""Event streams (text/event-stream): what happens to the jobs and budgets that the caller may see.

A stream begins with `retry`, sends a comment when nothing else was to be said for a while, and ends
when the service stops, when its key or session does, or when its client does not keep up. A client
that comes back with Last-Event-ID gets what it missed.
"""

from collections.abc import AsyncIterator, Iterable
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Header, Response
from fastapi.responses import StreamingResponse
from sqlalchemy import Row, select

from service.api.auth import Me, visible_job
from service.api.context import Context, Ctx
from service.api.feed import (
    HEARTBEAT_SECONDS,
    RETRY_MS,
    Event,
    Feed,
    Listener,
    job_event,
    wire,
)
from service.api.pages import AfterNumber, Limit, Page, by_number
from service.api.schemas.jobs import EventView
from service.db import iso
from service.errors import InvalidRequest
from service.jobs.states import ENDED
from service.tables import job_events

router = APIRouter(tags=["events"])

MEDIA_TYPE = "text/event-stream"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
_STREAM = {MEDIA_TYPE: {"schema": {"type": "string"}}}
LastEventId = Annotated[
    str | None, Header(max_length=64, description="Go on after this event; browsers send it.")
]


@router.get(
    "/events",
    response_class=StreamingResponse,
    responses={200: {"description": "Server-sent events.", "content": _STREAM}},
)
async def stream_everything(ctx: Ctx, me: Me, last_event_id: LastEventId = None) -> Response:
    """All jobs that the caller may see (`job`, `progress`) and the entries of their budgets
    (`budget`), from now on or after Last-Event-ID. `reset` says that the feed no longer knows all that
    was missed: read what you show again."""
    feed = ctx.feed
    resume = feed.position_of(last_event_id) if last_event_id else None
    listener = await feed.join(me)
    start, missed = f"id: {feed.present_id()}\n", list[Event]()
    if resume is not None:
        since = await feed.since(resume, me)
        if since is None:
            start += wire("reset", {"object": "event"})
        else:
            start, missed = "", since
    missed += feed.in_progress(me)

    def text(event: Event) -> str:
        id_ = "" if event.position is None else f"id: {feed.event_id(event.position)}\n"
        return f"{id_}{event.text}\n"

    async def stream() -> AsyncIterator[str]:
        try:
            yield f"retry: {RETRY_MS}\n\n{start}\n" + "".join(map(text, missed))
            async for event in _live(listener):
                yield ":\n\n" if event is None else text(event)
        finally:
            feed.leave(listener)

    return StreamingResponse(stream(), headers=HEADERS, media_type=MEDIA_TYPE)


@router.get(
    "/jobs/{job_id}/events",
    response_model=Page[EventView],
    responses={
        200: {"description": "A list, or a stream if that is accepted.", "content": _STREAM},
        204: {"description": "The job has ended and the stream has nothing more to say."},
    },
)
async def job_history(
    ctx: Ctx,
    me: Me,
    job_id: str,
    accept: Annotated[str, Header()] = "",
    last_event_id: LastEventId = None,
    limit: Limit = 100,
    starting_after: AfterNumber = 0,
) -> Any:
    """The job's events as a list; as a stream, with `Accept: text/event-stream`: those that were, then
    those that come, until the job has ended."""
    if MEDIA_TYPE not in accept:
        _, rows, more = await to_thread.run_sync(_history, ctx, me, job_id, limit, starting_after)
        data = [{"id": r.seq, "type": r.type, "created_at": iso(r.created_ms)} for r in rows]
        return {"data": data, "has_more": more, "url": f"/v1/jobs/{job_id}/events"}
    after = _number(last_event_id)
    await to_thread.run_sync(
        _history, ctx, me, job_id, 1, after
    )  # may they? before a stream begins
    listener = await ctx.feed.join(me, job_id)
    job, rows, _ = await to_thread.run_sync(_history, ctx, me, job_id, 10_000, after)
    if job.state in ENDED and not rows:
        ctx.feed.leave(listener)
        return Response(status_code=204)
    past = [job_event(job, number=r.seq, type_=r.type, created_ms=r.created_ms) for r in rows]
    stream = _job_stream(ctx.feed, listener, past, ctx.feed.in_progress(me, job_id))
    return StreamingResponse(stream, headers=HEADERS, media_type=MEDIA_TYPE)


async def _job_stream(
    feed: Feed, listener: Listener, past: list[Event], progress: Iterable[Event]
) -> AsyncIterator[str]:
    def text(event: Event) -> str:
        id_ = "" if event.number is None else f"id: {event.number}\n"
        return f"{id_}{event.text}\n"

    try:
        yield f"retry: {RETRY_MS}\n\n" + "".join(map(text, past))
        sent = max((event.number or 0 for event in past), default=0)
        if past and past[-1].ends:
            return
        yield "".join(map(text, progress))
        async for event in _live(listener):
            if event is None:
                yield ":\n\n"
            elif event.number is None or event.number > sent:
                sent = event.number or sent
                yield text(event)
                if event.ends:
                    return
    finally:
        feed.leave(listener)


async def _live(listener: Listener) -> AsyncIterator[Event | None]:
    """What arrives, until the end; None where a heartbeat is due."""
    while True:
        try:
            event = await listener.next(HEARTBEAT_SECONDS)
        except TimeoutError:
            yield None
            continue
        if event is None:
            return
        yield event


def _history(
    ctx: Context, me: Me, job_id: str, limit: int, after: int
) -> tuple[Row[Any], list[Row[Any]], bool]:
    with ctx.db.read() as connection:
        job = visible_job(connection, me, job_id)
        events = select(job_events).where(job_events.c.job_id == job_id)
        rows, more = by_number(connection, job_events.c.seq, events, limit, after)
    return job, rows, more


def _number(last_event_id: str | None) -> int:
    if not last_event_id:
        return 0
    if not (last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 10):
        raise InvalidRequest(
            "Last-Event-ID is not the id of an event of this stream; leave it out to hear all."
        )
    return int(last_event_id)
