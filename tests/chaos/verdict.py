"""What must be true when everything has been put right again, and every job has ended."""

import json
import os
import subprocess
from collections import Counter, defaultdict

import numpy as np
from sqlalchemy import func, select, text

from service.audit.verify import verify_chain
from service.datasets.schema import Schema
from service.datasets.store import dataset_folder, open_arrays, uploaded_names
from service.jobs.states import ENDED
from service.ledger.check import check_ledger
from service.planning.plan import Plan, sha256
from service.tables import audit_records, datasets, entries, jobs, models
from tests.chaos.cluster import COMMAND
from tests.harness import until
from workers.algorithms import RUNS
from workers.data import Data
from workers.progress import Progress
from workers.randomness import Randomness

QUIET_SECONDS = 1800  # of watchdog: a job that was lost often pauses for long
SAMPLE = 40  # jobs that were started once and are computed again all the same


def wait_for_the_end(cluster, book):
    """Until no job is open any more; a pause after many losses is part of that."""
    open_jobs = select(func.count()).where(jobs.c.state.not_in(ENDED))

    def over():
        with cluster.look() as connection:
            return connection.execute(open_jobs).scalar() == 0

    try:
        until(over, "the end of all jobs", QUIET_SECONDS)
    except TimeoutError:
        book.finding("there are jobs that do not end")


def during(cluster, book):
    """The ledger in one snapshot, whatever else is going on."""
    with cluster.look() as connection:
        for found in check_ledger(connection):
            book.finding(f"the ledger, meanwhile: {found}")


class Verdict:
    def __init__(self, cluster, load, rng):
        self.cluster, self.load, self.book, self.rng = cluster, load, load.book, rng
        with cluster.look() as connection:
            self.jobs = {row.id: row for row in connection.execute(select(jobs))}
            self.models = {row.job_id: row for row in connection.execute(select(models))}
            self.records = connection.execute(select(audit_records)).all()
            self.entries = connection.execute(select(entries)).all()
            self.datasets = {row.id: row for row in connection.execute(select(datasets))}
            kept = connection.execute(text("SELECT job_id, wrapped_key FROM kept_keys"))
            self.keys = {job: bytes(wrapped) for job, wrapped in kept}
        self.public_key = load.owner.ask("GET", "/v1/audit/public-key").json()["public_key"]
        self.recomputed = 0

    def findings(self):
        for check in (
            self.nothing_is_lost,
            self.nothing_is_doubled,
            self.what_was_seen_is_still_so,
            self.nothing_is_overspent,
            self.chains_verify,
            self.retries_are_the_same_to_the_bit,
            self.nothing_is_left_over,
            self.everybody_works,
        ):
            for found in check():
                self.book.finding(f"{check.__name__}: {found}")
        return self.book.wrong

    def nothing_is_lost(self):
        for job in sorted(self.book.accepted ^ set(self.jobs)):
            yield f"{job} is known to its client or to the database, not to both"
        for job in self.jobs.values():
            if job.state not in ENDED:
                yield f"{job.id} is {job.state}, started {job.fence} times"
            elif job.state == "failed":
                yield f"{job.id} failed: {job.error}, started {job.fence} times"
            elif job.state == "cancelled" and job.id not in self.book.cancelled:
                yield f"{job.id} was cancelled by nobody"

    def nothing_is_doubled(self):
        recorded = Counter(record.job_id for record in self.records)
        kinds = defaultdict(list)
        for entry in sorted(self.entries, key=lambda entry: entry.seq):
            if entry.job_id is not None:
                kinds[entry.job_id].append(entry.kind)
        for job in self.jobs.values():
            done = job.state == "succeeded"
            if (job.id in self.models, recorded[job.id]) != (done, done):
                yield f"{job.id} is {job.state} and has {recorded[job.id]} records"
            end = "void" if job.opened_ms is None else "post"
            if kinds[job.id] != ["reserve", end]:
                yield f"{job.id} is {job.state}, and its entries are {kinds[job.id]}"

    def what_was_seen_is_still_so(self):
        for job, state in self.book.ended.items():
            if self.jobs[job].state != state:
                yield f"{job} was {state}, and is {self.jobs[job].state}"
        for job, model in self.book.models.items():
            if json.loads(model) != json.loads(self.models[job].card):
                yield f"{job} had another model"

    def nothing_is_overspent(self):
        done = subprocess.run(
            [*COMMAND, "ledger", "check"],
            env=os.environ | {"EPSILOND_DATABASE_URL": self.cluster.settings.url},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            yield f"epsilond ledger check: {done.stdout}{done.stderr}"

    def chains_verify(self):
        for dataset in self.load.datasets:
            mine = sorted(
                (r for r in self.records if r.dataset_id == dataset), key=lambda record: record.seq
            )
            chain = [
                {"body": json.loads(r.body), "hash": r.hash, "signature": r.signature} for r in mine
            ]
            yield from verify_chain(chain, self.public_key)
            hashes = {record.hash for record in mine}
            if forgotten := set(self.book.heads.get(dataset, ())) - hashes:
                yield f"the chain of {dataset} has forgotten {len(forgotten)} of its heads"
            for record in mine:
                digest = json.loads(record.body)["model_digest"]
                if digest != sha256(self.models[record.job_id].card):
                    yield f"the model of {record.job_id} is not the one in its record"

    def retries_are_the_same_to_the_bit(self):
        """Each job that was started more than once, and some others, computed once more from the
        noise key that it had when it was submitted."""
        done = [job for job in self.jobs.values() if job.state == "succeeded"]
        again = [job for job in done if job.fence > 1]
        once = [job for job in done if job.fence == 1]
        for job in again + self.rng.sample(once, min(SAMPLE, len(once))):
            plan = Plan.model_validate_json(job.plan)
            noise_key = self.cluster.settings.keys.unwrap(self.keys[job.id], job.id)
            folder = self.datasets[job.dataset_id].folder
            x, y = open_arrays(dataset_folder(self.cluster.settings.data_dir, folder))
            data = Data(plan, x, y, Randomness(noise_key, job.plan_digest))
            expected = RUNS[plan.algorithm](plan, data, Progress())
            card = json.loads(self.models[job.id].card)
            constant = Schema.model_validate_json(self.datasets[job.dataset_id].schema).constant
            found = [card["intercept_"], *card["coef_"]]
            if not np.array_equal(found, [expected[0] * constant, *expected[1:]]):
                yield f"{job.id}, started {job.fence} times, has other bits than it should"
            self.recomputed += 1

    def nothing_is_left_over(self):
        for job in self.jobs.values():
            if (job.lease_ms, job.wrapped_key) != (None, None):
                yield f"{job.id} has ended and kept its lease or its noise key"
        known = {row.folder for row in self.datasets.values()}
        folder = self.cluster.settings.data_dir

        def swept():
            return set(uploaded_names(folder)) <= known

        try:
            until(swept, "the sweep", 60)
        except TimeoutError:
            yield f"uploads left {sorted(set(uploaded_names(folder)) - known)}"

    def everybody_works(self):
        wanted = self.cluster.processes

        def listed():
            return len(self.cluster.listed_processes()) == wanted

        try:
            until(listed, "everybody's heartbeat", 90)
        except TimeoutError:
            found = self.cluster.listed_processes()
            yield f"{len(found)} processes of {wanted} say that they can work: {sorted(found)}"
        if self.cluster.engine == "celery":
            with self.cluster.broker() as broker:
                waiting = broker.llen("epsilond:epsilond")
            if waiting > wanted:
                yield f"{waiting} hints wait in the broker"
