"""The child that reads a file: its limits, its crashes, and what it leaves behind."""

import io
import json
import signal
import zipfile

import numpy as np
import pytest

from service.datasets import ingest, store
from service.datasets.ingest import IngestCrashed, IngestKilledError
from service.datasets.read import IngestLimitError, ParseError
from tests.datasets.files import CSV, GOOD, HEADER, left_behind


def bomb(megabytes: int) -> bytes:
    """A small archive whose members claim, and unpack to, a lot of zeros."""
    out = io.BytesIO()
    archive = zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
    with archive, archive.open("age.npy", "w") as member:
        header = {"descr": "<f8", "fortran_order": False, "shape": (megabytes << 17,)}
        np.lib.format.write_array_header_1_0(member, header)
        for _ in range(megabytes):
            member.write(bytes(1 << 20))
    return out.getvalue()


def claiming(elements: int) -> bytes:
    """A tiny member whose header claims a huge shape, which the directory does not show."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive, archive.open("age.npy", "w") as member:
        header = {"descr": "<f8", "fortran_order": False, "shape": (elements,)}
        np.lib.format.write_array_header_1_0(member, header)
    return out.getvalue()


@pytest.mark.parametrize(
    ("content", "limits", "limit"),
    [  # made when it is their turn: some are large
        (lambda: bomb(600), {"memory_bytes": 512 << 20}, "memory"),
        (lambda: claiming(1 << 40), {}, "memory"),
        (lambda: CSV, {"max_rows": 3}, "rows"),
        (
            lambda: bomb(450),
            {"memory_bytes": 512 << 20},
            "memory",
        ),  # the directory alone would pass
        (lambda: HEADER + GOOD * 100_000, {"disk_bytes": 100_000}, "disk"),
        (lambda: HEADER + GOOD * 2_000_000, {"cpu_seconds": 1, "max_rows": 10**8}, "cpu"),
    ],
    ids=["zip bomb", "lying header", "rows", "address space", "disk", "cpu"],
)
def test_a_file_beyond_its_limits_leaves_nothing_behind(
    content, limits, limit, request_for, tmp_path
):
    with pytest.raises(IngestLimitError) as refused:
        ingest.run_ingest(request_for(content(), **limits))
    assert refused.value.limit == limit
    assert left_behind(tmp_path) == []


def test_a_small_file_is_read_within_the_memory_that_bombs_exceed(request_for):
    made = ingest.run_ingest(request_for(HEADER + GOOD * 10, memory_bytes=512 << 20))
    assert made.rows == 10


def test_a_parse_error_crosses_the_process_boundary(request_for, tmp_path):
    with pytest.raises(ParseError) as refused:
        ingest.run_ingest(request_for(HEADER + GOOD + "old,Bonn,a,1\n"))
    assert refused.value.args == (2, "age", "not a number: 'old'")
    assert left_behind(tmp_path) == []


def test_a_missing_source_is_a_crash_and_not_a_result(request_for, tmp_path):
    with pytest.raises(IngestCrashed, match="exception"):
        ingest.run_ingest(request_for(CSV, source=tmp_path / "gone"))
    assert left_behind(tmp_path) == []


@pytest.mark.parametrize("finished", [False, True])
def test_a_child_killed_before_or_after_its_rename_leaves_nothing_behind(
    finished, request_for, tmp_path, monkeypatch
):
    request = request_for(CSV)

    def killed(request, inherited):
        folder = request.out_dir if finished else store.partial_folder(request.out_dir)
        folder.mkdir()
        (folder / "x.npy").touch()
        return ingest.subprocess.CompletedProcess([], -signal.SIGKILL, b"")

    monkeypatch.setattr(ingest, "_spawn", killed)
    with pytest.raises(IngestKilledError):
        ingest.run_ingest(request)
    assert left_behind(tmp_path) == []


def test_a_parser_that_crashes_is_the_files_doing(request_for, monkeypatch):
    for number in (signal.SIGSEGV, signal.SIGABRT):
        ended = ingest.subprocess.CompletedProcess([], -number, b"")
        monkeypatch.setattr(ingest, "_spawn", lambda *_, ended=ended: ended)
        with pytest.raises(IngestCrashed, match="signal"):
            ingest.run_ingest(request_for(CSV))


def test_an_existing_dataset_is_never_overwritten_or_removed(request_for, tmp_path):
    ingest.ingest(request_for(CSV))
    for attempt in (ingest.ingest, ingest.run_ingest):
        with pytest.raises(FileExistsError):
            attempt(request_for(CSV))
    assert left_behind(tmp_path) == ["out"]


def test_keys_are_not_shown_by_repr_nor_in_the_childs_environment(request_for, monkeypatch):
    request = request_for(CSV)
    assert "abab" not in repr(request)
    assert "cdcd" not in repr(request)
    seen = {}
    monkeypatch.setenv("EPSILOND_SECRET", "s3cret")
    monkeypatch.setattr(ingest.subprocess, "run", lambda args, **kw: seen.update(kw, args=args))
    ingest._spawn(request)
    assert "EPSILOND_SECRET" not in seen["env"]
    assert not any("abab" in argument for argument in seen["args"])
    assert json.loads(seen["input"])["content_key"] == "ab" * 32
