"""docs/papers.md leaves nothing out: every statement has a row, every row a place that exists."""

import re

import pytest

from benchmarks.theorems import lines
from tools.docs.papers import exists, papers, rows

ROWS = list(rows())
NUMBERED = {  # how far a paper counts its algorithms, and its statements where one count has all
    "BGM": (6, range(1, 30)),
    "KLL": (5, range(0)),
    "KLT": (5, range(0)),
    "LR-OP": (3, range(0)),
    "LR-HT": (6, range(1, 39)),
}
each_row = pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.paper} {row.item}")


def numbers_of(item):
    """Those that a row's name has, with all between two that "to" joins."""
    found = re.findall(r"(?:Theorem|Lemma|Proposition|Corollary|Remark|Definition) (\d+)", item)
    numbers = [int(number) for number in found]
    if " to " in item and len(numbers) == 2:
        return set(range(numbers[0], numbers[1] + 1))
    return set(numbers)


@pytest.mark.parametrize("paper", NUMBERED)
def test_no_numbered_statement_is_left_out(paper):
    algorithms, statements = NUMBERED[paper]
    mine = [row.item for row in ROWS if row.paper == paper]
    assert {f"Algorithm {i}" for i in range(1, algorithms + 1)} <= set(mine)
    covered = set().union(*(numbers_of(item) for item in mine))
    assert set(statements) <= covered
    assert len(mine) == len(set(mine))


def test_all_five_papers_are_there():
    assert set(papers()) == set(NUMBERED)


@each_row
def test_a_row_has_places_and_all_exist(row):
    assert row.says and row.places
    assert [place for place in row.places if not exists(place)] == []


@each_row
def test_what_shows_a_rate_is_a_line_of_a_benchmark(row):
    if "::" in row.shown:
        assert exists(f"benchmarks/{row.shown}")
    elif row.shown:
        assert any(line.theorem.startswith(row.shown) for line in lines())


def test_a_place_that_is_not_there_is_seen():
    assert not exists("service/nowhere.py") and not exists("tools/docs/papers.py::no such words")
