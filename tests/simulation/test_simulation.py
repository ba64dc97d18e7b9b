"""Whatever crashes, overtakes or gets lost: what the service promises of a job stays true."""

import logging

import pytest

from tests.simulation import mutants
from tests.simulation.__main__ import campaign, report
from tests.simulation.database import Fate
from tests.simulation.mutants import MUTANTS, mutated
from tests.simulation.play import draw, failure, opened_stage, shrink

SEEDS, PARTS = 184, 2
FAULTS = {
    *(fate.value for fate in Fate if fate is not Fate.FINE),
    "a hint doubled",
    "a job admitted from memory",
    "a publication that claims",
    "a hint lost",
    "a hint overtaken",
    "a publication too late",
    "a request repeated without an answer",
    "a request sent again",
    "leases run out",
    "the clock jumps",
}


# what changes while a request that is made from memory waits for its transaction
BEFORE_IT_IS_ADMITTED = {
    mutants.a_revoked_key_still_submits: ("revoke", 0, 0, 0),
    mutants.a_plan_is_admitted_at_other_limits: ("share", 0, 0, 0),
    mutants.what_is_remembered_is_believed: ("delete", 0, 0, 0),
}


@pytest.fixture(scope="module")
def stage():
    with opened_stage() as opened:
        yield opened


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.ERROR)


@pytest.mark.parametrize("part", range(PARTS))
def test_no_crash_race_or_loss_breaks_an_invariant_and_every_job_ends(part):
    """2,000 lifecycles in all parts; each sees every kind of fault."""
    found, lifecycles, _, faults = campaign(
        range(part * SEEDS // PARTS, (part + 1) * SEEDS // PARTS)
    )
    assert found is None, found
    assert lifecycles >= 2000 / PARTS
    assert set(faults) >= FAULTS


DRAWN = [mutant for mutant in MUTANTS if mutant not in BEFORE_IT_IS_ADMITTED]


@pytest.mark.parametrize("mutant", DRAWN, ids=lambda mutant: mutant.__name__)
def test_every_mutant_is_caught(stage, mutant):
    with mutated(mutant):
        assert any(failure(stage, *draw(seed)) for seed in range(SEEDS))


@pytest.mark.parametrize("mutant", BEFORE_IT_IS_ADMITTED, ids=lambda mutant: mutant.__name__)
def test_what_changes_while_a_remembered_request_waits_is_found(stage, mutant):
    go, other = ("go", 0, 0, 0), ("go", 1, 0, 0)
    asked = [("submit", 0, 0, 0), go, ("again", 0, 0, 0)]
    steps = [*asked, BEFORE_IT_IS_ADMITTED[mutant], other, go]
    assert failure(stage, 0, steps) is None
    with mutated(mutant):
        found = failure(stage, 0, steps).invariant
    assert found == "what_is_remembered_admits_nothing_that_is_no_longer_so"


def test_a_history_that_is_played_again_is_the_same(stage):
    assert stage.play(*draw(7)).log == stage.play(*draw(7)).log


def test_a_failing_history_is_shrunk_and_printed(stage):
    with mutated(next(m for m in MUTANTS if m.__name__ == "idempotency_is_ignored")):
        seed = next(seed for seed in range(SEEDS) if failure(stage, *draw(seed)))
        scene, steps = draw(seed)
        short = shrink(stage, scene, steps)
        text = report(stage, seed)
    assert len(short) <= 3 and all(failure(stage, scene, short[:i]) is None for i in range(2))
    assert "a_request_makes_all_of_its_jobs_or_none_once" in text and "what happened:" in text
