"""A dataset and its account without a service: jobs are moved from state to state by hand."""

import json

import numpy as np
from sqlalchemy import insert, select, update

from service.api.auth import create_principal
from service.config import Settings
from service.datasets.schema import Schema
from service.db import new_id, now_ms
from service.jobs.card import Released, Software
from service.jobs.claim import claim, open_data
from service.jobs.maintenance import reap
from service.jobs.publish import publish
from service.jobs.submit import Asked, submit
from service.ledger.accounts import find_account, open_account
from service.ledger.check import check_ledger
from service.planning.spec import JobSpec
from service.tables import datasets, jobs, lineages
from tests.harness import numeric_schema

ROWS = 200
SOFTWARE = Software.model_validate(dict.fromkeys(Software.model_fields, "a test"))


class JobHarness:
    """One dataset with a budget, and every step that a submitter, a worker or the reaper takes."""

    def __init__(
        self, db, folder, *, rows=ROWS, epsilon=1.0, delta=1e-6, cap=None, kind=None, held_out=0
    ):
        self.db = db
        self.settings = Settings(
            data_dir=folder, database_url=db.url, attempts_max=3, lease_seconds=5.0
        )
        self.dataset, self.lineage = new_id("ds"), new_id("lin")
        schema = Schema.model_validate(numeric_schema(3))
        facts = {
            "rows": rows,
            "columns": 4,
            "storage": "fixed",
            "feature_step": 0.5 / 4095,
            "linf_units": 4095,
            "l2_units": 8190,
            "label": "binary",
        }
        if held_out:
            facts["held_out"] = held_out
        with db.write() as connection:
            self.owner = create_principal(connection, "owner", "owner")
            connection.execute(
                insert(lineages).values(id=self.lineage, owner_id=self.owner, created_ms=now_ms())
            )
            connection.execute(
                insert(datasets).values(
                    id=self.dataset,
                    owner_id=self.owner,
                    lineage_id=self.lineage,
                    name="rows",
                    state="ready",
                    schema=schema.model_dump_json(),
                    facts=json.dumps(facts),
                    folder=self.dataset,
                    content_mac="00" * 32,
                    created_ms=now_ms(),
                )
            )
            open_account(
                connection,
                lineage_id=self.lineage,
                principal_id=self.owner,
                epsilon=epsilon,
                delta=delta,
                cap_epsilon=cap,
                kind=kind,
            )
        folder = folder / "datasets" / self.dataset
        folder.mkdir(parents=True)
        np.save(folder / "x.npy", np.ones((rows + held_out, 4), dtype=np.int16))
        np.save(folder / "y.npy", np.ones(rows + held_out))

    def spec(self, epsilon=0.1, **changes):
        return JobSpec.model_validate(
            {
                "dataset": self.dataset,
                "algorithm": "gradient-descent",
                "loss": "logistic",
                "privacy": {"epsilon": epsilon},
                "parameters": {"steps": 3},
                **changes,
            }
        )

    def submit(self, epsilon=0.1, principal=None, **changes):
        return self.submit_all([self.spec(epsilon, **changes)], principal).id

    @staticmethod
    def authorise(connection, dataset):
        return connection.execute(select(datasets).where(datasets.c.id == dataset)).one()

    def submit_all(self, specs, principal=None, *, group=False):
        return submit(
            self.db,
            self.settings,
            authorise=self.authorise,
            principal_id=principal or self.owner,
            asked=[Asked(spec) for spec in specs],
            group=group,
        )

    def analyst(self):
        with self.db.write() as connection:
            return create_principal(connection, new_id("analyst"), "analyst")

    def account(self):
        with self.db.read() as connection:
            return find_account(connection, self.lineage)

    def finish(self, job):
        """As a worker does: claim it, open the data, publish."""
        held = self.claim(job)
        self.do(open_data, job, held.fence)
        assert self.publish(job, held.fence)

    def do(self, action, *arguments):
        with self.db.write() as connection:
            return action(connection, *arguments)

    def claim(self, job=None):
        return self.do(claim, self.settings.lease_seconds, job)

    def publish(self, job, fence, vector=(0.0, 1.0, 2.0, 3.0)):
        released = Released(vector=vector)
        return self.do(publish, self.settings.keys, job, fence, released, SOFTWARE)

    def expire(self):
        with self.db.write() as connection:
            connection.execute(update(jobs).values(lease_ms=now_ms() - 1))
        return reap(self.db, self.settings)

    def make_due(self):
        """As if every pause were over."""
        with self.db.write() as connection:
            connection.execute(update(jobs).where(jobs.c.state == "queued").values(hint_ms=0))

    def row(self, job):
        with self.db.read() as connection:
            return connection.execute(select(jobs).where(jobs.c.id == job)).one()

    def balance(self):
        with self.db.read() as connection:
            assert check_ledger(connection) == []
            account = find_account(connection, self.lineage)
        return account.posted_units, account.pending_units
