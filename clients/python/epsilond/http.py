"""What both clients share: errors, when a request is sent again, where the service is."""

import os
import random
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from epsilond.encode import JSON

URL = "http://127.0.0.1:8000"
WAIT_SECONDS = 30
NO_ADDRESS = (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.LocalProtocolError)
NO_ANSWER = (httpx.ConnectError, httpx.ConnectTimeout)
CUT_SHORT = httpx.TransportError
_LATER_MAX = 60.0
CHUNK_BYTES = 1 << 20
MEDIA_TYPES = {
    ".csv": "text/csv",
    ".csv.gz": "text/csv",
    ".csv.zst": "text/csv",
    ".npz": "application/x-npz",
    ".parquet": "application/vnd.apache.parquet",
    ".arrow": "application/vnd.apache.arrow.file",
    ".feather": "application/vnd.apache.arrow.file",
    ".arrows": "application/vnd.apache.arrow.file",
}


class ApiError(RuntimeError):
    """The service refused; `problem` is its application/problem+json body."""

    def __init__(self, problem: JSON) -> None:
        super().__init__(f"{problem.get('code')}: {problem.get('detail')}")
        self.problem = problem
        self.status: int = problem.get("status", 0)
        self.code: str = problem.get("code", "")


class JobFailedError(RuntimeError):
    """The job ended without a model; `job` says how."""

    def __init__(self, job: JSON) -> None:
        error = job.get("error") or {"message": "it was cancelled."}
        super().__init__(f"{job['id']} {job['state']}: {error['message']}")
        self.job = job


def where(url: str | None) -> str:
    return url or os.environ.get("EPSILOND_URL") or URL


def headers_of(key: str | None) -> dict[str, str]:
    key = key or os.environ.get("EPSILOND_KEY")
    return {} if key is None else {"Authorization": f"Bearer {key}"}


def answer(response: httpx.Response) -> JSON:
    """The body of an answer; ApiError if it is a refusal."""
    if response.is_success and not response.content:
        return {}
    try:
        body: JSON = response.json()
    except ValueError:  # not ours: a proxy's page, or another service's
        detail = f"{response.url} answered no JSON; is this the address of an epsilond service?"
        problem = {"status": response.status_code, "code": "unknown", "detail": detail}
        raise ApiError(problem) from None
    if not response.is_success:
        raise ApiError(body)
    return body


def pause_after_error(method: str, error: httpx.TransportError, turn: int) -> float | None:
    """Seconds until the request may be sent again; None if it may not be.

    What never reached the service may be sent again. Of what did, and was not answered, only what
    changes nothing twice: GET, and POST, which carries an Idempotency-Key.
    """
    if isinstance(error, NO_ADDRESS):
        return None
    if isinstance(error, (*NO_ANSWER, httpx.PoolTimeout)) or method in ("GET", "POST"):
        return _backoff(turn)
    return None


def pause_after_answer(method: str, response: httpx.Response, turn: int) -> float | None:
    """The same for an answer: 429 was not done, 503 may have been."""
    again = response.status_code == 429 or (
        response.status_code == 503 and method in ("GET", "POST")
    )
    if not again:
        return None
    asked = response.headers.get("retry-after", "")
    return max(_backoff(turn), min(float(asked), _LATER_MAX) if asked.isdigit() else 0.0)


def _backoff(turn: int) -> float:
    return float(0.2 * 2**turn * random.uniform(0.75, 1.25))  # noqa: S311 - spreads clients


def media_type(path: Path) -> str:
    for suffix, media in MEDIA_TYPES.items():
        if path.name.lower().endswith(suffix):
            return media
    raise ValueError(
        f"{path.name}: the name of a data file ends in {' or '.join(MEDIA_TYPES)}; "
        "or say its media_type"
    )


def position(last: JSON, cursor: str) -> Any:
    """Where the page goes on that ended with `last`."""
    return last["body"]["seq"] if cursor == "body" else last[cursor]


def idempotent(key: str | None) -> dict[str, str]:
    return {} if key is None else {"Idempotency-Key": key}


def headers_to_send(method: str, headers: Mapping[str, str] | None, retries: int) -> dict[str, str]:
    """With a key of its own for a POST that may be sent again."""
    own = idempotent(secrets.token_hex(16)) if method == "POST" and retries else {}
    return {**own, **(headers or {})}


def when_changed(response: httpx.Response) -> dict[str, str]:
    """To be told when the job is no longer as in this answer."""
    return {
        "Prefer": f"wait={WAIT_SECONDS}",
        "If-None-Match": response.headers.get("etag", ""),
    }


OnChange = Callable[[Any], None]
