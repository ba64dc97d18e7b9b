"""What ingestion did to the rows is counted, and refused where the owner says so."""

import json

import pytest

from service.datasets import encode, ingest, read, store
from service.datasets.read import ParseError
from service.datasets.schema import DeclaredSchema
from tests.datasets.files import CSV, SCHEMA, left_behind

WIDE = {
    "columns": [
        {"name": "age", "kind": "numeric", "lower": 0, "upper": 100, "fill": 50},
        {"name": "city", "kind": "categorical", "categories": ["Bonn", 2], "fill": "<other>"},
        {"name": "far", "kind": "numeric", "lower": 5, "upper": 6},
        {"name": "note", "kind": "ignored"},
    ],
    "label": {"name": "y", "kind": "numeric", "lower": 0, "upper": 1},
}
ROWS = """age,city,far,note,y
10,Bonn,-1,a,0
-1,2.0,0,a,9
,Rom,1,a,0.5
200,,2,a,1
NA,Ulm,5,a,1
"""
NOTHING = {"clipped": 0, "filled": 0, "other": 0, "constant": False}


def found(report):
    return {one.name: one.model_dump(exclude={"name"}) for one in report.columns}


def test_every_kind_of_change_is_counted_by_column(request_for, tmp_path, monkeypatch):
    monkeypatch.setattr(read, "BLOCK_CELLS", 1)  # a block for each row
    report = ingest.run_ingest(request_for(ROWS, WIDE)).report
    assert (report.rows, report.rows_clipped) == (5, 0)
    assert found(report) == {
        "age": NOTHING | {"clipped": 2, "filled": 2},
        "city": NOTHING | {"filled": 1, "other": 3},  # this schema compares 2.0 by spelling
        "far": NOTHING | {"clipped": 4, "constant": True},
        "y": NOTHING | {"clipped": 1},
    }
    stored = json.loads((tmp_path / "out" / store.REPORT).read_text())
    assert stored == report.model_dump()


def test_a_file_that_fits_leaves_nothing_to_say(request_for):
    fits = CSV.replace("Rom", "Bonn").replace("NA", "40")
    assert ingest.ingest(request_for(fits)).report.columns == []


def test_an_upload_that_is_all_unknown_and_constant_says_so(request_for):
    unknown = "age,city,y\n5000,bonn,1\n9000,koeln,1\n"
    assert found(ingest.ingest(request_for(unknown)).report) == {
        "age": NOTHING | {"clipped": 2, "constant": True},
        "city": NOTHING | {"other": 2, "constant": True},
        "y": NOTHING | {"constant": True},
    }


@pytest.mark.parametrize(
    ("bounds", "clipped"), [({}, 0), ({"l2": 0.5}, 3), ({"linf": 0.3}, 3), ({"l2": 0.9}, 1)]
)
def test_rows_that_are_shortened_to_a_declared_norm_are_counted(bounds, clipped, request_for):
    columns = [{"name": f"x{j}", "kind": "numeric", "lower": 0, "upper": 1} for j in range(2)]
    schema = {"columns": columns, "label": SCHEMA["label"]} | bounds
    rows = "x0,x1,y\n0,0,1\n1,0,0\n1,1,1\n"
    assert ingest.ingest(request_for(rows, schema)).report.rows_clipped == clipped


@pytest.mark.parametrize(
    ("share", "column", "reason"),
    [
        (1, None, None),
        (0.8, None, None),
        (0.79, "far", "4 of 5 cells are clipped: above 0.79 of them"),
        (0.39, "age", "2 of 5 cells are clipped"),
        (0, "y", "1 of 5 cells are clipped"),
    ],
)
def test_a_file_above_the_share_is_refused_and_leaves_nothing(
    share, column, reason, request_for, tmp_path
):
    request = request_for(ROWS, WIDE, refuse_above=share)
    if reason is None:
        assert ingest.run_ingest(request).rows == 5
        return
    with pytest.raises(ParseError) as refused:
        ingest.run_ingest(request)
    assert refused.value.column == column
    assert reason in refused.value.reason
    assert left_behind(tmp_path) == []


def test_rows_above_the_share_are_refused_too(request_for):
    with pytest.raises(ParseError, match=r"4 of 4 rows are shortened to l2 or linf: above 0\.9"):
        ingest.ingest(request_for(CSV, SCHEMA | {"l2": 1e-3}, refuse_above=0.9))


def test_counting_changes_nothing_of_what_is_encoded():
    schema = DeclaredSchema.model_validate(WIDE)
    rows = [{"age": "", "city": "Rom", "far": 7}, {"age": 9, "city": "2.0", "far": 5.5}]
    X = encode.encode_features(schema, encode.columns_from_rows(schema, rows))
    expected = [[1, 0.5, 0, 0, 1, 1], [1, 0.09, 0, 1, 0, 0.5]]
    assert (X * schema.blocks**0.5).round(12).tolist() == expected
