"""The virtual environment in .venv, and commands inside it."""

# Must *parse* on Python 3.8 and needs nothing but Python: see dev.py.
from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / ".epsilond-stamp"
LOCK = "requirements-dev.lock"  # what .venv holds; the image holds requirements.lock
CLIENT = "clients/python"  # a distribution of its own, of which the command line is made
MINIMUM = (3, 11)


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
    """Make .venv if it is missing, and install into it if pyproject.toml or the lock file changed."""
    with locked():
        if not venv_works():
            check_can_make_venv()
            note("making .venv")
            _, output = attempt([sys.executable, "-m", "venv", VENV])
            if not venv_works():
                fail(f"{output}\n.venv does not work. Delete it and run this again")
        inputs = (ROOT / "pyproject.toml").read_bytes() + (ROOT / LOCK).read_bytes()
        wanted = hashlib.sha256(inputs).hexdigest()
        if not STAMP.exists() or STAMP.read_text() != wanted:
            note("installing epsilond and its tools into .venv (a minute or two)")
            install()
            STAMP.write_text(wanted)


def install():
    """The locked versions, every file by its hash. Where an index does not have one of them, newer or
    older ones within pyproject.toml's ranges do; a file with another hash never does."""
    fine, output = pip("--require-hashes", "-r", LOCK)
    if fine:
        fine, output = pip("--no-deps", "-e", CLIENT, "-e", ".")
    elif "No matching distribution found" in output:
        note(f"{output}\nnot every version in {LOCK} can be had here: installing what can be")
        fine, output = pip("-e", CLIENT, "-e", ".[dev]")
    if not fine:
        fail(f"{output}\npip could not install the dependencies, see above")


def pip(*arguments):
    command = [VENV_PYTHON, "-m", "pip", "install", "--disable-pip-version-check"]
    return attempt([*command, *arguments], cwd=ROOT)


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
