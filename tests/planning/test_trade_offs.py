"""mu-GDP: every release is as hard to tell apart as two normals mu apart, and what mu is worth."""

from decimal import Decimal
from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from scipy.stats import norm

from service.planning.conversion import (
    EPSILON_MAX,
    UNITS,
    budget_units,
    epsilon_of_units,
    largest_epsilon,
)
from service.planning.divergences import mu_squared_of_pure, mu_squared_of_range
from service.planning.normal import delta_of, mills, smallest_millionths, tail
from service.planning.releases import (
    Choice,
    Gaussian,
    Laplace,
    Pure,
    Recursive,
    SampledGaussian,
    Subsample,
)

EXTREMES = [
    (epsilon, delta)
    for epsilon in (1e-6, 1e-3, 0.1, 1.0, 10.0, 100.0)
    for delta in (5e-324, 1e-300, 1e-30, 1e-6, 0.01, 0.5, 0.9, 1 - 1e-9, 1 - 2**-53)
]


@pytest.fixture(autouse=True)
def _precision():
    with mp.workdps(420):
        yield


def exact_delta(epsilon: float, mu: mpf) -> mpf:
    e = mpf(epsilon)
    upper, lower = ((e / mu + s * mu / 2) / mp.sqrt(2) for s in (-1, 1))
    return mp.erfc(upper) / 2 - mp.exp(e) * mp.erfc(lower) / 2


# --- numerics -------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [-40, -6, -1, 0, 1e-9, 0.5, 3, 5.999, 6, 6.001, 9, 15, 40, 1000])
def test_tails_of_the_normal_are_right_to_fifty_digits(x):
    exact = mp.erfc(mpf(x) / mp.sqrt(2)) / 2
    assert abs(mpf(str(tail(Decimal(x)))) / exact - 1) < mpf(10) ** -50
    ratio = exact * mp.sqrt(2 * mp.pi) * mp.exp(mpf(x) ** 2 / 2)
    assert abs(mpf(str(mills(Decimal(x)))) / ratio - 1) < mpf(10) ** -50


@pytest.mark.parametrize(("epsilon", "delta"), EXTREMES)
def test_a_gaussian_budget_is_the_largest_that_the_exact_trade_off_allows(epsilon, delta):
    units = budget_units(epsilon, delta, "gaussian")
    held, more = (mp.sqrt(mpf(2 * n) / UNITS) for n in (units, units + 1))
    assert units == 0 or exact_delta(epsilon, held) <= mpf(delta)
    assert exact_delta(epsilon, more) > mpf(delta) * (1 - mpf(10) ** -29)
    assert units >= budget_units(epsilon, delta)  # at a fixed order some is lost


def test_delta_of_a_gaussian_is_exact():
    for epsilon in (0.0, 1e-6, 0.3, 7.0, 100.0, 1000.0):
        for mu in (1e-6, 0.01, 0.4, 3.0, 30.0):
            exact = exact_delta(epsilon, mpf(mu))
            if exact > mpf(10) ** -350:  # what 420 digits can say of it
                found = mpf(str(delta_of(Decimal(epsilon), Decimal(mu))))
                assert abs(found / exact - 1) < mpf(10) ** -40


@given(
    st.floats(1e-6, EPSILON_MAX).map(lambda e: round(e, 6)),
    st.floats(-14, -0.001).map(lambda exponent: 10**exponent),
)
def test_gaussian_units_and_epsilons_go_both_ways(epsilon, delta):
    units = budget_units(epsilon, delta, "gaussian")
    least = epsilon_of_units(units, delta, "gaussian")
    assert budget_units(least, delta, "gaussian") >= units
    assert least <= max(epsilon, 1e-6)
    most = largest_epsilon(units, delta, "gaussian")
    if units:
        assert epsilon <= most and budget_units(most, delta, "gaussian") <= units
        following = most + 1e-6
        assert following > EPSILON_MAX or budget_units(following, delta, "gaussian") >= units


@pytest.mark.parametrize("delta", [1e-12, 1e-6, 0.3])
@pytest.mark.parametrize(
    "mu_squared", [Fraction(1, 10**12), Fraction(1, 7), Fraction(9), Fraction(10**6)]
)
def test_the_smallest_epsilon_of_a_mu_is_proved_and_the_next_smaller_is_not(mu_squared, delta):
    n, mu = (
        smallest_millionths(mu_squared, delta),
        mp.sqrt(mpf(mu_squared.numerator) / mu_squared.denominator),
    )
    assert exact_delta(n / 10**6, mu) <= mpf(delta)
    assert n == 0 or exact_delta((n - 1) / 10**6, mu) > mpf(delta) * (1 - mpf(10) ** -25)


# --- trade-offs -----------------------------------------------------------------------------------

GRID = np.concatenate([10.0 ** np.arange(-12, -2, 0.25), np.linspace(0.01, 0.99, 197)])


def normal_trade_off(alpha, mu_squared):
    """G_mu: the least type II error at each type I error, of telling two normals apart."""
    return norm.cdf(norm.isf(alpha) - sqrt(mu_squared))


def trade_off(p, q, alpha):
    """The same for two distributions on points, in the order of likelihood ratios."""
    order = np.argsort(-(q - p), kind="stable")
    first, second = np.exp(p[order]), np.exp(q[order])
    type_one = np.concatenate([[0.0], np.cumsum(first)])
    type_two = 1 - np.concatenate([[0.0], np.cumsum(second)])
    return np.interp(alpha, type_one, type_two)


def below(p, q, mu_squared):
    """Whether G_mu lies below the trade-off, either way round; and how near it comes."""
    gaps = [
        trade_off(a - np.log(np.exp(a).sum()), b - np.log(np.exp(b).sum()), GRID)
        - normal_trade_off(GRID, mu_squared)
        for a, b in ((p, q), (q, p))
    ]
    return min(gap.min() for gap in gaps) > -1e-9


SIZES = [(1, 100), (1, 4), (1, 1), (3, 1), (8, 1)]


@pytest.mark.parametrize(("sensitivity", "scale"), SIZES)
def test_pure_releases_are_no_easier_to_tell_apart_than_normals(sensitivity, scale):
    e = sensitivity / scale
    mu_squared = Laplace(sensitivity=sensitivity, scale=scale).mu_squared()
    x = np.linspace(-40.0, 40.0 + e, 400001)
    assert below(-np.abs(x), -np.abs(x - e), mu_squared)
    response = np.array([0.0, -e])
    assert below(response, response[::-1], mu_squared)
    # and for randomised response no smaller mu would do: G touches its corner
    corner = 1 / (1 + np.exp(e))
    assert normal_trade_off(corner, mu_squared) == pytest.approx(corner, rel=1e-9)
    assert normal_trade_off(corner, 0.999 * float(mu_squared)) > corner


def test_choices_are_no_easier_to_tell_apart_than_normals():
    rng = np.random.default_rng(3)
    for _ in range(300):
        scale = int(rng.integers(1, 30))
        ours, neighbours = rng.integers(0, 40, size=(2, rng.integers(2, 7)))
        if np.ptp(ours - neighbours):
            priced = Choice(sensitivity=int(np.ptp(ours - neighbours)), scale=scale)
            assert below(-ours / scale, -neighbours / scale, priced.mu_squared())


@pytest.mark.parametrize(("sensitivity", "scale"), SIZES)
def test_of_all_splits_of_a_range_the_even_one_is_the_worst(sensitivity, scale):
    e = sensitivity / scale
    priced = Choice(sensitivity=sensitivity, scale=scale).mu_squared()
    logits = np.linspace(-30, 30, 2001)
    apart = norm.isf(1 / (1 + np.exp(logits + e / 2))) - norm.isf(1 / (1 + np.exp(logits - e / 2)))
    assert apart.max() ** 2 <= float(priced) * (1 + 1e-9)
    assert apart.max() ** 2 >= float(priced) * (1 - 1e-9)
    assert priced <= Fraction(31416, 80000) * Fraction(sensitivity, scale) ** 2  # pi e^2/8


@pytest.mark.parametrize("exponent", [-300, -20, -12, -11, -3, 0, 1, 2, 5, 12, 300])
def test_mu_of_a_pure_epsilon_is_right_at_any_size(exponent):
    epsilon = Fraction(10) ** exponent
    found = mu_squared_of_pure(epsilon)
    assert found <= 8 * epsilon and found <= Fraction(15708, 10000) * epsilon**2
    if -12 <= exponent <= 2:
        e, h = mpf(10) ** exponent, mp.sqrt(mpf(found.numerator) / found.denominator) / 2
        reached = mp.erfc(h / mp.sqrt(2)) / 2 * (1 + mp.exp(e))  # 1 at the exact one
        assert 1 - mpf(10) ** -15 <= reached <= 1 if exponent < 2 else reached <= 1
    assert mu_squared_of_range(2 * epsilon) == found


def test_mu_squared_over_epsilon_does_not_fall():
    """So that parts of a pure job have no more of it together than the job may have."""
    grid = [Fraction(n, 50) for n in range(1, 400)] + [Fraction(n) for n in range(8, 400, 7)]
    slopes = [mu_squared_of_pure(e) / e for e in grid]
    assert slopes == sorted(slopes)


def test_a_drawn_batch_earns_nothing_in_mu():
    """Whoever sees that a row was drawn tells the worlds apart as well as ever, if seldom."""
    inner = Gaussian(sensitivity=2, sigma=5)
    drawn = SampledGaussian(sensitivity=2, sigma=5, batch=1, population=1000)
    assert drawn.mu_squared() == inner.mu_squared() == Fraction(4, 25)
    assert Subsample(release=inner, batch=1, population=9).mu_squared() == inner.mu_squared()
    pure = Subsample(release=Laplace(sensitivity=1, scale=1), batch=1, population=9)
    assert pure.mu_squared() == mu_squared_of_pure(pure.pure()) < 0.05


def test_running_choices_add_the_squares_of_their_ranges():
    one = Recursive(sensitivities=(3,), kept=(0,), scales=(40,), slack=0)
    choice = Choice(sensitivity=3, scale=40)
    assert choice.mu_squared() <= one.mu_squared() <= choice.mu_squared() * Fraction(1001, 1000)
    far = Recursive(sensitivities=(300,), kept=(0,), scales=(1,), slack=0)
    assert far.mu_squared() == Pure(sensitivity=300, scale=1).mu_squared()
