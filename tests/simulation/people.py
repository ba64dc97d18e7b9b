"""Who is there before anything happens, with their data, budgets, grants and keys."""

import json
from dataclasses import dataclass
from itertools import product

from sqlalchemy import insert

from service.api.auth import create_key, create_principal
from service.datasets.schema import Schema
from service.db import new_id, now_ms
from service.ledger import accounts, adjust
from service.tables import datasets, grants, lineages
from tests.harness import numeric_schema

DELTA = 1e-6
FACTS = {
    "rows": 200,
    "columns": 4,
    "storage": "fixed",
    "feature_step": 0.5 / 4095,
    "linf_units": 4095,
    "l2_units": 8190,
    "label": "binary",
}
# ceiling, cap, share of the first analyst, kind of account: at one, each limit has an order of its own
SCENES = (
    (1.0, 0.6, 0.4, "renyi"),
    (8.0, 0.8, 0.3, "renyi"),
    (1.0, 0.6, 0.4, "gaussian"),
    (2.0, None, None, "renyi"),
)


@dataclass(frozen=True)
class People:
    owner: str
    analysts: tuple
    lineages: tuple  # two accounts
    datasets: tuple  # two of the first, one of the second
    keys: dict  # by person

    @classmethod
    def settle(cls, db, ceiling, cap, share, kind):
        """Who is there before anything happens, with their data and budgets."""
        with db.write() as connection:
            owner, *analysts = (
                create_principal(connection, name, role)
                for name, role in (("o", "owner"), ("a", "analyst"), ("b", "analyst"))
            )
            made, rows = (new_id("lin"), new_id("lin")), []
            for lineage in made:
                connection.execute(
                    insert(lineages).values(id=lineage, owner_id=owner, created_ms=now_ms())
                )
            for lineage in (made[0], made[0], made[1]):
                rows.append(new_id("ds"))
                connection.execute(
                    insert(datasets).values(
                        id=rows[-1],
                        owner_id=owner,
                        lineage_id=lineage,
                        name="rows",
                        state="ready",
                        schema=Schema.model_validate(numeric_schema(3)).model_dump_json(),
                        facts=json.dumps(FACTS),
                        folder=rows[-1],
                        content_mac="00" * 32,
                        created_ms=now_ms(),
                    )
                )
            for lineage in made:
                account = accounts.open_account(
                    connection,
                    lineage_id=lineage,
                    principal_id=owner,
                    epsilon=ceiling,
                    delta=DELTA,
                    cap_epsilon=cap,
                    kind=kind,
                )
                if share is not None:
                    adjust.set_share(connection, account.id, analysts[0], share)
            for dataset, analyst in product(rows, analysts):
                of = {"dataset_id": dataset, "principal_id": analyst, "created_ms": now_ms()}
                connection.execute(insert(grants).values(of))
            keys = {who: create_key(connection, who)[0] for who in (owner, *analysts)}
        return cls(owner, tuple(analysts), made, tuple(rows), keys)
