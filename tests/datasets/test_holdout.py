"""A share of the rows is held out: settled at upload by positions, public, and read by no fit."""

import json

import numpy as np
import pytest

from service.datasets import ingest, store
from service.datasets.read import ParseError
from service.datasets.schema import DeclaredSchema, Schema
from service.planning.spec import Facts
from tests.datasets.files import SCHEMA
from workers.rows import WrongDataError, fit_rows


def facts(rows, held_out=0):
    return Facts.model_validate(
        {
            "rows": rows,
            "held_out": held_out,
            "columns": 3,
            "storage": "float64",
            "label": "numeric",
            "account": {"kind": "pure", "delta": 0.0},
        }
    )


def table(rows):
    return "age,city,note,y\n" + "".join(f"{i % 90},Bonn,,{i % 2}\n" for i in range(rows))


def test_a_schema_that_names_no_share_holds_out_a_fifth_and_a_stored_one_none():
    assert DeclaredSchema.model_validate(SCHEMA).holdout == 0.2
    assert Schema.model_validate(SCHEMA).holdout == 0
    stored = json.loads(DeclaredSchema.model_validate(SCHEMA).model_dump_json())
    assert stored["holdout"] == 0.2
    assert Schema.model_validate(stored).holdout == 0.2


@pytest.mark.parametrize("share", [-0.1, 0.51, 1, "many"])
def test_a_share_is_at_most_half_of_the_rows(share):
    with pytest.raises(ValueError, match="holdout"):
        DeclaredSchema.model_validate(SCHEMA | {"holdout": share})


@pytest.mark.parametrize(
    ("rows", "share", "held_out"),
    [
        (10, 0, 0),
        (2, 0, 0),
        (10, 0.2, 2),
        (3, 0.3, 1),
        (101, 0.5, 50),
        (7, 0.1, 1),
        (1000, 0.29, 290),
    ],
)
def test_how_many_are_held_out_follows_from_their_number(rows, share, held_out, request_for):
    result = ingest.ingest(request_for(table(rows), SCHEMA | {"holdout": share}))
    assert (result.rows, result.held_out) == (rows, held_out)


@pytest.mark.parametrize(
    ("rows", "share", "enough"), [(2, 0.2, 5), (3, 0.5, 4), (4, 0.1, 10), (20, 0.01, 100)]
)
def test_too_few_rows_are_refused_with_what_would_work(rows, share, enough, request_for, tmp_path):
    declared = SCHEMA | {"holdout": share}
    with pytest.raises(ParseError, match=f'"holdout": 0, or send at least {enough} rows'):
        ingest.ingest(request_for(table(rows), declared))
    assert not (tmp_path / "out").exists()
    assert ingest.ingest(request_for(table(enough), declared)).held_out >= 1


def test_which_rows_are_held_out_does_not_depend_on_what_they_say(request_for, tmp_path):
    order = ingest.secret_order(bytes.fromhex("cd" * 32), 60)
    for share in (0, 0.3):
        ingest.ingest(request_for(table(60), SCHEMA | {"holdout": share}))
        _, y = store.open_arrays(tmp_path / "out")
        assert np.array_equal(y, 2 * (order % 2) - 1)
        store.delete_data(tmp_path / "out")


def test_facts_without_held_out_rows_have_the_text_that_they_had():
    assert "held_out" not in facts(10).model_dump()
    assert facts(8, 2).model_dump()["held_out"] == 2


@pytest.mark.parametrize("mapped", [False, True])
def test_in_the_rows_of_a_fit_no_other_can_be_addressed(mapped, tmp_path):
    x, y = np.arange(30.0).reshape(10, 3), np.arange(10.0)
    for name, array in (("x", x), ("y", y)):
        np.save(tmp_path / f"{name}.npy", array)
    given = store.open_arrays(tmp_path) if mapped else (x, y)
    fitted_x, fitted_y = fit_rows(facts(8, 2), *given)
    assert np.array_equal(fitted_x, x[:8])
    assert np.array_equal(fitted_y, y[:8])
    if mapped:
        assert len(fitted_x._mmap) == fitted_x.offset + fitted_x.nbytes
    for wrong in (facts(8), facts(10, 2), facts(9, 2), facts(8, 1)):
        with pytest.raises(WrongDataError, match="other rows"):
            fit_rows(wrong, x, y)


@pytest.mark.parametrize("dtype", [np.int16, np.float64])
def test_rows_in_the_middle_of_a_mapped_file_are_those_rows(dtype, tmp_path):
    x = np.arange(60_000, dtype=dtype).reshape(-1, 3)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", x[:, 0].astype(np.float64))
    for part in (range(15_000), range(15_000, 20_000), range(19_999, 20_000)):
        mapped = store.only(store.open_arrays(tmp_path)[0], part)
        assert np.array_equal(mapped, x[part.start : part.stop])
