"""Terms of limits: their keys and prices, what is summed up, and what sums prove."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from pydantic import ValidationError

from service.planning.catalog import CATALOG
from service.planning.conversion import UNITS, best_order, budget_units, epsilon_at_order
from service.planning.divergences import mu_squared_of_pure, randomised_response
from service.planning.plan import Plan
from service.planning.price import (
    AccountTerms,
    largest_fitting_epsilon,
    measures,
    price_units,
    prices,
    smallest_epsilon,
)
from service.planning.releases import (
    Choice,
    Disjoint,
    Gaussian,
    Laplace,
    Pure,
    Recursive,
    Repeat,
    Sequence,
    Subsample,
)
from service.planning.spec import Facts
from tests.planning.cases import facts, planned
from tests.planning.strategies import choices, integers, recursive

RENYI, GAUSSIAN, PURE = (
    AccountTerms.for_ceiling(1.0, 1e-6),
    AccountTerms.for_ceiling(1.0, 1e-6, "gaussian"),
    AccountTerms.for_ceiling(1.0, 0.0),
)


def test_every_limit_has_terms_of_its_own():
    assert [terms.key for terms in (RENYI, GAUSSIAN, PURE)] == ["renyi:22", "gaussian", "pure"]
    assert AccountTerms.for_ceiling(8.0, 1e-6).order == best_order(8.0, 1e-6) != RENYI.order
    assert GAUSSIAN.order is None and GAUSSIAN.delta == 1e-6


@pytest.mark.parametrize(
    ("delta", "kind"), [(0.0, "renyi"), (0.0, "gaussian"), (1e-6, "pure"), (1.0, "gaussian")]
)
def test_terms_that_cannot_be_are_refused(delta, kind):
    with pytest.raises(ValueError, match="delta"):
        AccountTerms.for_ceiling(1.0, delta, kind)


def test_a_gaussian_account_has_no_order():
    with pytest.raises(ValidationError):
        AccountTerms(kind="gaussian", delta=1e-6, order=9)


def test_limits_are_of_the_accounts_kind_and_left_out_where_there_are_none():
    assert "limits" not in facts().model_dump(mode="json")
    limited = facts(limits=(AccountTerms.for_ceiling(0.3, 1e-6),))
    assert Facts.model_validate_json(limited.model_dump_json()) == limited
    assert limited.model_dump(mode="json")["limits"][0]["order"] == best_order(0.3, 1e-6)
    with pytest.raises(ValidationError, match="limit"):
        facts(limits=(GAUSSIAN,))


@pytest.mark.parametrize(
    ("release", "units"),
    [
        (Gaussian(sensitivity=1, sigma=3), 55_555_555_556),  # 1/18
        (Repeat(release=Gaussian(sensitivity=1, sigma=3), times=3), 166_666_666_667),
        (Gaussian(sensitivity=1, sigma=10**30), 1),  # never free
        (Laplace(sensitivity=1, scale=10**8), 1),  # pi/4 of e^2, in units
        (Laplace(sensitivity=1, scale=1000), 785_399),
        (Choice(sensitivity=1, scale=1000), 196_350),  # pi/16
    ],
)
def test_a_gaussian_account_counts_half_the_square_of_mu(release, units):
    assert price_units(release, GAUSSIAN) == units


def test_prices_come_by_key_and_only_pure_releases_have_a_pure_one():
    noisy, chosen = Gaussian(sensitivity=1, sigma=3), Choice(sensitivity=1, scale=9)
    terms = (RENYI, GAUSSIAN, PURE)
    assert list(prices(noisy, terms)) == ["renyi:22", "gaussian"]
    assert prices(chosen, terms) == {one.key: price_units(chosen, one) for one in terms}


def test_spending_is_summed_up_at_orders_and_by_mu():
    own, *keys = [one.key for one in measures(RENYI)]
    assert own == RENYI.key and set(keys) == {one.key for one in measures(GAUSSIAN)}
    assert keys[0] == "renyi:2" and keys[-2:] == ["renyi:256", "gaussian"] and len(keys) == 15
    assert all(one.delta == 1e-6 for one in measures(RENYI))
    assert measures(PURE) == (PURE,)


# --- what sums prove -------------------------------------------------------------------------------


def test_the_smallest_epsilon_is_that_of_the_best_method():
    release = Repeat(release=Gaussian(sensitivity=1, sigma=100), times=50)
    sums = prices(release, measures(RENYI))
    found, method = smallest_epsilon(sums, 1e-6)
    assert method == "Gaussian differential privacy, mu 0.0707"
    with mp.workdps(60):
        mu, e = mp.sqrt(mpf(2 * sums["gaussian"]) / UNITS), mpf(found)
        delta = mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)
        assert delta <= mpf(1e-6)
    without = {key: units for key, units in sums.items() if key != "gaussian"}
    renyi, said = smallest_epsilon(without, 1e-6)
    assert said == "Renyi divergence of order 64" and renyi > found
    tau = Fraction(64 * sums["renyi:64"], UNITS)
    assert renyi == epsilon_at_order(tau, 1e-6, 64)


def test_drawn_batches_are_best_proved_at_an_order():
    sums = {"renyi:16": 10**9, "gaussian": 10**12}
    assert smallest_epsilon(sums, 1e-6)[1] == "Renyi divergence of order 16"


def test_pure_epsilons_add_up_and_are_all_that_counts_without_a_delta():
    assert smallest_epsilon({"pure": 333_333_333_334}, 0.0) == (0.333334, "pure epsilons, added up")
    assert smallest_epsilon({"pure": 10**11, "gaussian": 10**14}, 1e-6)[0] == 0.1
    assert smallest_epsilon({"renyi:2": 0, "gaussian": 0}, 1e-6)[0] == 0.0
    with pytest.raises(ValueError, match="delta"):
        smallest_epsilon({"gaussian": 1}, 0.0)


# --- what certainly fits ----------------------------------------------------------------------------

pure_kinds = st.one_of(
    st.builds(Laplace, sensitivity=integers, scale=integers),
    st.builds(Choice, sensitivity=integers, scale=integers),
    st.builds(lambda rows: Recursive(**recursive(rows), slack=1), choices),
    st.builds(
        lambda one, more: Subsample(release=one, batch=1, population=1 + more),
        st.builds(Laplace, sensitivity=integers, scale=integers),
        st.integers(0, 200),
    ),
)
pure_releases = st.recursive(
    pure_kinds,
    lambda inner: st.one_of(
        st.builds(Sequence, parts=st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(Repeat, release=inner, times=integers),
        st.builds(Disjoint, parts=st.lists(inner, min_size=1, max_size=3).map(tuple)),
    ),
    max_leaves=4,
)


@given(pure_releases, st.sampled_from((2, 3, 7, 22, 300)))
def test_nothing_pure_is_dearer_than_the_worst_release_of_its_epsilon(release, order):
    """Randomised response, or a bound by squares where that is the price."""
    epsilon, close = release.pure(), 1 + Fraction(1, 10**18)
    worst = max(randomised_response(epsilon, order), min(order * epsilon**2 / 8, epsilon))
    assert release.renyi(order) <= worst * close
    assert release.mu_squared() <= mu_squared_of_pure(epsilon) * close


@pytest.mark.parametrize("terms", [RENYI, GAUSSIAN], ids=lambda terms: terms.key)
@pytest.mark.parametrize("units", [0, 1, 1000, 10**6, 10**9, 10**11, 10**12, 10**13, 10**15])
def test_the_largest_fitting_epsilon_of_a_pure_job_fits_and_little_more_does(units, terms):
    epsilon = largest_fitting_epsilon(units, 0.0, terms)
    if epsilon > 0:
        worst = Laplace(sensitivity=round(epsilon * 10**6), scale=10**6)
        assert price_units(worst, terms) <= units
    if 0 < epsilon < 100 and units >= 10**9:
        more = Fraction(epsilon) * Fraction(101, 100) + Fraction(2, 10**6)
        most = (
            mu_squared_of_pure(more) / 2
            if terms.order is None
            else randomised_response(more, terms.order) / terms.order
        )
        assert most * UNITS > units


@pytest.mark.parametrize("algorithm", CATALOG)
@pytest.mark.parametrize("kind", ["renyi", "gaussian"])
@pytest.mark.parametrize("delta", [1e-6, 1e-8, 0.0])
def test_a_job_of_the_largest_fitting_epsilon_fits(algorithm, kind, delta):
    about = facts(epsilon=3.0, kind=kind)
    left = budget_units(0.4, 1e-6, kind)
    epsilon = largest_fitting_epsilon(left, delta, about.account)
    made = planned(algorithm, about, epsilon, delta)
    assert isinstance(made, Plan) and 0 < made.price.units <= left


def test_the_bound_on_pure_jobs_is_at_least_the_older_one():
    """min(epsilon^2/2, epsilon/order) was what a pure job was taken to cost."""
    for units in (10**6, 10**9, 10**12):
        rho = units / UNITS
        older = max((2 * rho) ** 0.5, RENYI.order * rho)
        assert largest_fitting_epsilon(units, 0.0, RENYI) >= min(100.0, older) * 0.999 - 2e-6
    assert price_units(Pure(sensitivity=1, scale=1), RENYI) > price_units(
        Laplace(sensitivity=1, scale=1), RENYI
    )
