"""Refused jobs: each refusal says what would work, and that does work; nothing is planned without the
bounds that its guarantee rests on."""

import pytest

from service.errors import PlanRefused
from service.planning.assemble import CalibrationError, assemble
from service.planning.catalog import CATALOG, alternatives, plan
from service.planning.lattice import MomentLattice, ScoreLattice, SumLattice
from tests.depth import some
from tests.planning.cases import ROWS, facts, spec
from tests.planning.refused_jobs import FREE, REFUSED, UNBOUNDED
from tests.planning.refused_jobs_bounded_rows import REFUSED_BOUNDED_ROWS

ALL_REFUSED = REFUSED | REFUSED_BOUNDED_ROWS


@pytest.mark.parametrize(
    ("about", "refused", "says", "works"), ALL_REFUSED.values(), ids=ALL_REFUSED
)
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


@pytest.mark.parametrize(
    ("algorithm", "delta", "storage"),
    some(
        [name for name, e in CATALOG.items() if not e.summarises],
        (None, 0.0, 5e-324, 1e-300, 0.999),
        ("fixed", "float64"),
    ),
)
def test_at_any_extreme_there_is_a_plan_or_a_refusal(algorithm, delta, storage):
    """No overflow, no division by zero, no search without end: only a Plan or a PlanRefused."""
    outcomes, shape = set(), ROWS[algorithm].job.get("set", {})
    shape = {} if shape == "all" else shape  # a ball, whose radius has extremes
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
                        set=shape | {"radius": radius},
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
    # a sum's contributions are clipped whatever the rows and labels, a label in moments is whatever
    # it was, and no row enters a sum of labels; nothing else may be left
    of_labels = isinstance(made.lattice, MomentLattice) and made.lattice.order == 0
    assert (
        of_labels
        or isinstance(made.lattice, SumLattice)
        or (about.storage == "fixed" and isinstance(made.lattice, ScoreLattice | MomentLattice))
    )
