"""Every failure leaves as application/problem+json, with nothing in it but public facts."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from anyio import to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Field
from sqlalchemy.exc import DataError, DBAPIError, NoResultFound, OperationalError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import compile_path

from service.errors import (
    InternalError,
    InvalidRequest,
    MalformedRequest,
    MethodNotAllowed,
    NotFound,
    Problem,
    Unavailable,
    every_problem,
)

log = logging.getLogger("epsilond.api")
MEDIA_TYPE = "application/problem+json"
LATER = {"Retry-After": "1"}
NO_ANSWER = (
    "the database does not answer in time. A change that was asked for may have been made or not: "
    "look, or send the request again; with the same Idempotency-Key it is done once."
)


class ProblemDetails(BaseModel):
    """RFC 9457. `code` is the last part of `type`; refusals carry further public members."""

    type: str
    title: str
    status: int
    code: str = Field(json_schema_extra={"enum": [*sorted(p.code for p in every_problem())]})
    detail: str
    instance: str | None = None
    errors: list[dict[str, Any]] | None = None


def described(description: str) -> dict[str, Any]:
    return {
        "description": description,
        "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}},
    }


RESPONSES: dict[int | str, dict[str, Any]] = {
    "4XX": described("The request was refused."),
    "5XX": described("A failure of ours."),
}


def problem_response(
    problem: Problem, instance: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    usual = {401: {"WWW-Authenticate": "Bearer"}, 429: LATER, 503: LATER}.get(problem.status)
    headers = headers or usual
    return JSONResponse(
        problem.body(instance), problem.status, media_type=MEDIA_TYPE, headers=headers
    )


def _allowed(request: Request) -> str:
    """All methods at this address; Starlette names those of the first route alone. What the API does
    not describe, the dashboard, is read only."""
    described = request.app.openapi()["paths"].items()
    here = (methods for path, methods in described if compile_path(path)[0].match(request.url.path))
    named = {method.upper() for methods in here for method in methods} or {"GET"}
    return ", ".join(sorted(named | {"OPTIONS"} | ({"HEAD"} if "GET" in named else set())))


def in_words(errors: Sequence[Mapping[str, Any]]) -> str:
    """What to do: every field that is missing, then what is wrong with those that are there."""
    missing, wrong = [], []
    for error in errors:
        where = ".".join(map(str, error["loc"]))
        if error["type"] == "missing":
            missing.append(where)
        elif error["type"] == "union_tag_not_found":  # `kind`, which tells several apart
            missing.append(f"{where}.{error['ctx']['discriminator'].strip(chr(39))}")
        else:
            wrong.append(f"{where}: {error['msg']}")
    parts = [f"give {', '.join(missing)}"] if missing else []
    more = [f"and {len(wrong) - 3} more"] if len(wrong) > 3 else []
    return "; ".join([*parts, *([f"look at {'; '.join(wrong[:3])}"] if wrong else []), *more]) + "."


def install(app: FastAPI) -> None:
    @app.exception_handler(Problem)
    async def refused(request: Request, problem: Problem) -> JSONResponse:
        return problem_response(problem, request.url.path)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        if (who := getattr(request.state, "presumed", None)) is not None:
            try:  # only who may ask is told what is wrong
                await to_thread.run_sync(who.certain)
            except Problem as refusal:
                return problem_response(refusal, request.url.path)
        # without `input`: it may be megabytes, or a NaN that JSON cannot carry
        errors = [
            {"loc": list(e["loc"]), "msg": e["msg"], "type": e["type"]} for e in error.errors()
        ]
        if any(e["type"] == "json_invalid" for e in errors):
            return problem_response(
                MalformedRequest("the body is not JSON; send a JSON object."), request.url.path
            )
        problem = InvalidRequest(in_words(error.errors()), errors=errors[:20])
        return problem_response(problem, request.url.path)

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        allowed = {"Allow": _allowed(request)} if error.status_code == 405 else None
        if request.method == "OPTIONS" and allowed:
            return Response(status_code=204, headers=allowed)
        by_status: dict[int, Problem] = {
            400: MalformedRequest("the body could not be read; send it again, as JSON."),
            404: NotFound(
                "there is nothing at this address; GET /openapi.json lists what there is."
            ),
            405: MethodNotAllowed("GET /openapi.json lists the methods of every address."),
        }
        problem = by_status.get(
            error.status_code,
            InternalError("an administrator finds the cause in the service's log."),
        )
        return problem_response(problem, request.url.path, allowed)

    @app.exception_handler(NoResultFound)
    async def deleted(request: Request, error: NoResultFound) -> JSONResponse:
        """It was there when the caller's right to it was looked up, and is no longer."""
        return problem_response(NotFound("it has just been deleted."), request.url.path)

    @app.exception_handler(DataError)
    async def unstorable(request: Request, error: DataError) -> JSONResponse:
        return problem_response(
            InvalidRequest(
                "a value cannot be stored; leave out control characters and huge numbers."
            ),
            request.url.path,
        )

    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, error: ClientDisconnect) -> JSONResponse:
        return problem_response(
            MalformedRequest("the body ended early; send it again."), request.url.path
        )

    @app.exception_handler(DBAPIError)
    async def unavailable(request: Request, error: DBAPIError) -> JSONResponse:
        if not (isinstance(error, OperationalError) or error.connection_invalidated):
            raise error
        log.error("the database does not answer: %s", type(error.orig).__name__)
        return problem_response(Unavailable(NO_ANSWER), request.url.path)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        return problem_response(
            InternalError("an administrator finds the cause in the service's log."),
            request.url.path,
        )
