"""What went wrong, in one line that says what to do; None for what only a traceback explains.

Exit code 2 is for what the command was given (a file, an option, a setting), 1 for all else.
"""

import os
import re
from typing import Any


class Fault(Exception):  # noqa: N818 - what the command line says, and ends with
    """A line for the user."""

    def __init__(self, words: str, code: int = 2) -> None:
        super().__init__(words)
        self.words, self.code = words, code


def explain(error: BaseException) -> Fault | None:
    # imported here, where something has failed: `epsilond --help` starts without them
    for known in (_own, _files, _settings, _connections, _databases):
        if (fault := known(error)) is not None:
            return Fault(" ".join(fault.words.split()), fault.code)
    return None


def _own(error: BaseException) -> Fault | None:
    from epsilond import UploadError  # noqa: PLC0415
    from service.datasets.encode import EncodeError  # noqa: PLC0415
    from service.datasets.formats import UnknownFormatError  # noqa: PLC0415
    from service.identity import WrongIdentityError  # noqa: PLC0415
    from service.keys import MalformedSecretError  # noqa: PLC0415

    if isinstance(error, Fault):
        return error
    if isinstance(error, EncodeError):
        row = "" if error.row is None else f"row {error.row + 1}, "
        return Fault(f"{row}column {error.column!r}: {error.reason}.")
    if isinstance(error, UnknownFormatError | MalformedSecretError):
        return Fault(f"{error}.")
    if isinstance(error, UploadError):
        return Fault(f"{error}.", 1)
    return Fault(str(error), 1) if isinstance(error, WrongIdentityError) else None


def _files(error: BaseException) -> Fault | None:
    if isinstance(error, UnicodeDecodeError):
        return Fault("the file is not UTF-8 text.")
    if not isinstance(error, OSError) or error.filename is None:
        return None
    name = os.fsdecode(error.filename)
    if isinstance(error, FileNotFoundError):
        return Fault(f"there is no file {name}.")
    if isinstance(error, FileExistsError | NotADirectoryError):
        return Fault(f"{name} is a file, and a folder is needed there; name another with --data.")
    return Fault(f"{name}: {error.strerror}.")


def _settings(error: BaseException) -> Fault | None:
    from pydantic import ValidationError  # noqa: PLC0415

    if not isinstance(error, ValidationError):
        return None
    found = error.errors(include_url=False, include_context=False, include_input=False)
    parts = [(".".join(map(str, one["loc"])), one["msg"]) for one in found[:3]]
    if error.title == "Settings":
        return Fault("; ".join(f"EPSILOND_{loc.upper()}: {said}" for loc, said in parts) + ".")
    what = "the schema" if error.title == "DeclaredSchema" else error.title
    return Fault(f"{what}: " + "; ".join(f"{loc}: {said}" for loc, said in parts) + ".")


def _connections(error: BaseException) -> Fault | None:
    from epsilond.http import CUT_SHORT, NO_ADDRESS, NO_ANSWER  # noqa: PLC0415
    from service.cli.common import options  # noqa: PLC0415

    url = options.url
    if isinstance(error, NO_ADDRESS):
        return Fault(f"EPSILOND_URL is {url!r}; it looks like http://127.0.0.1:8000.")
    if isinstance(error, NO_ANSWER):
        advice = "start the service (epsilond serve), or set EPSILOND_URL to where it is"
        return Fault(f"nothing answers at {url}; {advice}.", 1)
    if isinstance(error, CUT_SHORT):
        return Fault(f"{url} ended the connection ({type(error).__name__}); try again.", 1)
    return None


def _databases(error: BaseException) -> Fault | None:
    from alembic.util import CommandError  # noqa: PLC0415
    from sqlalchemy import exc  # noqa: PLC0415

    if isinstance(error, CommandError):
        return Fault(f"the database cannot be migrated by this version: {error}", 1)
    if isinstance(error, exc.NoSuchModuleError):  # postgresql+nodriver://
        return Fault("EPSILOND_DATABASE_URL: write postgresql://user:password@host/name.")
    if not isinstance(error, exc.DBAPIError):
        return None
    said = _first_line(error.orig)
    if re.search(r"no such table|relation .* does not exist", said):
        return Fault("the database is not migrated; run: epsilond migrate", 1)
    if isinstance(error, exc.OperationalError):
        where = "look whether it runs, and at EPSILOND_DATABASE_URL"
        return Fault(f"the database does not answer ({said}); {where}.", 1)
    return None


def _first_line(error: Any) -> str:
    """Of a driver's message, which may go on with hints."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]
