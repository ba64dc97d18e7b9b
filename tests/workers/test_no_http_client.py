"""The worker sees the data, so it brings nothing along that could send it anywhere over HTTP."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workers.test_sources import ROOT, names, within

HTTP_CLIENTS = {
    *("httpx", "httpcore", "requests", "urllib3", "aiohttp", "pycurl"),
    *("http.client", "urllib.request", "xmlrpc.client", "epsilond"),
}
SHOW_MODULES = """
import importlib, json, sys
importlib.import_module(sys.argv[1])
print(json.dumps(sorted(sys.modules)))
"""


def loaded_by(module: str) -> set[str]:
    """What a fresh interpreter holds once it has imported a module."""
    run = subprocess.run(
        [sys.executable, "-c", SHOW_MODULES, module],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(json.loads(run.stdout))


def source(module: str) -> str:
    path = ROOT / module.replace(".", "/")
    return (path / "__init__.py" if path.is_dir() else Path(f"{path}.py")).read_text()


@pytest.mark.parametrize("module", ["workers.execute", "workers.local"])
def test_a_worker_loads_no_http_client(module):
    loaded = loaded_by(module)
    assert module in loaded
    assert not loaded & HTTP_CLIENTS


def test_no_module_that_the_celery_worker_loads_imports_one():
    """Celery may load one for itself; of ours, none names one, not even inside a function."""
    ours = {
        name
        for name in loaded_by("workers.celery_app")
        if within(name, "service") or within(name, "workers")
    }
    assert {"workers.celery_app", "workers.execute", "service.jobs.publish"} <= ours
    found = {
        (module, name)
        for module in ours
        for name in names(ast.parse(source(module)))
        if any(within(name, client) for client in HTTP_CLIENTS)
    }
    assert not found


def test_the_check_above_sees_the_client():
    assert "epsilond" in names(ast.parse(source("service.cli.common")))
    assert {"epsilond", "httpx"} <= loaded_by("service.cli.common")
