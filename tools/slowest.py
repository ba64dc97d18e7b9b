"""The ten slowest tests of a run, from pytest's JUnit report into docs/testing.md.

python -m tools.slowest REPORT
"""

import sys
from pathlib import Path
from xml.etree import ElementTree

PAGE = Path(__file__).parent.parent / "docs" / "testing.md"
BEGIN, END = "<!-- slowest: begin (make slowest) -->\n", "<!-- slowest: end -->\n"
COUNT = 10


def table(report: str) -> str:
    """A line of Markdown per test, the slowest first: seconds of set-up, call and tear-down."""
    cases = list(ElementTree.parse(report).iter("testcase"))
    total = sum(float(case.get("time", 0)) for case in cases)
    cases.sort(key=lambda case: -float(case.get("time", 0)))
    lines = [
        f"{len(cases)} tests, {total:.0f} s in all processes.",
        "",
        "| s | test |",
        "|--:|:--|",
    ]
    for case in cases[:COUNT]:
        file = case.get("classname", "").replace(".", "/") + ".py"
        name = case.get("name", "").replace("|", "\\|")
        lines.append(f"| {float(case.get('time', 0)):.1f} | `{file}::{name}` |")
    return "\n".join(lines) + "\n"


def main(report: str) -> None:
    lines, text = table(report), PAGE.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    PAGE.write_text(before + BEGIN + lines + END + after)
    print(lines)


if __name__ == "__main__":
    main(sys.argv[1])
