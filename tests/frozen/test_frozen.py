"""What an earlier version stored keeps its meaning: Plans, digests, models, chains, databases."""

import gzip
import json
import tarfile

import numpy as np
import pytest

from service.db import migrate
from service.ledger.check import check_ledger
from service.planning.catalog import plan
from service.planning.describe import describe
from service.planning.plan import PLANNER_VERSION, Plan
from service.planning.price import price_units
from tests.frozen.corpus import CORPUS, run
from tests.harness import Service, job
from workers.execute import software

FROZEN = json.loads(gzip.decompress(CORPUS.read_bytes()))


@pytest.fixture(scope="module", params=FROZEN, ids=lambda name: name.replace(" ", "/"))
def stored(request):
    return FROZEN[request.param]


def test_a_stored_plan_reads_prices_and_runs_as_it_did(stored):
    made = Plan.model_validate_json(stored["plan"])
    assert made.canonical() == stored["plan"]
    assert made.digest() == stored["digest"]
    assert price_units(made.release, made.facts.account) == made.price.units
    if made.planner == PLANNER_VERSION:
        assert plan(made.spec, made.facts) == made
    weights = run(made)
    if stored["software"] == software().model_dump():
        assert weights == stored["weights"]
    else:  # another exponential function may round a record, or a point, to the next lattice unit
        np.testing.assert_allclose(weights, stored["weights"], rtol=1e-3, atol=1e-3)


def test_a_stored_plan_is_described_by_whichever_kinds_it_names(stored):
    made = Plan.model_validate_json(stored["plan"])
    said = describe(made)
    assert said.release_count >= len(said.releases) > 0
    of_clip = [one for one in said.releases if one.released == "a choice of the clip by scores"]
    assert len(of_clip) == (made.private_clip is not None)


@pytest.fixture
def old_service(tmp_path):
    """A service on the database and files of an earlier one that had run every algorithm."""
    with tarfile.open(CORPUS.with_name("service.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    url = f"sqlite:///{tmp_path / 'test.db'}"
    migrate(url)
    service = Service("embedded", tmp_path, url)
    try:
        yield service.start()
    finally:
        service.stop()


def test_an_old_database_still_serves(old_service):
    people = json.loads((old_service.folder / "data" / "people.json").read_text())
    owner, analyst = (old_service.client(people[role]) for role in ("owner", "analyst"))
    verified = owner.verify(people["dataset"])
    assert verified["verified"] and verified["records"] == 17
    assert old_service.client(people["pure_owner"]).verify(people["pure"])["verified"]
    with old_service.db.read() as connection:
        assert check_ledger(connection) == []
    jobs = analyst.jobs()
    assert len(jobs) == 17
    for one in jobs:
        assert analyst.model(one["id"]).card["plan_digest"] == one["plan_digest"]
    done = analyst.wait(analyst.submit(job(people["dataset"]))["id"])
    assert done["state"] == "succeeded"
    assert analyst.verify(people["dataset"])["records"] == 18
