"""Whatever goes wrong on the command line is one line that says what to do, and exit code 1 or 2."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from service.cli import main
from tests.harness import free_port, numeric_schema


@pytest.fixture
def run(monkeypatch, tmp_path, capsys):
    """Run the command in a folder of its own; (exit code, what it said on standard error)."""
    monkeypatch.chdir(tmp_path)
    for name in ("URL", "KEY", "DATA_DIR", "DATABASE_URL", "MASTER_KEY", "ENGINE"):
        monkeypatch.delenv(f"EPSILOND_{name}", raising=False)
    (tmp_path / "schema.json").write_text(json.dumps(numeric_schema(1)))
    (tmp_path / "wrong.json").write_text('{"columns": [{"name": "a", "kind": "numeric"}]}')
    (tmp_path / "bad.json").write_text('{"columns": [}')
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    (tmp_path / "rows.csv").write_text("x0,y\n1,1\n0,0\n")
    (tmp_path / "rows.xlsx").write_bytes(b"PK")

    def run(*arguments, **env):
        for name, value in env.items():
            monkeypatch.setenv(f"EPSILOND_{name}", value)
        monkeypatch.setattr("sys.argv", ["epsilond", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, capsys.readouterr().err

    return run


UPLOAD = ("datasets", "upload", "rows", "schema.json")
NOWHERE = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "env", "code", "words"),
    [
        (["datasets", "list"], {"URL": NOWHERE}, 1, "nothing answers at http://127.0.0.1:1; start"),
        (["datasets", "list"], {"URL": "localhost:8000"}, 2, "EPSILOND_URL is 'localhost:8000'"),
        (["datasets", "list"], {"URL": "http://[::1"}, 2, "it looks like http://127.0.0.1:8000"),
        ([*UPLOAD, "absent.csv"], {"URL": NOWHERE}, 2, "there is no file absent.csv."),
        ([*UPLOAD, "rows.xlsx"], {"URL": NOWHERE}, 2, "rows.xlsx: the name of a data file"),
        (["datasets", "upload", "rows", "binary.json", "rows.csv"], {"URL": NOWHERE}, 2, "UTF-8"),
        (
            ["datasets", "upload", "rows", "wrong.json", "rows.csv"],
            {"URL": NOWHERE},
            2,
            "the schema: ",
        ),
        (["quote", "absent.json"], {}, 2, "there is no file absent.json."),
        (["quote", "bad.json"], {}, 2, "bad.json is not JSON: "),
        (["quote", "binary.json"], {}, 2, "not UTF-8"),
        (["jobs", "submit", "."], {}, 2, ".: Is a directory."),
        (["verify", "absent.json", "--public-key", "00"], {}, 2, "there is no file absent.json."),
        (["serve", "--port", "99999"], {}, 2, "--port 99999: a port is a number from 0 to 65535."),
        (["api", "--port", "99999"], {}, 2, "--port 99999"),
        (["serve", "--data", "rows.csv", "--port", "0"], {}, 2, "rows.csv is a file, and a folder"),
        (["migrate"], {"DATA_DIR": "rows.csv"}, 2, "rows.csv is a file, and a folder"),
        (["migrate"], {"WORKERS": "none"}, 2, "EPSILOND_WORKERS: Input should be a valid integer"),
        (["migrate"], {"ENGINE": "fast"}, 2, "EPSILOND_ENGINE: Input should be 'embedded' or"),
        (
            ["init"],
            {"DATABASE_URL": "postgres://me@host/e"},
            2,
            "write postgresql://user:password@",
        ),
        (["migrate"], {"DATABASE_URL": "postgresql://host:port/e"}, 2, "write postgresql://user"),
        (["init"], {"DATABASE_URL": "what"}, 2, "EPSILOND_DATABASE_URL: Value error, write"),
        (["migrate"], {"DATABASE_URL": "postgresql+no://h/e"}, 2, "write postgresql://user:"),
        (["ledger", "check"], {}, 1, "there is no database at "),
        (["init"], {}, 1, "or make one: epsilond migrate"),
        (["api", "--port", "0"], {"DATABASE_URL": "sqlite:///e.db"}, 1, "run: epsilond migrate"),
        (["health"], {"DATABASE_URL": "postgresql://127.0.0.1:1/e"}, 1, "does not answer"),
        (["init"], {"DATABASE_URL": "postgresql://127.0.0.1:1/e"}, 1, "look whether it runs"),
        (["migrate"], {"DATABASE_URL": "postgresql://127.0.0.1:1/e"}, 1, "does not answer ("),
        (["api", "--port", "0"], {"DATABASE_URL": "postgresql://127.0.0.1:1/e"}, 1, "not answer"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_a_failure_is_one_line_that_says_what_to_do(arguments, env, code, words, run):
    ended, said = run(*arguments, **env)
    assert (ended, said.count("\n")) == (code, 1), said
    assert words in said and "Traceback" not in said


def test_looking_for_a_database_makes_none(run, tmp_path):
    run("ledger", "check", DATA_DIR=".")
    assert not (tmp_path / "epsilond.db").exists()


def test_a_second_administrator_of_one_name_is_refused_in_one_line(run, tmp_path, monkeypatch):
    monkeypatch.setenv("EPSILOND_DATA_DIR", str(tmp_path))
    assert run("migrate") == (0, "")
    assert run("init")[0] == 0
    code, said = run("init")
    assert (code, said.count("\n")) == (1, 1)
    assert "there is a principal named 'admin': choose another --name" in said


def test_a_taken_port_is_noticed_before_anything_is_made(run, tmp_path):
    with socket.socket() as taken:
        port = free_port()
        taken.bind(("127.0.0.1", port))
        taken.listen()
        code, said = run("serve", "--data", tmp_path / "new", "--port", port)
    assert code == 1 and f"127.0.0.1:{port} cannot be used" in said and said.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_another_service_at_the_address_is_told_from_ours(run):
    class Page(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>welcome</html>")

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        code, said = run("datasets", "list", URL=f"http://127.0.0.1:{server.server_port}")
        server.shutdown()
    assert code == 1 and "is this the address of an epsilond service?" in json.loads(said)["detail"]
