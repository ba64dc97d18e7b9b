"""Plans of summaries: which tables, at which sensitivity; and what is refused."""

from fractions import Fraction
from math import isqrt

import numpy as np
import pytest
from pydantic import ValidationError

from service.errors import PlanRefused
from service.planning.catalog import CATALOG, plan
from service.planning.choose import choose, compare
from service.planning.estimates import clip_bias, moment_noise
from service.planning.lattice import target
from service.planning.spec import JobSpec
from service.planning.summaries import ColumnFacts
from service.planning.tables import (
    Bins,
    Categories,
    Classes,
    Counts,
    Crossed,
    Magnitudes,
    Moments,
    calibrate_counts,
)
from tests.planning.cases import facts

COLUMNS = (
    ColumnFacts(name="age", kind="numeric", position=1),
    ColumnFacts(name="city", kind="categorical", position=2, cells=4),
    ColumnFacts(name="pay", kind="unbounded", position=6, scale=1000.0),
    ColumnFacts(name="sick", kind="binary", position=0, cells=2),
)


def about(storage="fixed", **more):
    return facts(storage, **more).model_copy(update={"described": COLUMNS})


def asked(*told, epsilon=1.0, delta=None, **more):
    privacy = {"epsilon": epsilon, "delta": delta}
    job = {"dataset": "d", "algorithm": "column-summaries", "privacy": privacy}
    return JobSpec.model_validate(job | {"summaries": told} | more)


def counts_of(*summaries, **more):
    (counts,) = plan(asked(*summaries, **more), about()).counted
    return counts


def test_each_summary_is_made_of_the_tables_that_it_names():
    pay = {"kind": "histogram", "column": "pay", "lower": 0, "upper": 5000, "bins": 5}
    found = counts_of(
        "counts",
        {"kind": "counts", "column": "city"},
        {"kind": "counts", "column": "city", "by": "sick"},
        {"kind": "histogram", "column": "age", "bins": 10},
        pay,
    ).tables
    city = Categories(column=2, cells=4)
    assert found == (
        Classes(cells=2),
        city,
        Crossed(first=Classes(cells=2), second=city),
        Bins(column=1, low=0, high=1, cells=10),
        Bins(column=6, low=0, high=5, cells=5, open=True),
    )
    assert [table.size for table in found] == [2, 4, 8, 10, 7]


def test_quantiles_are_two_tables_and_bounds_and_means_one():
    found = counts_of(
        {"kind": "quantiles", "column": "age"},
        {"kind": "bounds", "column": "age"},
        {"kind": "bounds", "column": "pay"},
        {"kind": "mean", "column": "age"},
        {"kind": "mean", "column": "pay", "lower": -1000, "upper": 5000},
    ).tables
    assert found == (
        Bins(column=1, low=0, high=1, cells=16),
        Bins(column=1, low=0, high=1, cells=256),
        Bins(column=1, low=0, high=1, cells=64),
        Magnitudes(column=6),
        Moments(column=1, low=0, high=1),
        Moments(column=6, low=-1, high=5),
    )


@pytest.mark.parametrize("delta", [1e-6, 0.0])
def test_a_mean_without_a_range_is_two_releases_for_the_price_of_one(delta):
    spec = asked("counts", {"kind": "mean", "column": "pay"}, delta=delta)
    made = plan(spec, about())
    first, second = made.counted
    assert first.tables == (Classes(cells=2), Magnitudes(column=6))
    assert second.tables == (Moments(column=6),)
    assert made.release.kind == "sequence" and made.schedule.steps == 2
    assert made.release.parts == (first.lattice.release(), second.lattice.release())
    alone = plan(asked("counts", delta=delta), about())
    both = [one.release.pure() or one.release.mu_squared() for one in (made, alone)]
    assert float(both[0]) == pytest.approx(float(both[1]), rel=0.01)


def test_the_length_of_a_clip_balances_its_bias_and_the_noise():
    def clip(k, r, rows):
        job = {"kind": "mean", "column": "pay", "moment": k, "moment_bound": r}
        (counts,) = plan(asked(job), about(rows=rows)).counted
        (table,) = counts.tables
        assert table.low == -table.high
        noise = moment_noise(counts.lattice, 0, rows, 0.95)
        total = [clip_bias(k, r / 1000, c) + noise * c for c in table.high * np.array([0.5, 1, 2])]
        assert min(total) == total[1]
        return table.high

    assert clip(2, 3000.0, 10**6) > clip(2, 3000.0, 10**4) > clip(2, 3000.0, 10**3) > 3
    assert clip(2, 6000.0, 10**4) == pytest.approx(2 * clip(2, 3000.0, 10**4), rel=1e-5)
    assert clip(8, 3000.0, 10**4) < clip(3, 3000.0, 10**4)


@pytest.mark.parametrize("k", [2, 3, 6])
def test_clipping_moves_a_mean_by_at_most_the_bound_on_its_bias(k):
    x = np.random.default_rng(0).pareto(k + 0.5, 200_000)
    r = np.mean(x**k) ** (1 / k)
    for length in (0.5, 1.0, 3.0, 10.0):
        assert x.mean() - np.clip(x, -length, length).mean() <= clip_bias(k, r, length)


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("many", [1, 2, 7, 64])
def test_noise_grows_with_the_tables_that_leave_together(many, delta):
    """By their square root for Gaussian noise, by their number for Laplace noise."""
    one, all_of_them = (counts_of(*["counts"] * times, delta=delta) for times in (1, many))
    noise = [each.lattice.deviation(0) for each in (one, all_of_them)]
    wanted = many if delta == 0 else many**0.5
    assert noise[1] / noise[0] == pytest.approx(wanted, rel=2**-13)


@pytest.mark.parametrize("delta", [1e-6, 0.0])
@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 8.0, 100.0])
@pytest.mark.parametrize("storage", ["fixed", "float64"])
def test_sensitivity_is_an_integer_above_the_root_of_two_for_each_table(storage, epsilon, delta):
    spec = asked("counts", {"kind": "counts", "column": "city"}, epsilon=epsilon, delta=delta)
    for rows in (1, 1000, 2**30):
        made = plan(spec, about(storage, rows=rows))
        (counts,) = made.counted
        a, lattice = counts.lattice.weights, counts.lattice
        assert made.release == lattice.release() and lattice == made.lattice
        if delta == 0:
            assert lattice.sensitivity_units == 2 * sum(a)
        else:
            assert lattice.sensitivity_units**2 >= 2 * sum(each**2 for each in a)
            assert (lattice.sensitivity_units - 1) ** 2 < 2 * sum(each**2 for each in a)
        assert rows * max(a) < 2**62 and min(a) >= 2**16


def test_tables_may_have_unequal_shares():
    goal = target(asked("counts"), about())
    tables, shares = [Classes(cells=2), Classes(cells=2)], [Fraction(1, 5), Fraction(4, 5)]
    first, second = calibrate_counts(goal, 0, 10, tables, shares).lattice.weights
    assert second / first == pytest.approx(2, rel=1e-4)


def test_counts_are_made_on_the_lattice_of_their_tables_and_no_other():
    counts = counts_of("counts", {"kind": "counts", "column": "city"})
    lattice = counts.lattice
    less = isqrt(sum(a**2 for a in lattice.weights))  # as if one record moved one cell
    wrong = [
        ({"sensitivity_units": less}, "another sensitivity"),
        ({"sensitivity_units": lattice.sensitivity_units - 1}, "another sensitivity"),
        ({"weights": tuple(2 * a for a in lattice.weights)}, "another sensitivity"),
        ({"sizes": (2, 5)}, "other tables"),
        ({"noise": "laplace"}, "the norm of the noise"),
    ]
    for changes, words in wrong:
        stored = counts.model_dump() | {"lattice": lattice.model_dump() | changes}
        with pytest.raises(ValidationError, match=words):
            Counts.model_validate(stored)
    with pytest.raises(ValidationError, match="some rows"):
        Counts.model_validate(counts.model_dump() | {"start": counts.stop})


def test_the_stored_spec_says_nothing_of_losses_and_other_specs_nothing_of_summaries():
    spec = asked("counts", {"kind": "counts", "column": "city"})
    made = plan(spec, about())
    assert "loss" not in made.model_dump()["spec"]
    assert JobSpec.model_validate_json(made.spec.model_dump_json()) == made.spec
    fit = JobSpec(dataset="d", algorithm="auto", loss="logistic", privacy={"epsilon": 1})
    assert "summaries" not in fit.model_dump() and "described" not in facts().model_dump()


def test_auto_takes_the_one_algorithm_that_tells_summaries():
    made, choice = choose(compare(asked("counts", algorithm="auto"), about(), 10**12))
    assert made.algorithm == choice.algorithm == "column-summaries"


REFUSED = [
    ({"summaries": []}, 'set "summaries"'),
    ({"loss": "logistic"}, 'leave "loss" and "ridge" out'),
    ({"ridge": 0.1}, 'leave "loss" and "ridge" out'),
    ({"set": "l2_ball"}, "it runs over: all"),
    ({"regulariser": {"kind": "l1", "strength": 0.1}}, 'leave "regulariser" out'),
    ({"algorithm": "gradient-descent"}, 'leave "summaries" out'),
    ({"algorithm": "gradient-descent", "summaries": []}, "use the loss"),
    ({"summaries": [{"kind": "counts", "column": "nobody"}]}, "schema names those"),
    ({"summaries": [{"kind": "counts", "column": "age"}]}, "ask a histogram"),
    ({"summaries": [{"kind": "histogram", "column": "city"}]}, "ask its counts"),
    ({"summaries": [{"kind": "histogram", "column": "pay"}]}, "set lower and upper"),
    (
        {"summaries": [{"kind": "histogram", "column": "age", "lower": 0, "upper": 1}]},
        "leave lower and upper out",
    ),
    ({"summaries": [{"kind": "mean", "column": "city"}]}, "ask its counts"),
    ({"summaries": [{"kind": "bounds", "column": "city"}]}, "ask its counts"),
    ({"summaries": [{"kind": "correlations", "columns": ["age", "age"]}]}, "name each once"),
    ({"summaries": [{"kind": "correlations", "columns": ["age", "pay"]}]}, "leave it "),
    ({"summaries": [{"kind": "quantiles", "column": "pay"}]}, '"bounds"} suggests some'),
    ({"summaries": [{"kind": "mean", "column": "pay", "lower": 1}]}, "set lower and upper"),
    ({"summaries": [{"kind": "mean", "column": "pay", "moment": 2}]}, "set both"),
    (
        {"summaries": [{"kind": "mean", "column": "age", "moment": 2, "moment_bound": 1}]},
        "leave moment and moment_bound out",
    ),
    ({"parameters": {"steps": 3}}, "it takes: confidence."),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_a_refusal_says_what_would_work(changes, words):
    with pytest.raises(PlanRefused) as refused:
        plan(asked(**{"summaries": ["counts"], **changes}), about())
    assert words in refused.value.detail


def test_nothing_but_summaries_is_planned_without_a_loss():
    bare = {"dataset": "d", "privacy": {"epsilon": 1.0}}
    for name, entry in CATALOG.items():
        if not (entry.summarises or entry.needs.evaluates):
            with pytest.raises(PlanRefused, match="the job names none; use the loss"):
                plan(JobSpec.model_validate(bare | {"algorithm": name}), facts())
