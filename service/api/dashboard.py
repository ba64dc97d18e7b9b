"""The dashboard: static files that use the API like any other client, under a strict policy."""

from os import PathLike, stat_result
from pathlib import Path

from fastapi import FastAPI
from fastapi.responses import FileResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOLDER = Path(__file__).parent.parent / "dashboard"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # kept, and asked about by its ETag
}


class Files(StaticFiles):
    def file_response(
        self,
        full_path: str | PathLike[str],
        stat_result: stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(HEADERS)
        return response


def mount(app: FastAPI) -> None:
    app.mount("/dashboard", Files(directory=FOLDER))

    @app.get("/", include_in_schema=False)
    def index() -> FileResponse:
        return FileResponse(FOLDER / "index.html", headers=HEADERS)

    @app.get("/docs", include_in_schema=False)
    def reference() -> FileResponse:
        return FileResponse(FOLDER / "docs.html", headers=HEADERS)
