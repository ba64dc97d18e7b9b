"""A Plan costs what was asked or less at every limit that it was told of, and satisfies its claim; and
the tests of that can fail."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from service.planning import assemble, lattice, price
from service.planning.algorithms import gradient_descent
from service.planning.catalog import CATALOG, plan
from service.planning.choose import choose, compare
from service.planning.conversion import UNITS, best_order, budget_units, renyi_budget
from service.planning.lattice import choice_scale, target
from service.planning.price import AccountTerms, fits_own_target, price_units
from service.planning.releases import (
    Choice,
    Disjoint,
    Gaussian,
    Repeat,
    SampledGaussian,
    Sequence,
    single,
)
from service.planning.shared import subsampling
from service.planning.spec import JobSpec
from tests.planning.cases import ROWS, facts, planned, spec

KINDS = ("renyi", "gaussian", "pure")
amounts = st.floats(0.001, 30.0).map(lambda e: round(e, 6))
deltas = st.sampled_from((1e-12, 1e-8, 1e-6, 1e-3))


def proved(release, epsilon, delta):
    """Whether some bound says that it is (epsilon, delta)-DP, written apart from the planner's own."""
    if delta == 0 or (release.pure() is not None and release.pure() <= Fraction(epsilon)):
        return release.pure() is not None and release.pure() <= Fraction(epsilon)
    if isinstance(release, Disjoint):
        return all(proved(part, epsilon, delta) for part in release.parts)
    if release.mu_squared() / 2 * UNITS <= budget_units(epsilon, delta, "gaussian"):
        return True
    return any(
        release.renyi(order) <= Fraction(renyi_budget(epsilon, delta, order))
        for order in range(best_order(epsilon, delta), 1, -1)
    )


def check(made):
    """What every Plan promises at the terms it was told, and alone."""
    about, claim = made.facts, made.guarantee
    kind = about.account.kind
    if (claim.delta > 0) == (about.account.delta > 0):
        asked = budget_units(claim.epsilon, claim.delta, kind)
        for terms in (about.account, *about.limits):
            assert price_units(made.release, terms) <= asked
    assert made.price.units == price_units(made.release, about.account) > 0
    assert (made.price.kind, made.price.order) == (kind, about.account.order)
    assert proved(made.release, claim.epsilon, claim.delta)


@settings(deadline=None)
@given(
    st.sampled_from(sorted(CATALOG)),
    st.sampled_from(KINDS),
    amounts,
    st.lists(amounts, max_size=3),
    amounts,
    deltas,
    deltas | st.none() | st.just(0.0),
    st.sampled_from((50, 3000, 10**5)),
)
def test_a_plan_fits_every_limit_that_it_was_told_of(
    algorithm, kind, ceiling, limits, epsilon, account_delta, delta, rows
):
    account_delta = 0.0 if kind == "pure" else account_delta
    delta = None if kind == "pure" else delta
    about = facts(
        rows=rows,
        columns=5,
        epsilon=ceiling,
        delta=account_delta,
        kind=kind,
        limits=tuple(AccountTerms.for_ceiling(e, account_delta, kind) for e in limits),
    )
    check(planned(algorithm, about, epsilon, delta))


DRAWN = [(1, 1000, 1000), (100, 10**5, 1000), (1000, 10**5, 200), (5, 50, 3000)]


@pytest.mark.parametrize(("batch", "rows", "steps"), DRAWN)
@pytest.mark.parametrize("limits", [(), (0.5,), (0.5, 3.0)], ids=str)
@pytest.mark.parametrize("kind", ["renyi", "gaussian"])
def test_a_plan_of_drawn_batches_fits_every_limit(batch, rows, steps, limits, kind):
    terms = tuple(AccountTerms.for_ceiling(e, 1e-6, kind) for e in limits)
    about = facts(rows=rows, columns=5, epsilon=8.0, kind=kind, limits=terms)
    asked = {"steps": steps, "batch": batch}
    made = plan(spec("gradient-descent", 1.0, parameters=asked), about)
    check(made)
    assert made.schedule.batch == batch


def test_a_lower_order_of_the_job_saves_noise_on_drawn_batches():
    """q = 1/1000 and 1000 steps: the ceiling and a limit near the job bind, and else it is free."""
    asked = {"steps": 1000, "batch": 1000}

    def noise(*limits):
        terms = tuple(AccountTerms.for_ceiling(e, 1e-6) for e in limits)
        about = facts(rows=10**6, epsilon=8.0, limits=terms)
        made = plan(spec("gradient-descent", 1.0, parameters=asked), about)
        check(made)
        return made.prediction.our_noise

    free, bound = noise(), noise(1.0)
    assert 0.70 < free / bound < 0.80
    assert free <= noise(4.0) <= noise(2.0) <= bound


def test_gaussian_noise_is_seven_percent_less_on_a_gaussian_account():
    renyi, gaussian = (
        planned("output-perturbation", facts(kind=kind), 1.0, None).prediction.our_noise
        for kind in ("renyi", "gaussian")
    )
    assert gaussian / renyi == pytest.approx(0.932, abs=0.001)


@pytest.mark.parametrize("delta", [None, 0.0])
@pytest.mark.parametrize("algorithm", CATALOG)
def test_every_algorithm_plans_on_a_gaussian_account_and_draws_only_for_time(algorithm, delta):
    for rows in (1000, 300_000):
        made = planned(algorithm, facts(rows=rows, epsilon=4.0, kind="gaussian"), 1.0, delta)
        check(made)
        assert made.facts.account.kind == made.price.kind == "gaussian"
        short_of_time = algorithm == "accelerated-sgd" and rows > 1000
        assert delta == 0.0 or short_of_time or "sampled_gaussian" not in made.canonical()


@pytest.mark.parametrize("kind", ["renyi", "gaussian"])
@pytest.mark.parametrize("delta", [None, 0.0])
@pytest.mark.parametrize(
    "job",
    [{"loss": "logistic"}, {"loss": "hinge", "set": {"kind": "l1_ball"}}, {"loss": "ramp"}],
    ids=lambda job: job["loss"],
)
def test_auto_plans_on_every_kind_of_account(kind, delta, job):
    asked = {"dataset": "d", "algorithm": "auto", "privacy": {"epsilon": 1.0, "delta": delta}}
    about = facts(epsilon=4.0, kind=kind, limits=(AccountTerms.for_ceiling(2.0, 1e-6, kind),))
    candidates = compare(JobSpec.model_validate(asked | job), about, 10**12)
    made, _ = choose(candidates)
    for one in candidates:
        if one.plan is not None:
            check(one.plan)
    assert made.facts == about


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("times", [1, 7, 5000])
@pytest.mark.parametrize("sensitivity", [2, 4095, 10**9])
def test_the_scale_of_a_choice_is_the_smallest_that_fits(kind, times, sensitivity):
    delta = 0.0 if kind == "pure" else 1e-6
    limits = (AccountTerms.for_ceiling(0.4, delta, kind),)
    about = facts(epsilon=9.0, delta=delta, kind=kind, limits=limits)
    goal = target(spec("frank-wolfe", 1.0, set={"kind": "l1_ball"}), about)
    scale = choice_scale(goal, sensitivity, times)

    def cost(scale):
        return goal.cost(Repeat(release=Choice(sensitivity=sensitivity, scale=scale), times=times))

    assert cost(scale) <= goal.units
    assert scale == 1 or cost(min(scale - 1, int(scale * (1 - 1e-5)))) > goal.units


# --- mutants: what privacy rests on, each broken and caught ------------------------------------------


def of(algorithm, kind="renyi", ceiling=1.0, limits=(), **more):
    terms = tuple(AccountTerms.for_ceiling(e, 1e-6, kind) for e in limits)
    about = facts(epsilon=ceiling, kind=kind, rows=10**4, limits=terms)
    asked = {"dataset": "d", "algorithm": algorithm, "privacy": {"epsilon": 1.0}}
    return JobSpec.model_validate(asked | ROWS[algorithm].job | more), about


def caught(monkeypatch, job):
    """Whether what a broken planner makes is refused by itself, or by the checks above when nothing is
    broken any more; what it makes unbroken is not."""
    try:
        made = plan(*job)
    except assemble.CalibrationError:
        return True
    finally:
        monkeypatch.undo()
    check(plan(*job))
    try:
        check(made)
    except AssertionError:
        return True
    return False


DRAWN_JOB = of("gradient-descent", ceiling=8.0, parameters={"steps": 500, "batch": 9})


def test_a_planner_that_forgets_a_limit_is_caught(monkeypatch):
    job = of("gradient-descent", ceiling=8.0, limits=(1.0,), parameters={"steps": 500, "batch": 9})
    told = lattice.target
    for module in (gradient_descent, assemble):
        monkeypatch.setattr(module, "target", lambda *a: replace(told(*a), told=()))
    assert caught(monkeypatch, job)


@pytest.mark.parametrize("kind", ["renyi", "gaussian"])
@pytest.mark.parametrize("algorithm", ["gradient-descent", "frank-wolfe", "output-perturbation"])
def test_half_the_sensitivity_is_caught(kind, algorithm, monkeypatch):
    whole, scale = lattice.largest_sensitivity, lattice.choice_scale
    monkeypatch.setattr(lattice, "largest_sensitivity", lambda *a: 2 * whole(*a))
    monkeypatch.setattr(lattice, "choice_scale", lambda goal, s, times: scale(goal, s // 2, times))
    assert caught(monkeypatch, of(algorithm, kind))


def test_mu_without_its_square_is_caught(monkeypatch):
    monkeypatch.setattr(Gaussian, "mu_squared", lambda self: Fraction(self.sensitivity, self.sigma))
    assert caught(monkeypatch, of("output-perturbation", "gaussian"))


def test_mu_that_does_not_add_up_is_caught(monkeypatch):
    monkeypatch.setattr(Repeat, "mu_squared", lambda self: self.release.mu_squared())
    assert caught(monkeypatch, of("gradient-descent", "gaussian"))
    monkeypatch.setattr(Repeat, "mu_squared", lambda self: self.release.mu_squared())
    assert caught(monkeypatch, of("frank-wolfe", "gaussian"))


def test_a_drawn_batch_that_is_credited_in_mu_is_caught(monkeypatch):
    monkeypatch.setattr(
        SampledGaussian,
        "mu_squared",
        lambda r: Fraction(r.sensitivity * r.batch, r.sigma * r.population) ** 2,
    )
    assert caught(monkeypatch, of("gradient-descent", "gaussian", parameters={"batch": 9}))


@pytest.mark.parametrize("share", [0.5, 0.1, 0.01])
def test_no_smaller_mu_than_the_undrawn_one_is_true_of_a_drawn_batch(share):
    """The mixture of N(0, 1) and, for the share that is drawn, N(z, 1): far out in the tail its power
    exceeds that of any smaller mu, so that a credit would be a lie."""
    z, x = 0.4, 400.0
    power = np.log(share) + norm.logsf(x - z)
    assert power > norm.logsf(x - 0.8 * z)


@pytest.mark.parametrize("other", [-1, 1])
@pytest.mark.parametrize(
    ("algorithm", "name"), [("frank-wolfe", "bounded_range"), ("gradient-descent", "laplace")]
)
def test_a_price_at_another_order_is_caught(algorithm, name, other, monkeypatch):
    """Divergences grow with the order: at a lower one a price is too low, at a higher another."""
    right = getattr(single, name)
    monkeypatch.setattr(single, name, lambda e, a: right(e, max(2, a + other)))
    privacy = {"epsilon": 1.0} | ({"delta": 0.0} if name == "laplace" else {})
    assert caught(monkeypatch, of(algorithm, privacy=privacy))


def test_an_own_target_that_nothing_proves_is_caught(monkeypatch):
    """A job that may have twice the divergence that its (epsilon, delta) holds."""
    for module in (price, subsampling):
        monkeypatch.setattr(module, "renyi_budget", lambda *a: 2 * renyi_budget(*a))
    subsampling._budgets.cache_clear()
    try:
        assert caught(monkeypatch, DRAWN_JOB)
    finally:
        subsampling._budgets.cache_clear()


def test_parts_that_fit_at_different_orders_do_not_fit_together():
    """On the same rows every part must fit at one order, on disjoint rows each at its own."""
    epsilon, delta = 1.0, 1e-6
    drawn = Repeat(
        release=SampledGaussian(sensitivity=1, sigma=1, batch=1, population=2000), times=400
    )
    assert fits_own_target(drawn, epsilon, delta) == proved(drawn, epsilon, delta)
    both = Sequence(parts=(drawn, drawn, drawn, drawn))
    assert fits_own_target(both, epsilon, delta) == proved(both, epsilon, delta)
    apart = Disjoint(parts=(drawn, drawn))
    assert fits_own_target(apart, epsilon, delta) == fits_own_target(drawn, epsilon, delta)
