"""What a job costs at the terms of a limit: as its entry says, or else from its stored Plan.

An entry stores the job's cost at every limit that applied when it was admitted, and at a few more
terms at which spending is summed up. A limit that is set later may have an order that is not among
them: then the Plan, which never changes its meaning, is priced at that order.
"""

import json
from collections.abc import Mapping

from pydantic import TypeAdapter
from sqlalchemy import Connection, select

from service.ledger.limits import Price
from service.planning.price import AccountTerms, price_units
from service.planning.releases import Release
from service.tables import jobs

_RELEASE: TypeAdapter[Release] = TypeAdapter(Release)


def release_of(plan: str) -> Release:
    """What a stored Plan releases."""
    return _RELEASE.validate_python(json.loads(plan)["release"])


def cost_of(connection: Connection, job_id: str, costs: str) -> Price:
    """The costs of an entry: the stored ones, and those at other terms from its job's Plan."""
    stored: Mapping[str, int] = json.loads(costs)

    def price(terms: AccountTerms) -> int:
        known = stored.get(terms.key)
        if known is not None:
            return known
        plan = connection.execute(select(jobs.c.plan).where(jobs.c.id == job_id)).scalar_one()
        return price_units(release_of(plan), terms)

    return price
