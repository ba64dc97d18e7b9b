"""How the service is doing, for administrators: queue, leases, failures, processes."""

from typing import Any

from fastapi import APIRouter
from sqlalchemy import Connection, Select, func, select

from service.api.auth import Me
from service.api.context import Ctx
from service.api.schemas.operations import OperationsView
from service.db import iso, now_ms
from service.jobs.maintenance import HEARTBEAT_TIMEOUT_MS
from service.jobs.states import ENDED
from service.jobs.view import error_view
from service.tables import jobs, processes

router = APIRouter(tags=["operations"])

OPEN = ("queued", "running", "cancelling")
_DAY_MS = 86_400_000
_OVERDUE_MS = 5_000


@router.get("/operations", response_model=OperationsView)
def get_operations(ctx: Ctx, me: Me) -> Any:
    me.need("admin")
    with ctx.db.read() as connection:
        now: int = connection.execute(select(now_ms())).scalar_one()
        queued = jobs.c.state == "queued"
        oldest = connection.execute(select(func.min(jobs.c.created_ms)).where(queued)).scalar()
        overdue = queued & (jobs.c.hint_ms <= now - _OVERDUE_MS)
        lately = jobs.c.state.in_(ENDED) & (jobs.c.finished_ms > now - _DAY_MS)
        leases = select(jobs).where(jobs.c.state.in_(("running", "cancelling")))
        failures = select(jobs).where(jobs.c.state == "failed")
        present = select(processes).where(processes.c.seen_ms > now - HEARTBEAT_TIMEOUT_MS)
        return {
            "engine": ctx.settings.engine,
            "jobs": dict.fromkeys(OPEN, 0) | _counts(connection, jobs.c.state.in_(OPEN)),
            "oldest_queued_seconds": None if oldest is None else (now - oldest) // 1000,
            "overdue_hints": connection.execute(_count(overdue)).scalar_one(),
            "ended_last_day": dict.fromkeys(ENDED, 0) | _counts(connection, lately),
            "leases": [
                {
                    "job": row.id,
                    "dataset": row.dataset_id,
                    "state": row.state,
                    "attempt": row.fence,
                    "progress": {"steps_done": row.steps_done, "steps_total": row.steps_total},
                    "seconds_since_start": (now - row.started_ms) // 1000,
                    "seconds_left": (row.lease_ms - now) // 1000,
                }
                for row in connection.execute(leases.order_by(jobs.c.started_ms).limit(100))
            ],
            "failures": [
                {
                    "job": row.id,
                    "dataset": row.dataset_id,
                    "error": error_view(row),
                    "attempts": row.fence,
                    "finished_at": iso(row.finished_ms),
                }
                for row in connection.execute(
                    failures.order_by(jobs.c.finished_ms.desc()).limit(20)
                )
            ],
            "processes": [
                {
                    "id": row.id,
                    "role": row.role,
                    "host": row.host,
                    "pid": row.pid,
                    "started_at": iso(row.started_ms),
                    "seconds_since_seen": (now - row.seen_ms) // 1000,
                }
                for row in connection.execute(present.order_by(processes.c.started_ms))
            ],
            "streams": ctx.feed.open_streams(),
        }


def _count(condition: Any) -> Select[Any]:
    return select(func.count()).select_from(jobs).where(condition)


def _counts(connection: Connection, condition: Any) -> dict[str, int]:
    query = (
        select(jobs.c.state, func.count().label("number")).where(condition).group_by(jobs.c.state)
    )
    return {row.state: row.number for row in connection.execute(query)}
