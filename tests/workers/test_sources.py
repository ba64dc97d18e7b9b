"""What the sources may not contain: another generator, an import against the arrow, fast maths."""

import ast
import shutil
from pathlib import Path

import numba
import pytest

import workers

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path.relative_to(ROOT).as_posix()
    for room in ("service", "workers")
    for path in (ROOT / room).rglob("*.py")
)
GENERATORS = {
    *("random", "_random", "numpy.random", "numba.np.random", "numba.cuda.random", "uuid"),
    *("os.urandom", "os.getrandom", "posix.urandom", "ssl.RAND_bytes"),
}
# `epsilond worker` starts the worker, `epsilond jobs certify` computes on the caller's own rows
COMPOSITION_ROOT = ("service/cli.py", ("workers.celery_app", "workers.certificate"))
# a kernel has the name of its loss, and the list of losses is service's
BY_NAME = "workers/losses/__init__.py"
TAKE_STREAMS = ("workers/data.py", "workers/directions.py", "workers/samplers/__init__.py")


def names(tree: ast.AST) -> set[str]:
    """Every dotted name that a module imports or reads, with `import a.b as c` resolved."""
    alias: dict[str, str] = {}
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for item in node.names:
                found.add(item.name)
                alias[item.asname or item.name.split(".")[0]] = (
                    item.name if item.asname else item.name.split(".")[0]
                )
        elif isinstance(node, ast.ImportFrom) and node.module:
            for item in node.names:
                found |= {node.module, f"{node.module}.{item.name}"}
                alias[item.asname or item.name] = f"{node.module}.{item.name}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            first, *rest = ast.unparse(node).split(".")
            if first in alias:
                found.add(".".join([alias[first], *rest]))
    return found


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def faults(path: str, source: str) -> list[str]:
    tree = ast.parse(source)
    out = []
    for name in sorted(names(tree)):
        if any(within(name, generator) for generator in GENERATORS):
            out.append(f"another generator: {name}")
        if within(name, "secrets") and path.startswith("workers/"):
            out.append("workers draw only from the job's key")
        if within(name, "workers.randomness.Stream") and path not in TAKE_STREAMS:
            out.append("streams come from Randomness, by address")
        if path.startswith("service/"):
            if within(name, "numba") or within(name, "llvmlite"):
                out.append(f"service imports {name}")
            if within(name, "workers") and not (
                path == COMPOSITION_ROOT[0]
                and any(within(name, allowed) for allowed in COMPOSITION_ROOT[1])
            ):
                out.append(f"service imports {name}")
        if path.startswith("workers/") and finds_by_name(path, name):
            out.append("an import that cannot be checked")
    out += calls_that_cannot_be_checked(tree)
    if path != "workers/randomness.py" and makes_a_stream(tree):
        out.append("only Randomness makes streams")
    if looks_beyond_its_package(tree):
        out.append("a kernel is looked up in its own package only")
    return out


def calls_that_cannot_be_checked(tree: ast.AST) -> list[str]:
    out = []
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "fastmath":
            out.append("fastmath changes what a kernel computes")
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("__import__", "eval", "exec"):
            out.append(f"{ast.unparse(node.func)} cannot be checked")
    return out


def finds_by_name(path: str, name: str) -> bool:
    """Whether this is a way to import by a name that was computed, where none is allowed."""
    allowed = ("pkgutil", "pkgutil.resolve_name") if path == BY_NAME else ()
    return any(within(name, by) for by in ("importlib", "pkgutil")) and name not in allowed


def looks_beyond_its_package(tree: ast.AST) -> bool:
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [ast.unparse(c.args[0]) for c in calls if ast.unparse(c.func) == "resolve_name"]
    return not all(name.startswith(("f'{__name__}.", "f'{package}.")) for name in names)


def makes_a_stream(tree: ast.AST) -> bool:
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return any(ast.unparse(called).split(".")[-1] == "Stream" for called in calls)


@pytest.mark.parametrize("path", FILES)
def test_a_source_draws_and_imports_only_what_it_may(path):
    assert faults(path, (ROOT / path).read_text()) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("workers/a.py", "import random"),
        ("workers/a.py", "from random import gauss"),
        ("workers/a.py", "import numpy as np\nnp.random.default_rng()"),
        ("workers/a.py", "import numpy.random"),
        ("workers/a.py", "from numpy import random as r"),
        ("workers/a.py", "from numpy.random import default_rng"),
        ("workers/a.py", "def f():\n    import numpy\n    return numpy.random.normal()"),
        ("workers/a.py", "import os\nos.urandom(8)"),
        ("workers/a.py", "from os import urandom as u"),
        ("workers/a.py", "import secrets"),
        ("workers/a.py", "from workers.randomness import Stream"),
        ("workers/data.py", "from workers.randomness import Stream\nStream(key, 1, 0)"),
        ("workers/a.py", "__import__('random')"),
        ("workers/a.py", "import importlib\nimportlib.import_module('random')"),
        ("workers/a.py", "from pkgutil import resolve_name"),
        ("workers/a.py", "import pkgutil\npkgutil.resolve_name('random')"),
        ("workers/losses/__init__.py", "from pkgutil import resolve_name\nresolve_name('random')"),
        ("workers/losses/__init__.py", "from importlib import import_module"),
        ("workers/kernels/a.py", "from numba import njit\n@njit(fastmath=True)\ndef f(): pass"),
        ("workers/kernels/a.py", "import numba\nf = numba.njit(fastmath={'nnan'})(g)"),
        ("service/a.py", "import uuid"),
        ("service/a.py", "import os as o\nkey = o.urandom(32)"),
        ("service/a.py", "from workers.data import Data"),
        ("service/a.py", "import workers"),
        ("service/a.py", "def f():\n    from workers import execute"),
        ("service/a.py", "import numba"),
        ("service/cli.py", "from workers.execute import execute_one"),
    ],
)
def test_the_check_above_sees(path, source):
    assert faults(path, source) != []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("service/a.py", "import secrets\nsecrets.token_bytes(32)"),
        ("workers/a.py", "from workers.randomness import Randomness"),
        (
            "workers/losses/__init__.py",
            "from pkgutil import resolve_name\nresolve_name(f'{__name__}.{loss}:KERNEL')",
        ),
        ("workers/a.py", "import numpy as np\nrandom = np.zeros(3)\nrandom.sum()"),
    ],
)
def test_the_check_above_allows(path, source):
    assert faults(path, source) == []


def test_the_walk_reaches_every_room():
    assert {
        "service/planning/lattice.py",
        "workers/samplers/__init__.py",
        "workers/kernels/gradients.py",
    } <= (set(FILES))


def test_compiled_kernels_are_kept_under_a_name_that_any_change_of_source_changes(tmp_path):
    """numba alone would not see a change in a file from which a kernel inlines."""
    assert numba.config.CACHE_DIR.endswith(workers.sources_digest())
    copy = tmp_path / "workers"
    shutil.copytree(Path(workers.__file__).parent, copy, ignore=shutil.ignore_patterns("*.nb*"))
    assert workers.sources_digest(copy) == workers.sources_digest()
    for name in ("kernels/losses.py", "losses/ramp.py", "kernels/madd.py", "samplers/real.py"):
        before = workers.sources_digest(copy)
        with (copy / name).open("a") as file:
            file.write("# changed")
        assert workers.sources_digest(copy) != before
