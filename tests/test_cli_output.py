"""What commands print: tables on a terminal, JSON elsewhere; and drafts of schemas."""

import json
import sys
import tomllib
from typing import ClassVar

import pytest
from pydantic import ValidationError

from service import __version__
from service.cli import common, main, profiles
from service.cli.schema import COMMON, _column, _plain
from service.datasets.schema import DeclaredSchema


@pytest.fixture
def run(monkeypatch, capsys):
    """(what it printed, what it said on standard error)."""

    def run(*arguments, code=0):
        monkeypatch.setattr("sys.argv", ["epsilond", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == code
        return capsys.readouterr()

    return run


def test_the_version_is_printed(run):
    assert run("--version").out == f"epsilond {__version__}\n"


ROWS = [{"id": "ds_1", "rows": 12, "more": [1]}, {"id": "ds_22", "rows": None}]


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("as_json", [True, False])
def test_a_list_is_a_table_on_a_terminal_unless_json_is_asked(
    terminal, as_json, monkeypatch, capsys
):
    monkeypatch.setattr(common.options, "as_json", as_json)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    common.show(ROWS, "id", "rows")
    printed = capsys.readouterr().out
    if terminal and not as_json:
        assert printed == "id     rows\nds_1   12\nds_22  -\n"
    else:
        assert json.loads(printed) == ROWS


def test_an_empty_table_says_so():
    assert common.as_table([]) == "none"


@pytest.mark.parametrize("env", [{}, {"EPSILOND_URL": "http://127.0.0.1:2"}])
def test_the_service_is_where_the_option_or_the_environment_says(env, run, monkeypatch):
    monkeypatch.delenv("EPSILOND_URL", raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert "http://127.0.0.1:1;" in run("--url", "http://127.0.0.1:1", "keys", "list", code=1).err
    if env:
        assert "http://127.0.0.1:2;" in run("keys", "list", code=1).err
    else:
        assert common.options.url == "http://127.0.0.1:1"
        run("algorithms")
        assert common.options.url == common.URL


TABLE = "age,ward,flag, note ,y\n1,A,true,x,yes\n,B,false,,no\n"


def test_a_draft_has_the_header_and_the_types_and_nothing_of_the_rows(run, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text(TABLE)
    printed = run("schema", "draft", table, "--label", "y")
    drafted = json.loads(printed.out)
    assert [(c["name"], c["kind"]) for c in drafted["columns"]] == [
        ("age", "numeric"),
        ("ward", "categorical"),
        ("flag", "numeric"),
        ("note", "categorical"),
    ]
    assert drafted["label"]["kind"] == "binary"
    assert "release without noise" in printed.err
    table.write_text(TABLE.replace("A", "Q").replace("1", "77").replace("x", "z"))
    assert run("schema", "draft", table, "--label", "y").out == printed.out
    with pytest.raises(ValidationError, match="bounds must be declared"):
        DeclaredSchema.model_validate(drafted)  # until its owner has filled it in
    table.write_text(TABLE.replace("yes", "1").replace("no\n", "0\n"))
    assert json.loads(run("schema", "draft", table, "--label", "y").out)["label"]["lower"] is None
    said = run("schema", "draft", table, "--label", "z", code=2).err
    assert "has no column 'z'; it has: age, ward, flag, note, y." in said


def drafted(run, tmp_path, header, row):
    table = tmp_path / "rows.csv"
    table.write_text(f"{header}\n{row}\n")
    said = run("schema", "draft", table, "--label", "y")
    return json.loads(said.out), said.err


def test_bounds_that_are_known_of_any_such_column_are_suggested_with_their_source(run, tmp_path):
    schema, said = drafted(run, tmp_path, "Age,income,US State,y", "3,4,CA,1")
    age, income, state = schema["columns"]
    assert (age["lower"], age["upper"]) == (0, 125) and "Age: suggested (no documented" in said
    assert income["lower"] is None and "income: suggested" not in said
    assert len(state["categories"]) == 51


def test_every_suggestion_is_a_column_that_can_be_declared():
    names = [
        name for column in tomllib.loads(COMMON.read_text())["column"] for name in column["names"]
    ]
    assert len(names) == len(set(names)) and names == [_plain(name) for name in names]
    label = {"name": "outcome", "kind": "binary", "positive": "1", "negative": "0"}
    DeclaredSchema.model_validate(
        {"columns": [_column(name, []) for name in names], "label": label}
    )


@pytest.fixture
def home(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("EPSILOND_URL", "EPSILOND_KEY", "EPSILOND_PROFILE"):
        monkeypatch.delenv(name, raising=False)


class Remembered:
    """A client that says how it was made."""

    made: ClassVar = []

    def __init__(self, url, key=None, retries=0):
        self.made.append((url, key))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def me(self):
        return {"name": "Ada", "role": "owner"}

    def keys(self):
        return []


@pytest.mark.parametrize(
    ("said", "env", "used"),
    [
        ((), {}, ("http://a:1", "secret")),
        (("--profile", "other"), {}, ("http://b:2", "second")),
        ((), {"EPSILOND_PROFILE": "other"}, ("http://b:2", "second")),
        ((), {"EPSILOND_KEY": "mine"}, ("http://a:1", "mine")),
        (("--url", "http://c:3"), {}, ("http://c:3", None)),  # a key goes to its own service alone
        (("--url", "http://c:3"), {"EPSILOND_KEY": "mine"}, ("http://c:3", "mine")),
    ],
)
@pytest.mark.usefixtures("home")
def test_a_profile_is_what_was_logged_in_to(said, env, used, run, monkeypatch):
    monkeypatch.setattr(common, "Client", Remembered)
    monkeypatch.setattr(profiles, "Client", Remembered)
    assert "Ada, owner" in run("--url", "http://a:1", "login", "--key", "secret").out
    run("--url", "http://b:2", "login", "--key", "second", "--name", "other")
    assert profiles.file().stat().st_mode & 0o077 == 0
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    run(*said, "keys", "list")
    assert Remembered.made[-1] == used


@pytest.mark.usefixtures("home")
def test_a_profile_that_is_not_there_is_named_and_one_that_is_can_be_forgotten(run, monkeypatch):
    monkeypatch.setattr(profiles, "Client", Remembered)
    assert "epsilond login" in run("--profile", "x", "keys", "list", code=2).err
    run("--url", "http://a:1", "login", "--key", "secret", "--name", "x")
    run("logout", "--name", "x")
    assert profiles.read() == {}
