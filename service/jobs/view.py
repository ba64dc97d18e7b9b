"""A job as the API shows it. Nothing here depends on the data; times are whole seconds."""

import json
from typing import Any

from service.db import iso

ERRORS = {
    "attempts_exhausted": "The job was started as often as allowed and never finished.",
    "data_deleted": "The owner deleted the data. The job is charged only if it had opened them.",
}


def error_view(row: Any) -> dict[str, str] | None:
    return None if row.error is None else {"code": row.error, "message": ERRORS[row.error]}


def job_view(row: Any) -> dict[str, Any]:
    return {
        "object": "job",
        "id": row.id,
        "dataset": row.dataset_id,
        "principal": row.principal_id,
        "group": row.group_id,
        "state": row.state,
        "spec": json.loads(row.spec),
        "choice": None if row.choice is None else json.loads(row.choice),
        "plan_digest": row.plan_digest,
        "price_units": json.loads(row.plan)["price"]["units"],
        "progress": {"steps_done": row.steps_done, "steps_total": row.steps_total},
        "data_opened": row.opened_ms is not None,
        "error": error_view(row),
        "metadata": json.loads(row.metadata),
        "created_at": iso(row.created_ms),
        "started_at": iso(row.started_ms),
        "finished_at": iso(row.finished_ms),
    }
