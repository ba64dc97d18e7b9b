"""One of several processes that race for one account: `python -m tests.ledger.racer URL ...`."""

import json
import sys
import time

from sqlalchemy import select

from service.db import Database, new_id
from service.errors import BudgetExceeded
from service.ledger.entries import append_entry
from service.ledger.reserve import Wanted, reserve
from service.planning.price import AccountTerms
from service.tables import accounts


def locked(db, account_id, units, who):
    with db.write() as connection:
        wanted = Wanted(
            price=lambda terms: units,
            epsilon=0.1,
            delta=1e-6,
            principal_id=who,
            dataset_id=None,
            job_id=new_id("job"),
        )
        (outcome,) = reserve(connection, account_id, [wanted])
    if isinstance(outcome, BudgetExceeded):
        raise outcome


def unlocked(db, account_id, units, who):
    """The mutant: it reads in one transaction and writes, by what it read, in another."""
    with db.read() as connection:
        row = connection.execute(select(accounts).where(accounts.c.id == account_id)).one()
    if row.posted_units + row.pending_units + units > row.ceiling_units:
        raise BudgetExceeded("nothing is left")
    time.sleep(0.005)  # the window is there anyway; wider, the race is lost every time
    with db.write() as connection:
        append_entry(
            connection,
            account_id,
            kind="reserve",
            units=units,
            costs=json.dumps({AccountTerms.model_validate_json(row.terms).key: units}),
            pending=units,
            principal_id=who,
            reason="race",
        )


def main(url, account_id, units, attempts, mode, who, start):
    db = Database(url, pool_size=2)
    attempt = {"locked": locked, "unlocked": unlocked}[mode]
    with db.read():
        pass  # connect before the start
    time.sleep(max(0.0, float(start) - time.time()))
    admitted = 0
    for _ in range(int(attempts)):
        try:
            attempt(db, account_id, int(units), who)
            admitted += 1
        except BudgetExceeded:
            pass
    print(admitted)


if __name__ == "__main__":
    main(*sys.argv[1:])
