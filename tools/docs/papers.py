"""docs/papers.md: every numbered statement of the five papers, where it is built, what shows its rate.

The rows are in papers.toml. A place is a file, or file::words that occur in it; what shows a rate is a
theorem of benchmarks/theorems.py, or file::words of benchmarks/."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tools.docs.markdown import ROOT, table

PAGE = "docs/papers.md"
_INTRO = """# The papers, statement by statement

What the five papers number, where it is built, what differs from what is printed and why, and the
benchmark whose line shows its rate: a theorem of `make bench-utility`, or another file of
[benchmarks](../benchmarks). A dash: nothing differs, or nothing to measure. Errata stand beside the
code, in the docstring of each plan. Written by `make docs` from
[papers.toml](../tools/docs/papers.toml).
"""


class Row(NamedTuple):
    paper: str
    item: str
    says: str
    places: tuple[str, ...]
    differs: str
    shown: str


def papers() -> dict[str, dict[str, Any]]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


def rows() -> Iterator[Row]:
    for paper, told in papers().items():
        for item, says, places, differs, shown in told["rows"]:
            yield Row(paper, item, says, tuple(places), differs, shown)


def exists(place: str, root: Path = ROOT) -> bool:
    """Whether there is such a file, with these words in it if any are named."""
    name, _, words = place.partition("::")
    path = root / name
    return path.is_file() and words in path.read_text()


def pages() -> dict[str, str]:
    parts = [_INTRO]
    for paper, told in papers().items():
        mine = [row for row in rows() if row.paper == paper]
        lines = [
            [r.item, r.says, _links(r.places), r.differs or "-", _shown(r.shown)] for r in mine
        ]
        headers = ["", "what it is", "built in", "what differs, and why", "its rate"]
        parts.append(f"\n## {paper}: {told['title']}\n\n{table(headers, lines)}")
    return {PAGE: "".join(parts)}


def _links(places: tuple[str, ...]) -> str:
    names = (place.partition("::")[0] for place in places)
    return ", ".join(f"[{name.rsplit('/', 1)[1]}](../{name})" for name in names)


def _shown(shown: str) -> str:
    if "::" in shown:
        name = shown.partition("::")[0]
        return f"[{name}](../benchmarks/{name})"
    return shown or "-"
