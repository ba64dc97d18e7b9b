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
    for folder in ("service", "workers")
    for path in (ROOT / folder).rglob("*.py")
)
GENERATORS = {
    *("random", "_random", "numpy.random", "numba.np.random", "numba.cuda.random", "uuid"),
    *("os.urandom", "os.getrandom", "posix.urandom", "ssl.RAND_bytes"),
}
# `epsilond worker` starts the worker, `epsilond jobs certify` computes on the caller's own rows
COMPOSITION_ROOT = {
    "service/cli/processes.py": "workers.celery_app",
    "service/cli/jobs.py": "workers.certify",
}
TAKE_STREAMS = (
    *("workers/data.py", "workers/gate.py", "workers/directions.py"),
    "workers/samplers/__init__.py",
)


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
            allowed = COMPOSITION_ROOT.get(path)
            if within(name, "workers") and not (allowed and within(name, allowed)):
                out.append(f"service imports {name}")
        if (
            any(within(name, by) for by in ("importlib", "pkgutil"))
            and path.startswith("workers/")
            and not names_its_own(path, tree)
        ):
            out.append("an import that cannot be checked")
    out += calls_that_cannot_be_checked(tree)
    if path != "workers/randomness.py" and makes_a_stream(tree):
        out.append("only Randomness makes streams")
    return out


def calls_that_cannot_be_checked(tree: ast.AST) -> list[str]:
    out = []
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "fastmath":
            out.append("fastmath changes what a kernel computes")
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("__import__", "eval", "exec"):
            out.append(f"{ast.unparse(node.func)} cannot be checked")
    return out


def names_its_own(path: str, tree: ast.AST) -> bool:
    """Whether a package imports by name nothing but its own modules, which are checked here too."""
    package = path.removesuffix("/__init__.py").replace("/", ".")
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    whole = [ast.unparse(node) for node in imports if "importlib" in ast.unparse(node)]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    named = [ast.unparse(call) for call in calls if ast.unparse(call.func) == "import_module"]
    return (
        path.endswith("/__init__.py")
        and whole == ["from importlib import import_module"]
        and len([node for node in ast.walk(tree) if ast.unparse(node) == "import_module"]) == 2
        and named == [f"import_module(f'{package}.{{module}}')"]
    )


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
        ("workers/gate.py", "from workers.randomness import Stream\nStream(key, 1, 0)"),
        ("workers/a.py", "__import__('random')"),
        ("workers/a.py", "import importlib\nimportlib.import_module('random')"),
        ("workers/a/__init__.py", "from importlib import import_module\nimport_module('random')"),
        ("workers/a/__init__.py", "from importlib import import_module\nf = import_module"),
        (
            "workers/a/__init__.py",
            "from importlib import import_module\nimport_module(f'{module}.random')",
        ),
        ("workers/kernels/a.py", "from numba import njit\n@njit(fastmath=True)\ndef f(): pass"),
        ("workers/kernels/a.py", "import numba\nf = numba.njit(fastmath={'nnan'})(g)"),
        ("service/a.py", "import uuid"),
        ("service/a.py", "import os as o\nkey = o.urandom(32)"),
        ("service/a.py", "from workers.data import Data"),
        ("service/a.py", "import workers"),
        ("service/a.py", "def f():\n    from workers import execute"),
        ("service/a.py", "import numba"),
        ("service/cli/processes.py", "from workers.execute import execute_one"),
        ("service/cli/processes.py", "from workers.certify import certify"),
    ],
)
def test_the_check_above_sees(path, source):
    assert faults(path, source) != []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("service/a.py", "import secrets\nsecrets.token_bytes(32)"),
        ("workers/a.py", "from workers.randomness import Randomness"),
        ("workers/a.py", "import numpy as np\nrandom = np.zeros(3)\nrandom.sum()"),
        (
            "workers/a/__init__.py",
            "from importlib import import_module\n"
            "RUNS = [import_module(f'workers.a.{module}').run for module in MODULES]",
        ),
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
    for name in ("kernels/losses.py", "kernels/simd/avx2.py", "samplers/real.py"):
        before = workers.sources_digest(copy)
        with (copy / name).open("a") as file:
            file.write("# changed")
        assert workers.sources_digest(copy) != before
