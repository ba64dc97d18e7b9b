"""The dashboard's files as text: lines that fit a screen, and no name that the service should say."""

import json
import re
from pathlib import Path

import pytest

from service.planning.catalog import CATALOG
from service.planning.spec import JobSpec

FOLDER = Path(__file__).parents[2] / "service" / "dashboard"
SOURCES = sorted(p for p in FOLDER.iterdir() if p.suffix in (".js", ".css", ".html"))
SCRIPTS = [path for path in SOURCES if path.suffix == ".js"]
WIDTH_MAX, LINES_MAX = 120, 400


def kinds(part):
    """The kinds of loss, set or the like that the job spec's schema lists."""
    schema = JobSpec.model_json_schema()
    return list(schema["properties"][part]["discriminator"]["mapping"])


def ids(paths):
    return [path.name for path in paths]


@pytest.mark.parametrize("path", SOURCES, ids=ids(SOURCES))
def test_lines_and_files_are_short(path):
    lines = path.read_text().splitlines()
    assert len(lines) <= LINES_MAX
    assert [line for line in lines if len(line) > WIDTH_MAX] == []


@pytest.mark.parametrize("path", SCRIPTS, ids=ids(SCRIPTS))
def test_no_script_names_an_algorithm_a_loss_or_a_set(path):
    text = path.read_text()
    for name in CATALOG:
        assert not re.search(name.replace("-", "[-_ ]?"), text, re.IGNORECASE), name
    literals = set(re.findall(r"[\"'`]([\w-]+)[\"'`]", text))
    assert not literals & {*kinds("loss"), *kinds("set")}


def test_the_formatter_is_named_with_its_width():
    settings = json.loads((FOLDER.parents[1] / ".prettierrc.json").read_text())
    assert settings["printWidth"] <= WIDTH_MAX
