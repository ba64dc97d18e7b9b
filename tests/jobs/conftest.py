import pytest

from tests.jobs.harness import JobHarness


@pytest.fixture
def harness(db, tmp_path):
    return JobHarness(db, tmp_path)
