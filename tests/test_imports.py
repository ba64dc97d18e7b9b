"""Who may import whom: the arrows of the architecture. And how long a module may grow."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

BASE = "service.errors service.config service.keys service.db service.tables service.changes"

# A package or module, and what of ours it may import besides itself and the version of `service`. A
# row is for all that is below its name, except where a longer name has a row of its own.
MAY_IMPORT = {
    "service.planning": "service.errors",
    "service.ledger": f"{BASE} service.planning",
    "service.datasets": BASE,
    "service.audit": f"{BASE} service.planning",
    "service.jobs": f"{BASE} service.planning service.ledger service.datasets service.audit",
    "service.quotes": f"{BASE} service.planning service.ledger service.jobs",
    "service": "service",
    "service.cli": "service workers epsilond",
    "epsilond": "",
    "workers.samplers": "workers.randomness",
    "workers.kernels": "service.planning workers.arrays workers.losses",
    "workers.algorithms": "service.planning workers",
    "workers": f"{BASE} service.identity service.planning service.datasets service.jobs",
}
# What of others they never import: the API stays light, and a worker, which sees data, tells nobody.
NEVER = {
    "service": {"numba", "llvmlite", "workers"},
    "service.cli": {"numba", "llvmlite"},
    "service.planning": {"numba", "llvmlite", "workers", "sqlalchemy", "fastapi", "httpx"},
    "workers": {"fastapi", "starlette", "uvicorn", "httpx", "requests"},
    "epsilond": {"pandas", "polars", "pyarrow", "pydantic"},
}


def modules():
    for folder in (ROOT / "service", ROOT / "workers", ROOT / "clients" / "python" / "epsilond"):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


PACKAGES = ("service", "workers", "epsilond")
MODULES = dict(modules())


def imported(path):
    """Every module that the file names in an import, at its top or inside a function."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in MODULES else node.module for name in names)


def within(name, packages):
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def row(name, table):
    """The rule for a module: that of the longest name which it is within."""
    return max((key for key in table if within(name, [key])), key=len)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_only_what_its_row_allows(name):
    own = row(name, MAY_IMPORT)
    ours = {module for module in imported(MODULES[name]) if within(module, PACKAGES)}
    allowed = [own, *MAY_IMPORT[own].split()]
    assert {module for module in ours - {"service"} if not within(module, allowed)} == set()


@pytest.mark.parametrize("name", MODULES)
def test_a_module_never_imports_what_its_row_forbids(name):
    forbidden = NEVER[row(name, NEVER)]
    assert {module for module in imported(MODULES[name]) if within(module, forbidden)} == set()


LINES_MAX = 400


@pytest.mark.parametrize(
    "folder", ["service", "workers", "tools", "benchmarks", "tests", "clients"]
)
def test_no_module_is_long(folder):
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines())
        for path in (ROOT / folder).rglob("*.py")
    }
    assert {name for name, lines in lengths.items() if lines > LINES_MAX} == set()
