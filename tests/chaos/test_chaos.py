"""A small campaign of each form, and what the verdict on it would have found. Disks that fill up and
networks that are cut take root, and are for `make chaos`."""

import os
from types import SimpleNamespace

import pytest

from tests.chaos import __main__ as command
from tests.chaos import ground
from tests.chaos.campaign import Campaign, schedule
from tests.chaos.faults import CELERY, FAULTS
from tests.chaos.verdict import Verdict
from tests.harness import ENGINES

FEW = {
    "celery": {"PostgreSQL killed", "a worker's child killed", "an API killed", "Redis flushed"},
    "embedded": {"the service killed with its workers", "an embedded worker killed"},
}
WITHOUT = ("disks", "network")
pytestmark = pytest.mark.timeout(900)  # a campaign starts many processes, and waits for all jobs


@pytest.fixture(scope="module", params=ENGINES)
def played(request, tmp_path_factory):
    """A campaign that is over."""
    folder = tmp_path_factory.mktemp(f"chaos-{request.param}")
    small = {"analysts": 2, "rows": 500, "long_rows": 5000}
    campaign = Campaign(request.param, folder, 4, 0, WITHOUT, FEW[request.param], **small)
    campaign.run()
    return campaign


def test_nothing_is_lost_doubled_or_overspent_by_kills_under_load(played):
    assert played.result["findings"] == []
    assert played.result["kills"] >= 4 and played.result["jobs"] > 10
    assert set(played.recoveries) >= FEW[played.engine]


def _job(verdict, state="succeeded"):
    return next(job for job in verdict.jobs.values() if job.state == state)


def a_job_is_forgotten(verdict):
    del verdict.jobs[_job(verdict).id]


def a_job_is_made_twice(verdict):
    verdict.book.accepted.discard(_job(verdict).id)


def a_job_stays_queued(verdict):
    _change(verdict, _job(verdict), state="queued")


def a_job_fails(verdict):
    _change(verdict, _job(verdict), state="failed")


def a_model_is_lost(verdict):
    del verdict.models[_job(verdict).id]


def a_job_is_published_twice(verdict):
    verdict.records.append(verdict.records[0])


def a_charge_is_made_twice(verdict):
    posted = next(entry for entry in verdict.entries if entry.kind == "post")
    verdict.entries.append(posted)


def an_opened_job_is_free(verdict):
    _change(verdict, _job(verdict), opened_ms=None)


def a_client_saw_another_state(verdict):
    verdict.book.ended[_job(verdict).id] = "cancelled"


def a_client_saw_another_model(verdict):
    verdict.book.models[_job(verdict).id] = "{}"


def a_chain_forgets_a_head(verdict):
    verdict.book.heads[verdict.load.datasets[0]] = {"00" * 32: None}


def a_record_is_cut_out(verdict):
    del verdict.records[next(i for i, record in enumerate(verdict.records) if record.seq == 1)]


def a_retry_draws_other_noise(verdict):
    job = _job(verdict)
    _change(verdict, job, fence=2)
    verdict.keys[job.id] = verdict.cluster.settings.keys.new_noise_key(job.id)


def a_lease_is_kept(verdict):
    _change(verdict, _job(verdict), lease_ms=1)


def _change(verdict, job, **values):
    verdict.jobs[job.id] = SimpleNamespace(**{**job._asdict(), **values})


MUTANTS = {
    "nothing_is_lost": (
        a_job_is_forgotten,
        a_job_is_made_twice,
        a_job_stays_queued,
        a_job_fails,
    ),
    "nothing_is_doubled": (
        a_model_is_lost,
        a_job_is_published_twice,
        a_charge_is_made_twice,
        an_opened_job_is_free,
    ),
    "what_was_seen_is_still_so": (a_client_saw_another_state, a_client_saw_another_model),
    "chains_verify": (a_chain_forgets_a_head, a_record_is_cut_out),
    "retries_are_the_same_to_the_bit": (a_retry_draws_other_noise,),
    "nothing_is_left_over": (a_lease_is_kept,),
}


@pytest.mark.parametrize(
    ("check", "mutant"),
    [(check, mutant) for check, mutants in MUTANTS.items() for mutant in mutants],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_the_verdict_finds_what_is_wrong(played, check, mutant):
    fine = played.verdict
    wrong = object.__new__(Verdict)
    wrong.__dict__ |= {
        name: value.copy() if isinstance(value, (dict, list)) else value
        for name, value in fine.__dict__.items()
    }
    book = fine.book
    wrong.book = SimpleNamespace(
        **{name: getattr(book, name).copy() for name in ("accepted", "ended", "models", "heads")},
        cancelled=book.cancelled,
    )
    mutant(wrong)
    assert list(getattr(wrong, check)()), mutant.__name__


def test_the_same_seed_gives_the_same_faults_and_each_kind_comes_once_first():
    first, again = (schedule(CELERY, 7) for _ in range(2))
    names = [next(first).name for _ in range(100)]
    assert names == [next(again).name for _ in range(100)]
    assert set(names[: len(CELERY)]) == {fault.name for fault in CELERY}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_fault_that_cannot_be_made_is_said_and_not_left_out(engine, monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr("sys.argv", ["chaos", "--engine", engine, "--folder", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"it takes root.*--without disks --without network"):
        command.main()


def test_a_command_that_is_missing_is_named(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(ground.shutil, "which", lambda name: None)
    with pytest.raises(ground.ImpossibleError, match="ip is not installed"):
        ground.needs("ip")


def test_what_takes_root_is_left_out_by_name_alone():
    kinds = {fault.needs for faults in FAULTS.values() for fault in faults}
    assert kinds == {None, *WITHOUT} == {None, *command.GIVEN_UP}
