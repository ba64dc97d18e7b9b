"""CONTRIBUTING.md: its code is that of tests/examples, and so are its counts of files and lines.

Between `<!-- include PATH -->` and `<!-- end -->` stands that file, and between `<!-- additions -->`
and `<!-- end -->` a table of what each example adds to the tree."""

import re

from tests.examples import ADDITIONS, Addition
from tools.docs.markdown import ROOT, table

PAGE = "CONTRIBUTING.md"
_INCLUDED = re.compile(r"(<!-- include (\S+) -->\n).*?(<!-- end -->\n)", re.S)
_COUNTED = re.compile(r"(<!-- additions -->\n).*?(<!-- end -->\n)", re.S)


def pages() -> dict[str, str]:
    text = _INCLUDED.sub(included, (ROOT / PAGE).read_text())
    return {PAGE: _COUNTED.sub(lambda found: found[1] + additions() + found[2], text)}


def included(found: re.Match[str]) -> str:
    return f"{found[1]}```python\n{(ROOT / found[2]).read_text()}```\n{found[3]}"


def additions() -> str:
    headers = ["adding one", "new files (lines)", "changed", "written by a command", "test rows"]
    return table(headers, map(row, ADDITIONS))


def row(one: Addition) -> list[str]:
    files = [
        f"`{place}` ({len(source.read_text().splitlines())})" for place, source in one.files.items()
    ]
    return [
        one.what,
        f"{len(files)}: " + ", ".join(files),
        f"1 line of `{one.list_file}`",
        ", ".join(f"`{name}`" for name in one.written),
        one.tests,
    ]
