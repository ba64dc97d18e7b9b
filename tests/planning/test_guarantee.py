"""One guarantee for every algorithm: what is planned, priced and claimed is one thing.

A new algorithm needs nothing here: its example is taken, or what `cases.JOBS` has in its place."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from service.errors import PlanRefused
from service.planning.assemble import CalibrationError, assemble
from service.planning.catalog import CATALOG, alternatives, plan
from service.planning.conversion import UNITS, budget_units
from service.planning.lattice import SCALE_MAX, ScoreLattice, SumLattice
from service.planning.losses import LOSSES, fitting
from service.planning.needs import either
from service.planning.plan import Plan
from service.planning.price import (
    AccountTerms,
    NotPureError,
    epsilon_alone,
    fits_own_target,
    price_units,
)
from service.planning.releases import Gaussian, Pure, SampledGaussian
from service.planning.sets import SETS
from service.planning.spec import Facts
from tests.planning.cases import JOBS, ROWS, SUMS, facts, planned, spec

ACCOUNTS = {  # (the account's delta, the job's delta or None for the account's)
    "renyi": (1e-6, None),
    "pure": (0.0, None),
    "smaller delta": (1e-6, 1e-9),
    "larger delta": (1e-6, 1e-3),
    "pure job on renyi": (1e-6, 0.0),
}
SIZES = [(2, 1), (1000, 20), (10**8, 300)]
EPSILONS = [1e-4, 0.1234567, 1.0, 100.0]
CASES = [
    (algorithm, account, storage, rows, columns, epsilon)
    for algorithm in CATALOG
    for account in ACCOUNTS
    for storage in ROWS[algorithm].storages
    for rows, columns in SIZES
    for epsilon in EPSILONS
]


def plan_of(case) -> Plan:
    algorithm, account, storage, rows, columns, epsilon = case
    delta, job_delta = ACCOUNTS[account]
    about = facts(storage, rows, columns, epsilon, delta)
    return planned(algorithm, about, epsilon, job_delta)


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
    assert said == taken == {"gradient-descent", "online-to-nonconvex"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_the_guarantee(case):
    _, account, _, rows, _, epsilon = case
    made = plan_of(case)
    terms = made.facts.account
    account_delta, job_delta = ACCOUNTS[account]
    delta = account_delta if job_delta is None else job_delta

    # plain data: the same text every time, and nothing lost in it
    assert plan_of(case).digest() == made.digest()
    assert Plan.model_validate_json(made.canonical()) == made
    assert Plan.model_validate_json(made.canonical()).digest() == made.digest()

    # the price is the release's, and never above what was asked
    asked, ceiling = budget_units(epsilon, delta), budget_units(epsilon, account_delta)
    assert made.price.units == price_units(made.release, terms) > 0
    assert (made.price.kind, made.price.order) == (terms.kind, terms.order)
    order = terms.order
    cost = UNITS * (made.release.renyi(order) / order if order else made.release.pure())
    assert cost <= made.price.units < cost + 1
    if (delta > 0) == (account_delta > 0):
        assert made.price.units <= asked
    if delta == account_delta:  # the whole budget in one job: it fits, and little is left over
        assert 0.999 * ceiling <= made.price.units <= ceiling

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
    if isinstance(lattice, SumLattice):
        assert lattice.release().sensitivity == 2 * lattice.contribution_units
        entry = lattice.contribution_units
        if lattice.derivative_units is not None:
            entry = lattice.derivative_units * made.facts.linf_units
        assert rows * entry < 2**63
    else:
        assert lattice.release().sensitivity == lattice.sensitivity_units > lattice.slack_units


def test_another_process_with_other_hashes_plans_the_same():
    code = (
        "import json; from tests.planning.test_guarantee import CASES, plan_of;"
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


RENYI, PURE_TERMS = AccountTerms.for_ceiling(1.0, 1e-6), AccountTerms.for_ceiling(1.0, 0.0)
PRICES = [
    (Pure(sensitivity=1, scale=3), PURE_TERMS, 333_333_333_334),
    (Pure(sensitivity=1, scale=2), PURE_TERMS, 500_000_000_000),
    (Pure(sensitivity=1, scale=10**30), PURE_TERMS, 1),  # never free
    (Pure(sensitivity=1, scale=100), RENYI, 50_000_000),  # eps^2/2
    (Pure(sensitivity=22, scale=1), RENYI, 10**12),  # eps/order
    (Gaussian(sensitivity=1, sigma=3), RENYI, 55_555_555_556),  # 1/18
    (Gaussian(sensitivity=1, sigma=10**30), RENYI, 1),
]


@pytest.mark.parametrize(("release", "terms", "units"), PRICES)
def test_a_price_is_rounded_up_to_the_next_unit(release, terms, units):
    assert RENYI.order == 22
    assert price_units(release, terms) == units


def test_gaussian_noise_has_no_price_on_a_pure_account():
    with pytest.raises(NotPureError):
        price_units(Gaussian(sensitivity=1, sigma=9), PURE_TERMS)
    assert not fits_own_target(Gaussian(sensitivity=1, sigma=10**9), 100.0, 0.0)


@pytest.mark.parametrize(
    "terms",
    [
        {"kind": "renyi", "delta": 1e-6},
        {"kind": "renyi", "delta": 0.0, "order": 9},
        {"kind": "renyi", "delta": 1e-6, "order": 1},
        {"kind": "pure", "delta": 1e-6, "order": 9},
        {"kind": "pure", "delta": 1e-6},
        {"kind": "pure", "delta": 0.0, "order": 9},
        {"kind": "renyi", "delta": float("nan"), "order": 9},
        {"kind": "renyi", "delta": 1.0, "order": 9},
    ],
)
def test_account_terms_that_contradict_themselves_are_refused(terms):
    with pytest.raises(ValidationError):
        AccountTerms.model_validate(terms)


@pytest.mark.parametrize(
    "change",
    [
        {"storage": "float64"},  # unbounded rows with a row bound
        {"l2_units": None},
        {"feature_step": None},
        {"l2_units": 0},
        {"l2_units": -4095},
        {"feature_step": float("nan")},
        {"rows": 0},
    ],
)
def test_facts_that_contradict_themselves_are_refused(change):
    with pytest.raises(ValidationError):
        Facts.model_validate(facts().model_dump() | change)


@pytest.mark.parametrize("algorithm", CATALOG)
def test_a_job_of_another_delta_is_charged_no_more_than_its_own_rho(algorithm):
    """Gaussian noise costs the same rho at every order, so the account's order does not matter; over
    batches that are drawn, what costs more at one order than at the other has noise for both."""
    made = [planned(algorithm, facts(epsilon=ceiling), 0.5, 1e-8) for ceiling in (0.5, 1, 9)]
    charged = [one.price.units for one in made]
    assert 0 < max(charged) <= budget_units(0.5, 1e-8)
    drawn = [isinstance(getattr(one.release, "release", None), SampledGaussian) for one in made]
    assert any(drawn) or len(set(charged)) == 1


@pytest.mark.parametrize("algorithm", CATALOG)
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0])
def test_a_pure_job_is_charged_at_most_half_its_square_on_a_renyi_account(algorithm, epsilon):
    made = planned(algorithm, facts(), epsilon, 0.0)
    order = made.facts.account.order
    assert made.lattice.noise != "gaussian"
    assert made.price.units <= min(epsilon**2 / 2, epsilon / order) * 1e12 + 1
    assert made.price.units > 0


# --- refusals: each says what would work, and that does work -----------------------------------------

UNBOUNDED = facts("float64")
NUMERIC = facts(label="numeric")
FREE = facts(label="unbounded")
PURE = facts(delta=0.0)
SMOOTH = [
    n for n in fitting("binary") if n in {e.name() for e in LOSSES if e().convex and e().smooth}
]
SGD, GD, OP = "clipped-sgd", "gradient-descent", "output-perturbation"
PHASED, FW = "phased-sgd", "frank-wolfe"
ABSOLUTE = spec(GD, loss="absolute")
REFUSED = {  # facts, refused job, what the refusal says, the job that it points to
    "unknown algorithm": (
        facts(),
        spec("sgd"),
        f"there are: {', '.join(sorted(CATALOG))}",
        spec(SGD),
    ),
    "unknown parameter": (
        facts(),
        spec(GD, parameters={"stepz": 3}),
        "it takes: steps, clip",
        spec(GD, parameters={"steps": 3}),
    ),
    "no steps": (
        facts(),
        spec(GD, parameters={"steps": 0}),
        "it takes: steps, clip",
        spec(GD, parameters={"steps": 1}),
    ),
    "a clip below any gradient": (
        facts(),
        spec(GD, parameters={"clip": 5e-324}),
        "it takes: steps, clip",
        spec(GD, parameters={"clip": 1e-9}),
    ),
    "no ridge": (
        facts(),
        spec(SGD, ridge=0.0),
        "set ridge to at least 1e-09 (for example 0.01), or use accelerated-sgd, ",
        spec(GD, ridge=0.0),
    ),
    "a ridge that is none": (facts(), spec(SGD, ridge=5e-324), "1e-09", spec(SGD, ridge=1e-9)),
    "logistic on a number": (
        NUMERIC,
        spec(GD),
        f"these do: {', '.join(fitting('numeric'))}.",
        spec(GD, loss="squared"),
    ),
    "unbounded without clip": (
        UNBOUNDED,
        spec(GD),
        "set parameters.clip",
        spec(GD, parameters={"clip": 2.0}),
    ),
    "logistic on a number without bounds": (FREE, spec(GD), "these do: absolute", ABSOLUTE),
    "squares of a label without bounds": (
        FREE,
        spec(GD, loss="squared"),
        "set parameters.clip to the gradient norm at which to clip, or use the set l2_ball and a",
        spec(GD, loss="squared", parameters={"clip": 2.0}),
    ),
    **{
        f"{name} of a label without bounds": (
            FREE,
            spec(name, loss="huber"),
            "rests on a bound on every label and this dataset's has none; declare bounds for it, or",
            ABSOLUTE,
        )
        for name in CATALOG
        if name in ("frank-wolfe", PHASED) or name.endswith("output-perturbation")
    },
    "heavy tails of a label without bounds": (
        FREE,
        spec(SGD, loss="squared"),
        "has no bound of its own here (unbounded columns or labels",
        spec(SGD, loss="squared", parameters={"clip": "private"}),
    ),
    "one pass over more rows than there are": (
        facts(rows=100),
        spec(SGD, parameters={"batch": 40, "steps": 3}),
        "3 steps need at least 120 rows and the dataset has 100; set parameters.steps to at most 2",
        spec(SGD, parameters={"batch": 40, "steps": 2}),
    ),
    "a batch of more rows than there are": (
        facts(rows=100),
        spec(SGD, parameters={"batch": 101}),
        "set parameters.batch to at most 100",
        spec(SGD, parameters={"batch": 100}),
    ),
    "delta on a pure account": (
        PURE,
        spec(GD, delta=1e-6),
        "leave privacy.delta out or set it to 0",
        spec(GD, delta=0.0),
    ),
    "less than a unit": (
        facts(),
        spec(GD, epsilon=1e-6, delta=1e-12),
        "use 0.0001",
        spec(GD, epsilon=1e-4, delta=1e-12),
    ),
    "more noise than a word holds": (
        UNBOUNDED,
        spec(GD, epsilon=2e-5, delta=1e-9, parameters={"steps": 10**6, "clip": 1.0}),
        "fewer steps or a larger epsilon",
        spec(GD, epsilon=2e-5, delta=1e-9, parameters={"steps": 10**5, "clip": 1.0}),
    ),
    "more drawn than there are": (
        facts(rows=50),
        spec("accelerated-sgd", parameters={"batch": 51}),
        "set parameters.batch to at most 50",
        spec("accelerated-sgd", parameters={"batch": 50}),
    ),
    "more steps than an epsilon pays for": (
        UNBOUNDED,
        spec("accelerated-sgd", epsilon=1e-6, delta=0.0, parameters={"steps": 10**6, "clip": 1.0}),
        "fewer steps or a larger epsilon",
        spec("accelerated-sgd", epsilon=1e-6, delta=0.0, parameters={"steps": 10, "clip": 1.0}),
    ),
    "more steps than an epsilon pays for, in phases": (
        UNBOUNDED,
        spec(
            "localized-accelerated-sgd",
            epsilon=1e-6,
            delta=0.0,
            parameters={"steps": 10**6, "clip": 1.0},
        ),
        "fewer steps or a larger epsilon",
        spec(
            "localized-accelerated-sgd",
            epsilon=1e-6,
            delta=0.0,
            parameters={"steps": 10, "clip": 1.0},
        ),
    ),
    "phases for less than a unit": (
        facts(),
        spec(PHASED, epsilon=1e-6, delta=1e-9),
        "use 0.0001",
        spec(PHASED, epsilon=1e-4, delta=1e-9),
    ),
    "a minimiser for less than a unit": (
        facts(),
        spec(OP, epsilon=1e-6, delta=1e-9),
        "use 0.0001",
        spec(OP, epsilon=1e-4, delta=1e-9),
    ),
    "halved to nothing": (
        facts(rows=50),
        spec("localized-accelerated-sgd", parameters={"halvings": 6}),
        "set parameters.halvings to at most 5",
        spec("localized-accelerated-sgd", parameters={"halvings": 5}),
    ),
    "more steps than rows": (
        facts(rows=50),
        spec(SGD, parameters={"steps": 51}),
        "set parameters.steps to at most 50",
        spec(SGD, parameters={"steps": 50}),
    ),
    "a minimiser of unbounded rows": (
        UNBOUNDED,
        spec(OP),
        "declare bounds for every column, or use accelerated-sgd, ",
        spec(GD, parameters={"clip": 1.0}),
    ),
    "a minimiser of vectors of margins": (
        facts(),
        spec(OP, loss="geometric_median"),
        "needs a loss of one margin <w, x>, which geometric_median is not; use the loss absolute,",
        spec(GD, loss="geometric_median"),
    ),
    "a minimiser over a box": (
        facts(),
        spec(OP, set="box"),
        "it runs over: l2_ball, all",
        spec(OP, set="all"),
    ),
    "a minimiser that may not exist": (
        facts(),
        spec(OP, set="all", ridge=0.0),
        "set ridge (for example 0.01), or use the set l2_ball",
        spec(OP, set="all", ridge=0.01),
    ),
    "a minimiser of almost no ridge": (
        facts(),
        spec(OP, ridge=1e-10),
        "at least 1e-09, or 0",
        spec(OP, ridge=0.0),
    ),
    "a minimiser without a gradient bound": (
        facts(),
        spec(OP, loss="squared", set="all"),
        "use the set l2_ball",
        spec(OP, loss="squared", set="l2_ball"),
    ),
    "acceleration where the ball is active": (
        facts(),
        spec(OP, set={"radius": 2.0}, parameters={"solver": "accelerated"}),
        "set ridge to at least 0.5, or use the solver gradient-descent",
        spec(OP, set={"radius": 2.0}, ridge=0.5, parameters={"solver": "accelerated"}),
    ),
    "subgradients of many rows": (
        facts(),
        spec(OP, loss="hinge", parameters={"solver": "subgradient"}),
        "use the solver gradient-descent",
        spec(OP, loss="hinge", parameters={"solver": "gradient-descent"}),
    ),
    "phases of a single row": (
        facts(rows=1),
        spec(PHASED),
        "at least 2 rows and the dataset has 1; use an algorithm without phases",
        spec(GD),
    ),
    "phases over an l1 ball": (
        facts(),
        spec(PHASED, set="l1_ball"),
        "it runs over: l2_ball, all",
        spec(PHASED, set="all"),
    ),
    "phases over almost a point": (
        facts(),
        spec(PHASED, set={"radius": 1e-13}),
        "radius at least 1e-12",
        spec(PHASED, set={"radius": 1e-12}),
    ),
    "phases of a loss without a margin": (
        facts(),
        spec(PHASED, loss="geometric_median"),
        "needs a loss of one margin <w, x>, which geometric_median is not; use the loss absolute,",
        spec(GD, loss="geometric_median"),
    ),
    "phases of a loss without a slope bound": (
        facts(),
        spec(PHASED, loss="squared", set="all"),
        "use the set l2_ball",
        spec(PHASED, loss="squared", set="l2_ball"),
    ),
    "phases of unbounded rows": (
        UNBOUNDED,
        spec(PHASED),
        "declare bounds for every column, or use accelerated-sgd, ",
        spec(GD, parameters={"clip": 1.0}),
    ),
    "a rank within a ball": (
        facts(),
        spec(PHASED, parameters={"rank": 3}),
        "leave it out or use the set all",
        spec(PHASED, set="all", parameters={"rank": 3}),
    ),
    "vertices of a ball": (
        facts(),
        spec(FW, set={"radius": 1.0}),
        "it runs over: l1_ball, simplex, polytope",
        spec(FW, set="simplex"),
    ),
    "vertices for unbounded rows": (
        UNBOUNDED,
        spec(FW),
        "declare bounds for every column, or use accelerated-sgd, ",
        spec(GD, parameters={"clip": 1.0}),
    ),
    "vertices for a loss without a margin": (
        facts(),
        spec(FW, loss="geometric_median"),
        "needs a loss of one margin <w, x>, which geometric_median is not; use the loss absolute,",
        spec(GD, loss="geometric_median"),
    ),
    "a polytope of another width": (
        facts(columns=2),
        spec(FW, set={"kind": "polytope", "vertices": [[0], [1]]}),
        "every vertex needs 2 entries",
        spec(FW, set={"kind": "polytope", "vertices": [[0, 0], [1, 0]]}),
    ),
    "a polytope of one vertex": (
        facts(columns=2),
        spec(FW, set={"kind": "polytope", "vertices": [[0, 1], [0, 1]]}),
        "at least 2 vertices",
        spec(FW, set={"kind": "polytope", "vertices": [[0, 1], [1, 0]]}),
    ),
    "a polytope without an extent": (
        facts(columns=1),
        spec(FW, set={"kind": "polytope", "vertices": [[0], [1e-100]]}),
        "less than 1e-90",
        spec(FW, set={"kind": "polytope", "vertices": [[0], [1e-80]]}),
    ),
    "heavy tails without a clip": (
        UNBOUNDED,
        spec(SGD),
        'set parameters.clip to "private" or to the gradient norm',
        spec(SGD, parameters={"clip": "private"}),
    ),
    "heavy tails without a clip or a moment": (
        UNBOUNDED,
        spec("accelerated-clipped-sgd"),
        "or parameters.moment_bound to a bound on a moment",
        spec("accelerated-clipped-sgd", parameters={"moment_bound": 1.0}),
    ),
    "a clip by another name": (
        UNBOUNDED,
        spec(SGD, parameters={"clip": "secret"}),
        "it takes: steps, clip, moment",
        spec(SGD, parameters={"clip": "private"}),
    ),
    "a clip of nothing": (
        UNBOUNDED,
        spec("localized-subgradient", parameters={"clip": 0.0}),
        'a number from 1e-09 to 1e+09, or "private"',
        spec("localized-subgradient", parameters={"clip": 1e-9}),
    ),
    "a clip that pays for itself only": (
        facts(epsilon=1e-4, delta=0.01),
        spec(SGD, epsilon=1e-6, delta=1e-6, parameters={"clip": "private"}),
        "epsilon is too small",
        spec(SGD, epsilon=1e-4, delta=1e-6, parameters={"clip": "private"}),
    ),
    "a clip for unit vectors": (
        facts(),
        spec("localized-subgradient", loss="geometric_median", parameters={"clip": "private"}),
        "leave parameters.clip out",
        spec("localized-subgradient", loss="geometric_median"),
    ),
    "acceleration over a corner": (
        facts(),
        spec("accelerated-clipped-sgd", loss="hinge"),
        f"use the loss {either(SMOOTH)}, or use accelerated-sgd",
        spec("accelerated-clipped-sgd", loss="smoothed_hinge"),
    ),
    "a regulariser elsewhere": (
        facts(),
        spec(GD, regulariser={"kind": "l1", "strength": 0.1}),
        'leave "regulariser" out, or use proximal-sgd.',
        spec("proximal-sgd", regulariser={"kind": "l1", "strength": 0.1}),
    ),
    "a regulariser over a set without its operator": (
        facts(),
        spec("proximal-sgd", set="simplex", regulariser={"kind": "l1", "strength": 0.1}),
        f"it runs over: {', '.join(s.name() for s in SETS if s.radial or s.separable)};",
        spec("proximal-sgd", set="box", regulariser={"kind": "l1", "strength": 0.1}),
    ),
    "groups of another number of features": (
        facts(columns=4),
        spec("proximal-sgd", regulariser={"kind": "group_lasso", "strength": 1, "groups": [4]}),
        "give sizes that add up to 3",
        spec("proximal-sgd", regulariser={"kind": "group_lasso", "strength": 1, "groups": [2, 1]}),
    ),
    "a proximal problem of unknown growth": (
        facts(),
        spec("proximal-sgd", ridge=0.0),
        "or set parameters.growth or parameters.steps",
        spec("proximal-sgd", ridge=0.0, parameters={"growth": 0.01}),
    ),
    "subgradients halved to nothing": (
        facts(rows=50),
        spec("localized-subgradient", parameters={"halvings": 6}),
        "set parameters.halvings to at most 5",
        spec("localized-subgradient", parameters={"halvings": 5}),
    ),
    "steps that diverge": (
        facts(),
        spec("gradient-descent", ridge=1.0, set="all", parameters={"step_size": 2.1}),
        "set parameters.step_size to 1,",
        spec("gradient-descent", ridge=1.0, set="all", parameters={"step_size": 1.0}),
    ),
    "a network's steps that diverge": (
        facts(),
        spec("gradient-descent", ridge=1e9, set="all", model="relu_network"),
        "or use the set l2_ball",
        spec("gradient-descent", ridge=1e9, set="l2_ball", model="relu_network"),
    ),
    "a set that is one point": (
        facts(columns=3),
        spec("gradient-descent", set={"kind": "simplex", "total": 5e-324}),
        "an l2_ball of radius 1",
        spec("gradient-descent", set={"kind": "l2_ball", "radius": 1.0}),
    ),
    "slopes below a float": (
        facts(columns=3),
        spec(
            "stationarity-certificate",
            loss="phase_retrieval",
            set={"kind": "polytope", "vertices": [[0, 0, 0]]},
        ),
        "an l2_ball of radius 1",
        spec(
            "stationarity-certificate",
            loss="phase_retrieval",
            set={"kind": "polytope", "vertices": [[0, 0, 1e-99]]},
        ),
    ),
    "a simplex of one vertex": (
        facts(columns=1),
        spec(FW, set="simplex"),
        "at least 2 vertices",
        spec(FW, set="l1_ball"),
    ),
    "more choices than a scale holds": (
        facts(),
        spec(FW, epsilon=1e-6, delta=0.0, parameters={"steps": 10**6}),
        "fewer steps or a larger epsilon",
        spec(FW, epsilon=1e-6, delta=0.0, parameters={"steps": 10**3}),
    ),
}


@pytest.mark.parametrize(("about", "refused", "says", "works"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_says_what_would_work(about, refused, says, works):
    with pytest.raises(PlanRefused) as caught:
        plan(refused, about)
    assert says in caught.value.detail
    assert plan(works, about).guarantee.epsilon == works.privacy.epsilon


@pytest.mark.parametrize(
    "about", [facts(), UNBOUNDED, FREE], ids=["bounded", "unbounded rows", "unbounded label"]
)
@pytest.mark.parametrize("algorithm", CATALOG)
def test_what_a_refusal_offers_in_its_place_takes_the_job(algorithm, about):
    """Every algorithm on every other one's job: it takes it, or names all that do, and those do."""
    for other, row in ROWS.items():
        job = {"parameters": {}, "regulariser": "none", "ridge": 0.1, **row.job}
        if about.label == "unbounded":
            job["loss"] = "huber"
        job = job | ({} if other == algorithm else {"parameters": {}})
        try:
            plan(spec(algorithm, **job), about)
        except PlanRefused as refusal:
            if CATALOG[algorithm].takes(spec(algorithm, **job), about):
                continue  # refused for a number
            fitting = alternatives(spec(algorithm, **job), about)
            assert algorithm not in fitting
            for name in fitting:
                fields = CATALOG[name].parameters.model_fields
                given = {
                    key: 1.0 for key in ("clip", "pull") if key in fields
                }  # for unbounded rows
                assert plan(spec(name, **job | {"parameters": given}), about).algorithm == name
                if CATALOG[algorithm].certifies == CATALOG[name].certifies:
                    assert name in refusal.detail
        else:
            assert CATALOG[algorithm].takes(spec(algorithm, **job), about)


EXTREMES = [1e-6, 1e-3, 1.0, 100.0]


@pytest.mark.parametrize("algorithm", CATALOG)
@pytest.mark.parametrize("delta", [None, 0.0, 5e-324, 1e-300, 0.999])
@pytest.mark.parametrize("storage", ["fixed", "float64"])
def test_at_any_extreme_there_is_a_plan_or_a_refusal(algorithm, delta, storage):
    """No overflow, no division by zero, no search without end: only a Plan or a PlanRefused."""
    outcomes = set()
    for rows, columns in ((1, 1), (2**30, 10**5)):
        about = facts(storage, rows, columns, l2_units=4095 * 300)
        for epsilon in EXTREMES:
            for ridge, radius in ((0.0, 5e-324), (5e-324, 1e9), (1e9, 1e-99), (1e-9, 1e9)):
                for parameters in ({}, {"clip": 1e-9}, {"clip": 1e9}, {"clip": 1.0, "steps": 1}):
                    job = spec(
                        algorithm,
                        epsilon,
                        delta,
                        ridge=ridge,
                        set=ROWS[algorithm].job.get("set", {}) | {"radius": radius},
                        parameters=parameters,
                    )
                    try:
                        plan(job, about)
                        outcomes.add("planned")
                    except PlanRefused:
                        outcomes.add("refused")
    assert ("planned" in outcomes) == (storage in ROWS[algorithm].storages)


@pytest.mark.parametrize(
    "asked", [{"loss": "sigmoid"}, {"loss": "logistic", "model": "relu_network"}], ids=str
)
@pytest.mark.parametrize(
    "algorithm",
    [
        "output-perturbation",
        "tilted-output-perturbation",
        "adversarial-output-perturbation",
        "phased-sgd",
    ],
)
def test_no_planner_makes_a_point_of_what_is_not_convex_even_past_the_catalog(algorithm, asked):
    entry, job = CATALOG[algorithm], spec(algorithm, **asked)
    with pytest.raises(PlanRefused):
        plan(job, facts(columns=3))
    with pytest.raises((CalibrationError, TypeError)):  # no envelope is known of such a loss either
        draft = entry.plan(job, facts(columns=3), entry.parameters.model_validate(job.parameters))
        assemble(algorithm, job, facts(columns=3), draft)


@pytest.mark.parametrize("about", [UNBOUNDED, FREE], ids=["rows", "label"])
@pytest.mark.parametrize("algorithm", [name for name, e in CATALOG.items() if e.needs.bounded_rows])
def test_no_plan_rests_on_a_bound_that_is_missing_even_past_its_needs(algorithm, about):
    entry, job = CATALOG[algorithm], spec(algorithm, loss="huber")
    if entry.takes(job, about):
        return
    with pytest.raises(PlanRefused):
        plan(job, about)
    parameters = entry.parameters.model_validate(job.parameters)
    try:
        made = assemble(algorithm, job, about, entry.plan(job, about, parameters))
    except (CalibrationError, PlanRefused, ZeroDivisionError, ValueError):
        return
    # a sum's contributions are clipped whatever the rows and labels; nothing else may be left
    assert isinstance(made.lattice, SumLattice) or (
        about.storage == "fixed" and isinstance(made.lattice, ScoreLattice)
    )
