"""The notebooks in examples run from first cell to last, and are kept without their outputs."""

import ast
import contextlib
import json
from pathlib import Path

import pytest

from epsilond import Client
from tests.harness import running

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with running("embedded", tmp_path_factory.mktemp("notebooks")) as started:
        yield started


def code_cells(path):
    cells = json.loads(path.read_text())["cells"]
    return [cell for cell in cells if cell["cell_type"] == "code"]


def shown(value):
    """What a notebook would show of a cell's last value."""
    return value._repr_html_() if hasattr(value, "_repr_html_") else repr(value)


def run(cell, names):
    """A cell as a notebook runs it; the value of its last line is shown."""
    tree = ast.parse("".join(cell["source"]))
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    if last is not None:
        assert shown(eval(compile(ast.Expression(last.value), "<cell>", "eval"), names))


def test_there_are_three():
    names = ["an_owners_day", "choose_epsilon", "fit_and_evaluate"]
    assert [path.stem for path in NOTEBOOKS] == names


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_holds_no_outputs(service, path, monkeypatch, capsys):
    monkeypatch.setenv("EPSILOND_URL", service.url)
    monkeypatch.setenv("EPSILOND_KEY", service.init_key())
    cells, names = code_cells(path), {}
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    for cell in cells:
        run(cell, names)
    with contextlib.ExitStack() as stack:
        for one in names.values():
            if isinstance(one, Client):
                stack.callback(one.close)
    said = capsys.readouterr().out
    expected = {
        "an_owners_day": ("age.lower", "your share"),
        "choose_epsilon": (),
        "fit_and_evaluate": ("ward=C", "# Model job"),
    }[path.stem]
    assert [words for words in expected if words not in said] == []
