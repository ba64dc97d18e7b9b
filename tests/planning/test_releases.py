"""Every mechanism prices itself at an upper bound: against exact divergences and dp_accounting."""

from fractions import Fraction
from importlib.metadata import version

import numpy as np
import pytest
from dp_accounting import dp_event
from scipy.special import log_ndtr, logsumexp

from service.planning.releases import (
    Exponential,
    Gaussian,
    Pure,
)
from tests.planning.divergences import FLOAT, ORDERS, accountant, both


def test_the_oracle_is_the_release_that_these_tests_were_written_for():
    assert version("dp-accounting").startswith("0.6.")  # with attrs>=24 pip may pick 0.4.4


# --- mechanisms -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sensitivity", "sigma"), [(1, 1), (2, 1), (2, 7), (3, 64), (2**31, 2**40)]
)
def test_a_gaussian_costs_what_dp_accounting_says(sensitivity, sigma):
    theirs = accountant(dp_event.GaussianDpEvent(sigma / sensitivity))
    for order in ORDERS:
        renyi = Gaussian(sensitivity=sensitivity, sigma=sigma).renyi(order)
        assert float(renyi) == pytest.approx(theirs[order], rel=1e-12)


@pytest.mark.parametrize(("sensitivity", "sigma"), [(1, 1), (1, 4), (3, 4), (9, 4)])
def test_a_gaussian_costs_its_integral(sensitivity, sigma):
    for order in ORDERS[:5]:
        x = np.arange(-80.0 * sigma - order * sensitivity, 80.0 * sigma + order * sensitivity, 0.01)
        p, q = (-((x - m) ** 2) / (2 * sigma**2) for m in (sensitivity, 0))
        p, q = p - logsumexp(p), q - logsumexp(q)
        exact = float(Gaussian(sensitivity=sensitivity, sigma=sigma).renyi(order))
        assert both(p, q, order) == pytest.approx(exact, rel=1e-7)


@pytest.mark.parametrize(("sensitivity", "sigma"), [(1, 2), (3, 2), (1, 8), (5, 8), (16, 8)])
def test_a_rounded_normal_costs_less_than_the_continuous_one(sensitivity, sigma):
    k = np.arange(-40 * sigma, 40 * sigma + 1)

    def bins(mean):  # log P(round(N) = k) on the side where it is accurate
        far = np.abs(k - mean)
        upper, lower = log_ndtr((0.5 - far) / sigma), log_ndtr((-0.5 - far) / sigma)
        return upper + np.log1p(-np.exp(lower - upper))

    p, q = bins(sensitivity), bins(0)
    priced = Gaussian(sensitivity=sensitivity, sigma=sigma)
    for order in (2, 3, 4, 6):
        assert 0.8 * priced.renyi(order) < both(p, q, order) <= priced.renyi(order) * FLOAT


@pytest.mark.parametrize(("sensitivity", "scale"), [(1, 4), (1, 1), (3, 2), (7, 2), (2, 32)])
def test_a_rounded_laplace_costs_no_more_than_its_price(sensitivity, scale):
    k = np.arange(-30 * scale - sensitivity, 30 * scale + sensitivity + 1)

    def bins(mean):
        far = np.abs(k - mean).astype(float)
        tail = np.log(0.5) - (far - 0.5) / scale + np.log1p(-np.exp(-1 / scale))
        return np.where(far == 0, np.log1p(-np.exp(-0.5 / scale)), tail)

    p, q = bins(sensitivity), bins(0)
    priced = Pure(sensitivity=sensitivity, scale=scale)
    assert np.abs(p - q).max() <= priced.pure() * FLOAT
    for order in ORDERS:
        assert both(p, q, order) <= priced.renyi(order) * FLOAT


@pytest.mark.parametrize(("sensitivity", "scale"), [(1, 100), (1, 4), (1, 1), (7, 2)])
def test_a_laplace_costs_no_less_than_dp_accounting_says(sensitivity, scale):
    theirs = accountant(dp_event.LaplaceDpEvent(scale / sensitivity))
    for order in ORDERS:
        assert theirs[order] <= Pure(sensitivity=sensitivity, scale=scale).renyi(order) * FLOAT


@pytest.mark.parametrize(("sensitivity", "scale"), [(1, 1000), (1, 10), (1, 1), (3, 1), (20, 1)])
def test_randomised_response_is_the_worst_pure_release_and_within_its_price(sensitivity, scale):
    epsilon = sensitivity / scale
    p = np.array([0.0, -epsilon]) - np.log1p(np.exp(-epsilon))
    priced = Pure(sensitivity=sensitivity, scale=scale)
    assert priced.pure() == Fraction(sensitivity, scale)
    for order in ORDERS:
        exact = both(p, p[::-1], order)
        assert exact <= priced.renyi(order) * (1 + 1e-7)  # a divergence of 1e-6 loses digits
        assert 0.3 * priced.renyi(order) < exact


def test_an_exponential_choice_costs_no_more_than_its_price():
    rng = np.random.default_rng(7)
    tightest = 0.0
    for _ in range(150):
        scale = int(rng.integers(1, 30))
        ours, neighbours = rng.integers(0, 40, size=(2, rng.integers(2, 7)))
        change = ours - neighbours
        if not np.ptp(change):
            continue
        priced = Exponential(sensitivity=int(np.ptp(change)), scale=scale)
        p, q = (-s / scale - logsumexp(-s / scale) for s in (ours, neighbours))
        assert np.abs(p - q).max() <= priced.pure() * FLOAT
        for order in ORDERS:
            assert both(p, q, order) <= priced.renyi(order) * FLOAT
            tightest = max(tightest, both(p, q, order) / float(priced.renyi(order)))
    assert tightest > 0.7


def test_an_even_choice_between_two_pays_its_bounded_range():
    """Cesar and Rogers: shifting two equal scores by 1/2 each nearly reaches eps^2/8."""
    p, q = np.array([1.0, -1.0]) / 40, np.array([-1.0, 1.0]) / 40
    exact = both(p - logsumexp(p), q - logsumexp(q), 2)
    priced = Exponential(sensitivity=4, scale=40).renyi(2)
    assert 0.99 * priced < exact <= priced
