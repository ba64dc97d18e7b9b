"""One guarantee for every algorithm: what is planned, priced and claimed is one thing.

A new algorithm needs nothing here: its example is taken, or what `cases.JOBS` has in its place."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from service.errors import PlanRefused
from service.planning.catalog import CATALOG, plan
from service.planning.conversion import UNITS, budget_units
from service.planning.lattice import SCALE_MAX, PointLattice, ScoreLattice, SumLattice
from service.planning.plan import Plan
from service.planning.price import (
    epsilon_alone,
    fits_own_target,
    price_units,
)
from service.planning.releases import Disjoint, Repeat, SampledGaussian
from tests.planning.cases import JOBS, SUMS, facts, planned, spec
from tests.planning.grid import ACCOUNTS, CASES, plan_of


def test_tests_ask_jobs_of_algorithms_that_there_are():
    assert set(JOBS) | SUMS <= set(CATALOG)


def test_the_catalog_says_which_algorithms_take_networks():
    said = {name for name, entry in CATALOG.items() if "ReLU networks" in entry.problem}
    taken = set()
    for name in CATALOG:
        try:
            plan(spec(name, model="relu_network"), facts(columns=3))
            taken.add(name)
        except PlanRefused:
            pass
    assert said == taken == {"gradient-descent", "online-to-nonconvex", "proximal-sgd"}


def with_a_unit_more(made):
    """The releases for slopes of one more unit, those of every phase: at high orders the cost of drawn
    batches may rise by percents with that."""
    unit = made.lattice.release().sensitivity // made.lattice.derivative_units
    parts = made.release.parts if isinstance(made.release, Disjoint) else (made.release,)
    for part in parts:
        sums = part.release
        assert isinstance(sums, SampledGaussian)
        more = sums.model_copy(update={"sensitivity": sums.sensitivity + unit})
        yield Repeat(release=more, times=part.times)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_the_guarantee(case):
    _, account, _, rows, _, epsilon = case
    made = plan_of(case)
    terms = made.facts.account
    kind, account_delta, job_delta = ACCOUNTS[account]
    delta = account_delta if job_delta is None else job_delta

    # plain data: the same text every time, and nothing lost in it
    assert plan_of(case).digest() == made.digest()
    assert Plan.model_validate_json(made.canonical()) == made
    assert Plan.model_validate_json(made.canonical()).digest() == made.digest()

    # the price is the release's, and never above what was asked
    asked, ceiling = (budget_units(epsilon, each, kind) for each in (delta, account_delta))
    assert made.price.units == price_units(made.release, terms) > 0
    assert (made.price.kind, made.price.order) == (terms.kind, terms.order)
    cost = (
        UNITS
        * {
            "renyi": lambda: made.release.renyi(terms.order) / terms.order,
            "gaussian": lambda: made.release.mu_squared() / 2,
            "pure": made.release.pure,
        }[kind]()
    )
    assert cost <= made.price.units < cost + 1
    if (delta > 0) == (account_delta > 0):
        assert made.price.units <= asked
    if delta == account_delta:  # the whole budget in one job: it fits, and little is left over
        assert made.price.units <= ceiling
        rest = made.price.units < 0.999 * ceiling
        more = with_a_unit_more(made) if rest else ()
        assert all(price_units(one, terms) > ceiling for one in more)

    # what is claimed is implied
    assert (made.guarantee.epsilon, made.guarantee.delta) == (epsilon, delta)
    assert made.guarantee.relation == "replace-one"
    assert fits_own_target(made.release, epsilon, delta)
    assert 0 < made.guarantee.epsilon_alone <= epsilon
    assert made.guarantee.epsilon_alone == epsilon_alone(made.release, epsilon, delta)

    # the lattice is the release's, and no sum can leave int64
    lattice = made.lattice
    if isinstance(lattice, ScoreLattice):
        assert lattice.release().sensitivity == lattice.sensitivity_units
        assert rows * lattice.derivative_units * made.facts.linf_units < 2**60
        assert lattice.scale <= SCALE_MAX
        return
    assert lattice.bits <= 56
    for of_moments in made.moments:
        assert of_moments.release().sensitivity == of_moments.sensitivity_units
        assert rows * of_moments.beside * 4095**of_moments.order < 2**62
    if isinstance(lattice, SumLattice):
        assert lattice.release().sensitivity == 2 * lattice.contribution_units
        entry = lattice.contribution_units
        if lattice.derivative_units is not None:
            entry = lattice.derivative_units * made.facts.linf_units
        assert rows * entry < 2**63
    else:
        assert lattice.release().sensitivity == lattice.sensitivity_units
        assert (
            not isinstance(lattice, PointLattice) or lattice.sensitivity_units > lattice.slack_units
        )
    for counts in made.counted:
        assert rows * max(counts.lattice.weights) < 2**62


def test_another_process_with_other_hashes_plans_the_same():
    code = (
        "import json; from tests.planning.grid import CASES, plan_of;"
        "print(json.dumps([plan_of(case).digest() for case in CASES]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"PYTHONHASHSEED": "4242"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(run.stdout) == [plan_of(case).digest() for case in CASES]


@pytest.mark.parametrize("algorithm", CATALOG)
def test_a_job_of_another_delta_is_charged_no_more_than_its_own_rho(algorithm):
    """Gaussian noise costs the same rho at every order, so the account's order does not matter; what
    costs more at one order than at the other, as drawn batches and choices do, has noise for both."""
    made = [planned(algorithm, facts(epsilon=ceiling), 0.5, 1e-8) for ceiling in (0.5, 1, 9)]
    charged = [one.price.units for one in made]
    assert 0 < max(charged) <= budget_units(0.5, 1e-8)
    by_order = [one.release.gaussian() is None for one in made]
    assert any(by_order) or len(set(charged)) == 1


@pytest.mark.parametrize("algorithm", CATALOG)
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0])
def test_a_pure_job_is_charged_at_most_half_its_square_on_a_renyi_account(algorithm, epsilon):
    made = planned(algorithm, facts(), epsilon, 0.0)
    order = made.facts.account.order
    assert made.lattice.noise != "gaussian"
    assert made.price.units <= min(epsilon**2 / 2, epsilon / order) * 1e12 + 1
    assert made.price.units > 0
