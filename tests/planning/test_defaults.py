"""What a job gets that names nothing but its loss: a set, a clip, and advice."""

from math import sqrt

import pytest
from pydantic import ValidationError

from service.planning.advice import advice
from service.planning.catalog import CATALOG, plan
from service.planning.choose import choose, compare
from service.planning.default_set import ROOM
from service.planning.feasible import DefaultSet
from service.planning.lattice import target
from service.planning.losses import LOSSES
from service.planning.plan import Plan
from service.planning.shared.reach import REACH, expected_distance
from service.planning.spec import Facts, JobSpec
from tests.planning.cases import ROWS, facts

DEFAULT = {"kind": "default"}


def asked(algorithm, epsilon=1.0, **more):
    job = ROWS[algorithm].job if algorithm in ROWS else {}
    job = {name: value for name, value in job.items() if name != "set"}
    body = {"dataset": "d", "algorithm": algorithm, "privacy": {"epsilon": epsilon}}
    return JobSpec.model_validate(body | job | more)


def blocks(count, rows=10**6, **more):
    """Facts of rows that were divided by the root of so many blocks, one per column."""
    about = facts(rows=rows, columns=count, **more)
    linf = 1 / sqrt(count)
    units = {"feature_step": linf / 4095, "l2_units": int(4095 * sqrt(count))}
    return Facts.model_validate(about.model_dump() | units)


@pytest.mark.parametrize("algorithm", CATALOG)
def test_every_plan_names_its_set_whichever_was_asked(algorithm):
    """One that the algorithm takes; and a Plan that does not name one is no Plan."""
    spec = asked(algorithm)
    assert spec.set == DefaultSet()
    made = plan(spec, facts())
    assert made.spec.set.kind in CATALOG[algorithm].needs.sets
    assert plan(made.spec, made.facts) == made
    stored = made.model_dump(mode="json")
    with pytest.raises(ValidationError, match="names its set"):
        Plan.model_validate({**stored, "spec": {**stored["spec"], "set": DEFAULT}})


@pytest.mark.parametrize("algorithm", [name for name, e in CATALOG.items() if not e.summarises])
def test_a_set_that_is_named_is_kept(algorithm):
    named = "l2_ball" if "l2_ball" in CATALOG[algorithm].needs.sets else "l1_ball"
    spec = asked(algorithm, set={"kind": named, "radius": 2.0})
    assert plan(spec, facts()).spec.set == spec.set


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_the_radius_is_that_of_the_same_weights_however_many_columns_there_are(loss):
    """Where rows are many, of the weights of features as they were before rows were divided."""
    spec, radii = asked("phased-sgd", loss=loss), {}
    for count in (4, 16, 64):
        radii[count] = plan(spec, blocks(count)).spec.set.radius / sqrt(count)
    assert max(radii.values()) == pytest.approx(min(radii.values()), rel=0.01)
    assert radii[4] == pytest.approx(ROOM * REACH * spec.loss.usual_margin, rel=0.01)


def test_where_noise_is_large_steps_do_not_go_far():
    distances = []
    for rows in (100, 1000, 10_000, 10**7):
        about, spec = blocks(30, rows=rows), asked("gradient-descent", epsilon=0.1)
        distances.append(expected_distance(spec, about, target(spec, about), 30))
    assert distances == sorted(distances) and distances[0] < distances[-1] / 100


@pytest.mark.parametrize("storage", ["fixed", "float64"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("label", ["binary", "numeric", "unbounded"])
def test_auto_plans_every_loss_that_fits_on_rows_and_labels_without_bounds(storage, delta, label):
    about = facts(storage, label=label, delta=delta, columns=5)
    for loss in LOSSES:
        if label in loss.labels:
            body = {"dataset": "d", "algorithm": "auto", "loss": loss.name()}
            spec = JobSpec.model_validate({**body, "privacy": {"epsilon": 1.0}})
            made, _ = choose(compare(spec, about, 2**50))
            known = (
                storage == "fixed" and label != "unbounded"
            ) or loss.name() == "geometric_median"
            assert made.private_clip is None or not known


@pytest.mark.parametrize(
    "algorithm", ["gradient-descent", "accelerated-sgd", "localized-accelerated-sgd"]
)
def test_slopes_of_the_squared_loss_are_clipped_at_a_part_of_the_labels_interval(algorithm):
    made = plan(asked(algorithm, loss="squared"), facts(label="numeric"))
    assert made.lattice.clip == pytest.approx(0.25, rel=1e-3) and made.private_clip is None
    named = plan(asked(algorithm, loss="squared", parameters={"clip": 0.7}), facts(label="numeric"))
    assert named.lattice.clip == pytest.approx(0.7, rel=1e-3)
    one = plan(asked(algorithm, loss="squared"), facts(label="binary"))
    assert one.lattice.clip == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("algorithm", ["auto", "accelerated-sgd"])
@pytest.mark.parametrize("loss", ["logistic", "squared", "hinge", "absolute"])
@pytest.mark.parametrize(("rows", "epsilon"), [(426, 1.0), (300, 0.1), (5000, 0.05)])
def test_advice_is_given_where_noise_leaves_nothing_and_following_it_ends_it(
    rows, epsilon, loss, algorithm, delta
):
    label = "numeric" if loss in ("squared", "absolute") else "binary"

    def said(rows, epsilon):
        about = blocks(30, rows=rows, label=label, delta=delta)
        job = asked(algorithm, epsilon=epsilon, loss=loss)
        made = choose(compare(job, about, 2**50))[0] if algorithm == "auto" else plan(job, about)
        return advice(made), made.algorithm

    told, taken = said(rows, epsilon)
    assert "no better than a constant" in told and "fewer columns" in told
    assert ("declared range" in told) == (label == "numeric")
    assert advice_ends(
        said(int(told.split("about ")[-1].split(" rows")[0].replace(",", "")), epsilon)
    )
    if ", or epsilon " in told:
        more = float(told.split(", or epsilon ")[1].split(",")[0])
        assert advice_ends(said(rows, more))
    if taken == "best-constant":
        assert "released by itself" in told


def advice_ends(found):
    told, taken = found
    return told is None and taken != "best-constant"
