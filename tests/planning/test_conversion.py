"""(epsilon, delta) to ledger units and back: against mpmath, and never in the analyst's favour."""

from fractions import Fraction
from math import floor, inf

import numpy as np
import pytest
from dp_accounting import gaussian_mechanism
from hypothesis import example, given
from hypothesis import strategies as st
from mpmath import mp, mpf

from service.planning.conversion import (
    EPSILON_MAX,
    UNITS,
    best_order,
    budget_units,
    epsilon_at_order,
    epsilon_of_gaussian,
    epsilon_of_units,
    largest_epsilon,
    renyi_budget,
)

DELTAS = (1e-12, 1e-9, 1e-6, 1e-5, 1e-3, 0.5, 0.0)
TARGETS = [
    (0.01, 1e-3),
    (0.1, 1e-5),
    (0.123457, 1e-6),
    (0.5, 0.9),
    (1.0, 1e-6),
    (1.0, 0.5),
    (1.0, 1e-300),
    (3.0, 1e-9),
    (10.0, 1e-6),
    (100.0, 1e-6),
    (100.0, 0.999),
]
epsilons = st.floats(1e-6, EPSILON_MAX)
deltas = st.floats(-14, -0.001).map(lambda exponent: 10**exponent)


@pytest.fixture(autouse=True)
def _precision():
    with mp.workdps(60):
        yield


def exact_rho(epsilon: float, delta: float, order: int) -> mpf:
    """The largest tau/a with tau + log(1 - 1/a) - log(delta a)/(a - 1) = epsilon."""
    a = mpf(order)
    return (mpf(epsilon) - mp.log1p(-1 / a) + mp.log(mpf(delta) * a) / (a - 1)) / a


def exact_delta(epsilon: float, mu: mpf) -> mpf:
    """The delta of the Gaussian mechanism (Balle and Wang 2018, Theorem 8)."""
    e = mpf(epsilon)
    return mp.ncdf(mu / 2 - e / mu) - mp.exp(e) * mp.ncdf(-mu / 2 - e / mu)


# --- budgets --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("epsilon", "delta"), TARGETS)
def test_a_budget_is_the_exact_maximum_over_orders_rounded_down(epsilon, delta):
    rhos = {a: exact_rho(epsilon, delta, a) for a in range(2, 4 * best_order(epsilon, delta) + 50)}
    best = max(rhos, key=rhos.get)
    assert best_order(epsilon, delta) == best
    assert budget_units(epsilon, delta) == int(mp.floor(rhos[best] * UNITS))


@pytest.mark.parametrize("delta", [1e-14, 1e-9, 1e-6, 1e-4, 0.01, 0.3, 0.99])
@pytest.mark.parametrize("epsilon", [1e-4, 0.003, 0.07, 1.3, 22.0, 100.0])
def test_no_order_up_to_a_million_is_better(epsilon, delta):
    a = np.arange(2.0, 1e6)
    scan = (epsilon - np.log1p(-1 / a) + (np.log(delta) + np.log(a)) / (a - 1)) / a
    best = exact_rho(epsilon, delta, best_order(epsilon, delta))
    assert exact_rho(epsilon, delta, int(a[scan.argmax()])) <= best


@given(epsilons, deltas, st.integers(2, 10**6))
def test_the_renyi_budget_of_an_order_is_never_above_the_exact_one(epsilon, delta, order):
    exact = exact_rho(epsilon, delta, order) * order
    ours = mpf(str(renyi_budget(epsilon, delta, order)))
    assert exact - mpf("2e-30") < ours < exact


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(5e-324, 5e-324), (1e-300, 1e-300), (1e-9, 1e-12), (1e-6, 1e-300), (1e-12, 1e-18), (-3, 1e-6)],
)
def test_what_is_below_a_unit_buys_nothing_and_takes_no_time(epsilon, delta):
    assert budget_units(epsilon, delta) == 0
    assert best_order(epsilon, delta) <= 2**34


@given(st.tuples(epsilons, epsilons).map(sorted), st.sampled_from(DELTAS))
def test_more_epsilon_never_buys_less(pair, delta):
    assert budget_units(pair[0], delta) <= budget_units(pair[1], delta)


@given(epsilons, st.tuples(deltas, deltas).map(sorted))
def test_more_delta_never_buys_less(epsilon, pair):
    assert budget_units(epsilon, pair[0]) <= budget_units(epsilon, pair[1])


@given(st.floats(0, EPSILON_MAX))
@example(0.1)
@example(0.3)
@example(1e-12)
@example(np.nextafter(1e-12, 0))
def test_a_pure_budget_is_epsilon_in_units_rounded_down(epsilon):
    assert budget_units(epsilon, 0.0) == floor(Fraction(epsilon) * UNITS)


# --- and back -------------------------------------------------------------------------------------


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", [0.001, 0.123456, 0.5, 1.0, 2.718282, 33.3, 99.999999, 100.0])
def test_epsilon_to_units_and_back_is_the_same_epsilon(epsilon, delta):
    units = budget_units(epsilon, delta)
    assert largest_epsilon(units, delta) == epsilon
    assert epsilon_of_units(units, delta) == epsilon


@given(st.integers(0, 6 * 10**13), st.sampled_from(DELTAS))
@example(1, 1e-5)  # even epsilon = 0 would buy more than this
@example(1000, 0.5)
@example(1, 0.0)
def test_the_largest_epsilon_fits_and_the_next_does_not(units, delta):
    epsilon = largest_epsilon(units, delta)
    millionths = round(epsilon * 10**6)
    assert 0 <= epsilon <= EPSILON_MAX and epsilon == millionths / 10**6
    if epsilon > 0:
        assert 0 < budget_units(epsilon, delta) <= units
    if 0 < epsilon < EPSILON_MAX:
        assert budget_units((millionths + 1) / 10**6, delta) > units
    if epsilon == 0 and units > 0:  # nothing fits: the least epsilon is too dear, or buys nothing
        assert budget_units(1e-6, delta) > units or budget_units(1e-6, delta) == 0


@given(st.integers(1, 6 * 10**13), st.sampled_from(DELTAS))
def test_epsilon_of_units_is_the_smallest_that_holds_them(units, delta):
    epsilon = epsilon_of_units(units, delta)
    millionths = round(epsilon * 10**6)
    assert budget_units(epsilon, delta) >= units
    assert millionths == 1 or budget_units((millionths - 1) / 10**6, delta) < units


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("units", [0, -1, -(10**15)])
def test_nothing_or_less_than_nothing_reads_as_zero(units, delta):
    assert largest_epsilon(units, delta) == 0.0
    assert epsilon_of_units(0, delta) == 0.0


# --- what one release implies ---------------------------------------------------------------------


@given(st.fractions(0, 50), deltas, st.integers(2, 300))
def test_the_epsilon_at_an_order_is_rounded_up_by_less_than_a_millionth(tau, delta, order):
    a = mpf(order)
    divergence = mpf(tau.numerator) / tau.denominator
    exact = max(0, divergence + mp.log1p(-1 / a) - mp.log(mpf(delta) * a) / (a - 1))
    stated = mpf(round(epsilon_at_order(tau, delta, order) * 10**6)) / 10**6
    assert exact <= stated <= exact + mpf("1.000001e-6")


MUS = [Fraction(1, 10**4), Fraction(1, 100), Fraction(1, 7), Fraction(1), Fraction(17, 5)]


@pytest.mark.parametrize("delta", [1e-15, 1e-9, 1e-6, 1e-3, 0.1])
@pytest.mark.parametrize("mu", [*MUS, Fraction(7)])
def test_the_epsilon_of_a_gaussian_is_exact_and_never_below(mu, delta):
    epsilon = epsilon_of_gaussian(mu**2, delta)
    exact_mu = mpf(mu.numerator) / mu.denominator
    assert exact_delta(epsilon, exact_mu) <= delta
    if epsilon > 1e-6:
        assert exact_delta(epsilon - 2e-6, exact_mu) > delta


@pytest.mark.parametrize("delta", [1e-9, 1e-6, 1e-3])
@pytest.mark.parametrize("mu", MUS[1:])
def test_the_epsilon_of_a_gaussian_agrees_with_dp_accounting(mu, delta):
    theirs = gaussian_mechanism.get_epsilon_gaussian(float(1 / mu), delta)
    assert epsilon_of_gaussian(mu**2, delta) == pytest.approx(theirs, abs=3e-6)


def test_a_gaussian_beyond_the_largest_epsilon_has_none():
    assert epsilon_of_gaussian(Fraction(10**6), 1e-6) == inf
