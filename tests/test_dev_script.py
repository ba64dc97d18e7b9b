"""The pure pieces of tools/dev.py and of what it imports; nothing here uses the network."""

import ast
import contextlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from sqlalchemy.engine import make_url

from tools import dev, environment, servers

PATH = Path(dev.__file__)
FILES = [Path(module.__file__) for module in (dev, environment, servers)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_old_python_can_parse_it(path):
    # Otherwise a python3 that is too old dies of a SyntaxError instead of finding a newer one.
    ast.parse(path.read_text(), feature_version=(3, 8))


def test_only_the_standard_library_is_needed_to_start():
    # -S leaves site-packages out, as on a machine where nothing is installed yet.
    command = [sys.executable, "-S", str(PATH), "--help"]
    run = subprocess.run(command, check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert "dev.py test" in run.stdout


def test_unknown_commands_print_the_usage_and_fail(capsys):
    assert dev.main(["frobnicate"]) == 2
    assert "dev.py serve" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("installed", "expected"),
    [
        ({"python3.13": (3, 13), "python3.11": (3, 11)}, "python3.13"),
        ({"python3.13": None, "python3.12": (3, 12)}, "python3.12"),  # a shim with nothing behind
        ({"python3": (3, 14)}, "python3"),
        ({"python3": (3, 9), "python3.11": (3, 11)}, "python3.11"),
    ],
)
def test_finds_a_new_enough_python(installed, expected):
    which = {name: f"/bin/{name}" for name in installed}.get
    version = {f"/bin/{name}": value for name, value in installed.items()}.get
    assert environment.find_python(which, version) == f"/bin/{expected}"


def test_says_what_to_install_when_every_python_is_too_old(capsys):
    with pytest.raises(SystemExit) as stopped:
        environment.find_python(lambda name: f"/bin/{name}", lambda path: (3, 10))
    assert stopped.value.code == 1
    assert "apt install python3.11-venv" in capsys.readouterr().err


def test_version_of_a_real_and_of_a_broken_python(tmp_path):
    assert environment.python_version(sys.executable) == sys.version_info[:2]
    broken = tmp_path / "python3.13"
    broken.write_text("#!/bin/sh\necho 'pyenv: python3.13: command not found'\nexit 127\n")
    broken.chmod(0o755)
    assert environment.python_version(broken) is None
    assert environment.python_version(tmp_path / "absent") is None


@pytest.mark.parametrize("missing", ["venv", "ensurepip"])
def test_names_the_package_when_venvs_cannot_be_made(missing, capsys):
    with pytest.raises(SystemExit) as stopped:
        environment.check_can_make_venv(lambda name: None if name == missing else name, (3, 12, 1))
    assert stopped.value.code == 1
    assert "apt install python3.12-venv" in capsys.readouterr().err


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """What pip was asked to install, into a .venv that is there; `answers` is what it says to each."""
    pip = SimpleNamespace(asked=[], answers={}, stamp=tmp_path / "stamp")

    def attempt(command, **_):
        pip.asked.append(command[5:])
        return pip.answers.get(command[5], (True, ""))

    for name in ("pyproject.toml", environment.LOCK):
        (tmp_path / name).write_text("one")
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "STAMP", pip.stamp)
    monkeypatch.setattr(environment, "venv_works", lambda: True)
    monkeypatch.setattr(environment, "attempt", attempt)
    return pip


LOCKED = ["--require-hashes", "-r", "requirements-dev.lock"]


@pytest.mark.parametrize("changed", ["pyproject.toml", "requirements-dev.lock"])
def test_installs_what_is_locked_and_only_when_a_file_changed(pip, tmp_path, changed):
    environment.ensure_venv()
    environment.ensure_venv()
    assert pip.asked == [LOCKED, ["--no-deps", "-e", "clients/python", "-e", "."]]
    (tmp_path / changed).write_text("two")
    environment.ensure_venv()
    assert len(pip.asked) == 4


def test_a_failed_install_shows_pips_output_and_leaves_no_stamp(pip, capsys):
    pip.answers = dict.fromkeys((LOCKED[0], "-e"), (False, "No matching distribution found"))
    with pytest.raises(SystemExit):
        environment.ensure_venv()
    assert "No matching distribution" in capsys.readouterr().err
    assert not pip.stamp.exists()


def test_what_an_index_lacks_is_replaced_within_the_ranges_and_said(pip, capsys):
    pip.answers = {LOCKED[0]: (False, "No matching distribution found for numpy==2.4.6")}
    environment.ensure_venv()
    assert pip.asked == [LOCKED, ["-e", "clients/python", "-e", ".[dev]"]]
    assert "numpy==2.4.6" in capsys.readouterr().err


def test_a_file_with_another_hash_is_never_replaced(pip, capsys):
    pip.answers = {LOCKED[0]: (False, "THESE PACKAGES DO NOT MATCH THE HASHES")}
    with pytest.raises(SystemExit):
        environment.ensure_venv()
    assert pip.asked == [LOCKED]
    assert not pip.stamp.exists()


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("postgresql://postgres@127.0.0.1:5432/postgres", "postgresql+psycopg://postgres@127.0.0.1:5432/d"),
        ("postgresql+psycopg://u:p%40ss@db:6543", "postgresql+psycopg://u:p%40ss@db:6543/d"),
        ("postgres://u@db/x?sslmode=require", "postgresql+psycopg://u@db/d?sslmode=require"),
        ("postgresql:///x?host=/run/pg", "postgresql+psycopg:///d?host=/run/pg"),
    ],
)  # fmt: skip
def test_database_urls(server, expected):
    url = servers.database_url(server, "d")
    assert url == expected
    assert make_url(url).database == "d"
    assert make_url(url).get_backend_name() == "postgresql"


def test_libpq_urls_have_no_driver():
    assert servers.libpq_url("postgresql+psycopg://u:p@h:1/d?a=b") == "postgresql://u:p@h:1/d?a=b"


def test_free_port_can_be_bound():
    port = servers.free_port()
    with socket.socket() as server:
        server.bind(("127.0.0.1", port))


@pytest.mark.parametrize(
    ("variables", "tried"),
    [
        ({}, ["local", "installed", "wheel"]),
        ({"EPSILOND_TEST_IGNORE_LOCAL": "1"}, ["installed", "wheel"]),
        ({"EPSILOND_TEST_ONLY_WHEELS": "1"}, ["wheel"]),
    ],
)
def test_servers_are_sought_in_order_and_a_missing_one_is_loud(
    variables, tried, monkeypatch, capsys
):
    seen = []

    def source(name):
        def look(_stack):
            seen.append(name)
            raise servers.NoServerError(f"no {name} here")

        look.__name__ = name
        return look

    for name in ("IGNORE_LOCAL", "ONLY_WHEELS", "REDIS_URL"):
        monkeypatch.delenv(f"EPSILOND_TEST_{name}", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    kind = ("redis-server", lambda url: True, [source(n) for n in ("local", "installed", "wheel")])
    with pytest.raises(SystemExit) as stopped:
        servers.find_server("EPSILOND_TEST_REDIS_URL", kind, contextlib.ExitStack())
    assert stopped.value.code == 1
    assert seen == tried
    message = capsys.readouterr().err
    assert "apt install redis-server" in message
    assert "EPSILOND_TEST_REDIS_URL" in message
    assert all(f"no {name} here" in message for name in tried)


def test_a_named_server_is_the_only_one_tried(monkeypatch):
    monkeypatch.setenv("EPSILOND_TEST_REDIS_URL", "redis://elsewhere:1/0")
    stack = contextlib.ExitStack()
    kind = ("redis-server", lambda url: True, [])
    assert servers.find_server("EPSILOND_TEST_REDIS_URL", kind, stack) == "redis://elsewhere:1/0"
    with pytest.raises(SystemExit):
        servers.find_server(
            "EPSILOND_TEST_REDIS_URL", ("redis-server", lambda url: False, []), stack
        )


def test_only_keys_with_the_prefix_are_deleted(monkeypatch):
    """A stand-in for the server: no FLUSH exists, and SCAN is filtered by the pattern given."""
    keys = {"somebody": 1}

    class Client:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def scan_iter(self, match, count):
            assert match.endswith(":*")
            return [key for key in list(keys) if key.startswith(match[:-1])]

        def delete(self, key):
            del keys[key]

    fake = SimpleNamespace(
        Redis=SimpleNamespace(from_url=lambda *_, **__: Client()), RedisError=OSError
    )
    monkeypatch.setattr(servers, "redis", fake)
    with (
        servers.throwaway_keys("redis://x") as prefix,
        servers.throwaway_keys("redis://x") as other,
    ):
        assert prefix != other
        keys[prefix + "queue"] = 1
    assert keys == {"somebody": 1}


def test_root_is_dropped_and_nobody_else_is(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert servers.unprivileged() == {}
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    options = servers.unprivileged()
    assert options["user"] != 0
    assert options["group"] != 0
    assert options["extra_groups"] == []


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_never_calls_sudo(path):
    assert "sudo" not in path.read_text()


@pytest.mark.parametrize(
    ("installed", "root", "expected"),
    [
        ({"chromium", "apt-get"}, True, []),
        ({"google-chrome"}, True, []),
        ({"apt-get"}, False, []),
        (set(), True, []),
        ({"apt-get"}, True, ["update", "install"]),
    ],
)
def test_a_browser_is_installed_only_where_that_is_allowed(installed, root, expected):
    calls = []

    def execute(command, **options):
        calls.append(command[1])
        return True, ""

    dev.ensure_browser(lambda name: name if name in installed else None, root, execute)
    assert calls == expected
