"""CONTRIBUTING.md: its code is that of tests/examples, and so are its counts of files and lines.

Between `<!-- include PATH -->` and `<!-- end -->` stands that file, and between `<!-- additions -->`
and `<!-- end -->` a table of what each example adds to the tree."""

import re
from collections import Counter
from collections.abc import Iterable

from tests.examples import ADDITIONS, Addition, Insertion
from tools.docs.markdown import ROOT, names, table

PAGE = "CONTRIBUTING.md"
_INCLUDED = re.compile(r"(<!-- include (\S+) -->\n).*?(<!-- end -->\n)", re.S)
_COUNTED = re.compile(r"(<!-- additions -->\n).*?(<!-- end -->\n)", re.S)


def pages() -> dict[str, str]:
    text = _INCLUDED.sub(included, (ROOT / PAGE).read_text())
    return {PAGE: _COUNTED.sub(lambda found: found[1] + additions() + found[2], text)}


def included(found: re.Match[str]) -> str:
    return f"{found[1]}```python\n{(ROOT / found[2]).read_text()}```\n{found[3]}"


def additions() -> str:
    headers = ["adding one", "new files (lines)", "list", "tests", "written by commands"]
    return table(headers, map(row, ADDITIONS))


def row(one: Addition) -> list[str]:
    files = [
        f"`{place}` ({len(source.read_text().splitlines())})" for place, source in one.files.items()
    ]
    return [
        one.what,
        f"{len(files)}: " + ", ".join(files),
        counted([one.listed]),
        counted(one.tests),
        names(one.written),
    ]


def counted(insertions: Iterable[Insertion]) -> str:
    """How many lines are added to each file."""
    lines = Counter[str]()
    for one in insertions:
        lines[one.file] += len(one.text.splitlines())
    return ", ".join(f"{n} line{'s' * (n > 1)} of `{file}`" for file, n in lines.items()) or "–"
