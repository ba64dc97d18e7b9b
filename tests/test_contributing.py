"""CONTRIBUTING.md keeps its word: its four examples, added to a copy of the tree as it says, work.

The lists are read when modules are imported and kernels are compiled then, so the copy is used by a
process of its own."""

import difflib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples import ADDITIONS, HERE

ROOT = Path(__file__).parents[1]
FILES = {"algorithm": 2, "loss": 2, "set": 1, "format": 1}
JOBS = ["all three", "algorithm", "loss", "set"]
each = pytest.mark.parametrize("one", ADDITIONS, ids=lambda one: one.what)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """The sources with all four added, and nothing else changed."""
    root = tmp_path_factory.mktemp("tree")
    for folder in ("service", "workers", "tests"):
        ignored = shutil.ignore_patterns("__pycache__", "vendor", "frozen")
        shutil.copytree(ROOT / folder, root / folder, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", root)
    for one in ADDITIONS:
        one.apply(root)
    return root


@pytest.fixture(scope="module")
def seen(tree, tmp_path_factory):
    return json.loads(python(tree, HERE / "use.py", tmp_path_factory.mktemp("files")))


def python(tree, *arguments):
    """What Python prints in the tree."""
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": str(tree)},
        cwd=tree,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@each
def test_an_example_is_its_files_and_one_line_of_a_list(tree, one):
    assert len(one.files) == FILES[one.what]
    assert not any((ROOT / place).exists() for place in one.files)
    before, after = ((r / one.listed.file).read_text().splitlines() for r in (ROOT, tree))
    changes = [line for line in difflib.ndiff(before, after) if line[0] in "+-"]
    assert changes == [f"+ {one.listed.text}"]


def test_nothing_else_of_the_tree_was_touched(tree):
    def sources(root):
        found = {p for package in ("service", "workers") for p in (root / package).rglob("*.py")}
        return {p.relative_to(root).as_posix(): p.read_text() for p in found}

    before, after = sources(ROOT), sources(tree)
    assert after.keys() - before.keys() == {place for one in ADDITIONS for place in one.files}
    changed = {name for name, text in before.items() if after[name] != text}
    assert changed == {one.listed.file for one in ADDITIONS}


@pytest.mark.parametrize("job", JOBS)
def test_a_job_is_planned_priced_metered_and_run(seen, job):
    found = seen[job]
    assert found["price"] > 0 and found["read again"]
    assert "left of what was paid for: nothing" in found["refusal"]
    assert any(found["weights"])


def test_the_three_together_compute_what_they_say(seen):
    weights, noise = seen["all three"]["weights"], seen["all three"]["noise"]
    assert weights == pytest.approx(seen["reference"], abs=10 * noise)
    assert max(weights) > 40 * noise


def test_weights_stay_in_the_set(seen):
    for job in ("all three", "set"):
        assert min(seen[job]["weights"]) == 0


def test_a_table_is_stored_as_it_is_from_another_format(seen):
    assert seen["format"][".jsonl"] == seen["format"][".csv"]


def test_the_tests_of_the_house_take_them(tree, seen):
    """`seen` comes first, for it compiles the kernels that these use."""
    files = [
        "tests/test_house.py",
        "tests/test_imports.py",
        "tests/audit/test_audit.py",
        "tests/datasets/test_formats.py",
        "tests/planning/test_guarantee.py",
        "tests/planning/test_kinds.py",
        "tests/planning/test_plan_refusals.py",
        "tests/workers/test_gate.py",
        "tests/workers/test_losses.py",
    ]
    ours = "single or pseudo or nonnegative or jsonl"
    whole_lists = "every or list_and or list_names or share_a_name or what_would_work"
    named = f"{ours} or ({whole_lists}) and not extreme"
    python(tree, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", named, *files)


@each
def test_the_page_shows_every_file_and_line(one):
    page = (ROOT / "CONTRIBUTING.md").read_text()
    for line in (one.listed, *one.tests[-1:]):
        assert f"`{line.text.strip()}`" in page
    for source in one.files.values():
        assert f"```python\n{source.read_text()}```\n" in page
