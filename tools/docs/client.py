"""The client without asyncio, made of the one with it: the same code without `await`."""

import re
import subprocess
import sys

from tools.docs.markdown import ROOT

FOLDER = "clients/python/epsilond"
WORDS = {
    "AsyncClient": "Client",
    "AsyncIterator": "Iterator",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "aclose": "close",
    "aread": "read",
    "aiter_lines": "iter_lines",
    "async_sleep as sleep": "sleep",
}
HEAD = '''"""The client of the API. Made of aio.py by `make docs`: edit that.

with Client("http://127.0.0.1:8000", key) as client:
    job = client.wait(client.submit(spec).id)
    client.model(job.id).predict(rows)
"""
'''


def pages() -> dict[str, str]:
    source = (ROOT / FOLDER / "aio.py").read_text()
    text = HEAD + source.split('"""\n', 1)[1]
    text = re.sub(r"\b(await|async) ", "", text)
    for word, instead in WORDS.items():
        text = re.sub(rf"\b{word}\b", instead, text)
    name = f"{FOLDER}/client.py"
    ruff = [sys.executable, "-m", "ruff", "format", "-", "--stdin-filename", name]
    done = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, cwd=ROOT)
    return {name: done.stdout}
