"""The table of the slowest tests, from a report of pytest's."""

from tools import slowest

REPORT = """<testsuites><testsuite>
<testcase classname="tests.a.test_b" name="test_quick[x|y]" time="0.01" />
<testcase classname="tests.a.test_b" name="test_slow" time="12.34" />
</testsuite></testsuites>"""


def test_the_section_is_replaced_and_the_rest_stays(tmp_path, monkeypatch, capsys):
    page, report = tmp_path / "testing.md", tmp_path / "report.xml"
    page.write_text(f"before\n{slowest.BEGIN}old\n{slowest.END}after\n")
    report.write_text(REPORT)
    monkeypatch.setattr(slowest, "PAGE", page)
    slowest.main(str(report))
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "old" not in text
    rows = [line for line in text.splitlines() if "::" in line]
    assert rows == [
        "| 12.3 | `tests/a/test_b.py::test_slow` |",
        "| 0.0 | `tests/a/test_b.py::test_quick[x\\|y]` |",
    ]
    assert "2 tests, 12 s" in text


def test_the_page_has_the_section():
    text = slowest.PAGE.read_text()
    assert text.index(slowest.BEGIN) < text.index(slowest.END)
