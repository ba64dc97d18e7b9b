"""A fit is given the rows that it may read, and no others."""

import numpy as np
import pytest

import workers.execute
from service.datasets.store import dataset_folder, only
from tests.jobs.harness import JobHarness
from workers.data import Data
from workers.execute import execute_one

ROWS, HELD_OUT = 150, 50


@pytest.fixture
def harness(db, tmp_path):
    return JobHarness(db, tmp_path, rows=ROWS, held_out=HELD_OUT)


@pytest.fixture
def labels_seen(harness, monkeypatch):
    """What a fit was given: each row's label is its position."""
    seen = []

    class Watched(Data):
        def __init__(self, plan, x, y, *more):
            seen.append(np.array(y))
            super().__init__(plan, x, np.ones(len(y)), *more)

    folder = dataset_folder(harness.settings.data_dir, harness.dataset)
    np.save(folder / "y.npy", np.arange(ROWS + HELD_OUT, dtype=np.float64))
    monkeypatch.setattr(workers.execute, "Data", Watched)
    return seen


def test_a_fit_is_planned_for_its_rows_and_given_these_alone(harness, labels_seen):
    job = harness.submit()
    assert execute_one(harness.db, harness.settings)
    assert harness.row(job).state == "succeeded"
    assert f'"held_out":{HELD_OUT}' in harness.row(job).plan
    assert f'"rows":{ROWS}' in harness.row(job).plan
    assert [seen.tolist() for seen in labels_seen] == [list(range(ROWS))]


def all_rows(facts, x, y):
    return x, y


def one_too_many(facts, x, y):
    return only(x, range(facts.rows + 1)), only(y, range(facts.rows + 1))


@pytest.mark.parametrize("mutant", [all_rows, one_too_many])
def test_a_fit_that_is_given_more_rows_is_refused(harness, monkeypatch, mutant):
    monkeypatch.setattr(workers.execute, "fit_rows", mutant)
    job = harness.submit()
    assert execute_one(harness.db, harness.settings)
    assert harness.row(job).state in ("queued", "failed")


def the_last_ones(facts, x, y):
    rows = range(facts.held_out, facts.rows + facts.held_out)
    return only(x, rows), only(y, rows)


def test_a_fit_that_is_given_other_rows_is_seen(harness, labels_seen, monkeypatch):
    monkeypatch.setattr(workers.execute, "fit_rows", the_last_ones)
    harness.submit()
    assert execute_one(harness.db, harness.settings)
    assert [seen.tolist() for seen in labels_seen] != [list(range(ROWS))]


def test_data_of_another_number_of_rows_than_the_facts_say_are_not_opened(harness):
    folder = dataset_folder(harness.settings.data_dir, harness.dataset)
    np.save(folder / "y.npy", np.ones(ROWS))
    job = harness.submit()
    assert execute_one(harness.db, harness.settings)
    assert harness.row(job).state in ("queued", "failed")
