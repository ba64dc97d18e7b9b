"""More rows never make a bound worse: every algorithm of the list, at its defaults, up to 10^8 rows.

Where a job names no set, its algorithm's own is as large as rows and noise allow, up to a size: so
long as it grows with the rows, the best weights of it get better too and the bounds are about other
weights each time. So over that set bounds are compared from where it has its full size."""

from itertools import pairwise

import pytest

from service.errors import PlanRefused
from service.planning.catalog import CATALOG, plan
from service.planning.lattice import target
from service.planning.losses import fitting
from service.planning.shared.reach import expected_distance
from service.planning.spec import Facts, JobSpec
from tests.planning.cases import OF, facts

ROWS = [round(10 ** (half / 2)) for half in range(6, 17)]
ROUNDING = 1 + 1e-5  # predictions have six digits
COLUMNS = 20
# what floats leave of a sum of so many rows grows with them, and a point's noise covers it
ROUNDING_GROWS = {"adversarial-output-perturbation", "objective-perturbation"}
CASES = [
    (name, example, named, delta)
    for name, algorithm in CATALOG.items()
    for example in algorithm.examples
    if "loss" in example  # a table's columns are counted without an error
    for named in ((False, True) if "l2_ball" in algorithm.needs.sets else (False,))
    if not (named and "set" in example)
    for delta in (1e-6, 0.0)
]


def facts_for(job: JobSpec, rows: int) -> Facts:
    label = next(
        one for one in ("binary", "numeric", "categorical") if job.loss.kind in fitting(one)
    )
    classes = 3 if label == "categorical" else None
    about = facts(rows=rows, columns=COLUMNS).model_dump()
    return Facts.model_validate(about | {"label": label, "classes": classes})


def full(job: JobSpec, rows: int) -> bool:
    """Whether the set of a job that names none has its full size for so many rows."""

    def distance(of: int) -> float:
        about = facts_for(job, of)
        d = job.loss.weights(about.columns, about.classes)
        return expected_distance(job, about, target(job, about), d)

    return distance(rows) == distance(10**9)


@pytest.mark.parametrize(("name", "example", "named", "delta"), CASES)
def test_a_bound_falls_with_the_number_of_rows(name, example, named, delta):
    job = {"dataset": "d", "algorithm": name, "privacy": {"epsilon": 1.0, "delta": delta}} | example
    job |= {"of": OF} if CATALOG[name].certifies else {}
    spec = JobSpec.model_validate(job | ({"set": "l2_ball"} if named else {}))
    bounds = []
    for rows in ROWS:
        if named or "set" in example or full(spec, rows):
            try:
                bounds.append(plan(spec, facts_for(spec, rows)).prediction.excess_risk)
            except PlanRefused:
                assert not bounds  # so few rows are refused, and no more are
    assert len(bounds) >= len(ROWS) - 3
    assert bounds[-1] < bounds[0]
    if name in ROUNDING_GROWS:
        bounds = [bound for bound in bounds if bound > 100 * min(bounds)]
    assert all(later <= before * ROUNDING for before, later in pairwise(bounds))
