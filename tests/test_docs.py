"""The pages: their links lead somewhere, and what they say of the code is what the code says."""

import re
from pathlib import Path

import pytest

from tests.test_imports import BASE, MAY_IMPORT, NEVER

ROOT = Path(__file__).parent.parent
TOP = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")
PAGES = [*(ROOT / name for name in TOP), *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.M | re.S)
WORDS = (ROOT / "docs" / "glossary.md").read_text()


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def anchors(page):
    """The fragments by which the page's headings are linked."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page):
    for link in LINK.findall(FENCED.sub("", page.read_text())):
        if re.match(r"\w+:", link):
            continue
        path, _, fragment = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (fragment and fragment not in anchors(target)):
            yield link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page):
    assert list(broken(page)) == []


def test_readme_fits_two_screens():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 100


def table(name):
    """The rows between the marks of this name in ARCHITECTURE.md, as a dictionary."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    inside = text.split(f"<!-- {name}: begin -->")[1].split(f"<!-- {name}: end -->")[0]
    rows = [line.split("|")[1:3] for line in inside.strip().splitlines()[2:]]
    return {package.strip(" `"): cell for package, cell in rows}


def test_the_architecture_says_who_may_import_whom():
    written = {
        package: re.findall(r"[\w.]+", cell.replace("*base*", BASE))
        for package, cell in table("may import").items()
    }
    assert written == {package: names.split() for package, names in MAY_IMPORT.items()}
    assert set(BASE.split()) == set(
        re.findall(r"`([\w.]+)`", base_of((ROOT / "ARCHITECTURE.md").read_text()))
    )


def base_of(text):
    return re.search(r"\*base\* is (.*?)\. \[", text, re.S)[1]


def test_the_architecture_says_what_is_never_imported():
    written = {
        package: re.findall(r"[\w.]+", cell) for package, cell in table("never imports").items()
    }
    assert written == {package: sorted(names) for package, names in NEVER.items()}


def test_decisions_are_numbered_dated_and_short():
    paths = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    for number, path in enumerate(paths, 1):
        text = path.read_text()
        assert re.match(rf"{number:04d}-[a-z0-9-]+\.md", path.name)
        assert re.match(rf"# {number}\. .+\n\n20\d\d-\d\d-\d\d\n", text)
        assert re.findall(r"^## (\w+)", text, re.M) == ["Context", "Decision", "Consequences"]
        assert len(text.splitlines()) <= 25
        assert path.name in (path.parent / "README.md").read_text()


def glossary():
    rows = [line.split("|")[1:-1] for line in WORDS.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_the_glossary_is_in_order():
    words = [word.lower() for word, _, _ in glossary()]
    assert words == sorted(words)
    assert len(set(words)) == len(words)


@pytest.mark.parametrize(("word", "where"), [(word, where) for word, _, where in glossary()])
def test_a_word_of_the_glossary_lives_where_it_says(word, where):
    places = re.findall(r"`([^`]+)`", where)
    assert places, word
    assert [p for p in places if not list(ROOT.glob(p)) and not list(ROOT.glob(f"{p}.py"))] == []
