"""The client without asyncio, made of the one with it: the same code without `await`."""

import re
import subprocess
import sys

from tools.docs.markdown import ROOT

FOLDER = "clients/python/epsilond"
MADE = {"aio.py": "client.py", "aio_http.py": "sync_http.py"}
WORDS = {
    "AsyncClient": "Client",
    "AsyncConnection": "Connection",
    "aio_http": "sync_http",
    "AsyncIterator": "Iterator",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
    "aread": "read",
    "aiter_lines": "iter_lines",
    "async_sleep as sleep": "sleep",
}


def pages() -> dict[str, str]:
    return {f"{FOLDER}/{made}": _without(source, made) for source, made in MADE.items()}


def _without(source: str, made: str) -> str:
    text = (ROOT / FOLDER / source).read_text().split('"""\n', 1)[1]
    text = re.sub(r"\b(await|async) ", "", text)
    for word, instead in WORDS.items():
        text = re.sub(rf"\b{word}\b", instead, text)
    head = f'"""{source} without asyncio. Made of it by `make docs`: edit that."""\n'
    ruff = [sys.executable, "-m", "ruff", "format", "-", "--stdin-filename", f"{FOLDER}/{made}"]
    done = subprocess.run(
        ruff, input=head + text, capture_output=True, text=True, check=True, cwd=ROOT
    )
    return done.stdout
