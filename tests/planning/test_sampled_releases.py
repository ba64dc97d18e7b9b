"""Releases over sampled rows price themselves at an upper bound: against exact divergences and
dp_accounting."""

from fractions import Fraction
from math import comb, exp, log

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

from service.planning.releases import (
    Gaussian,
    Pure,
    Subsample,
)
from tests.planning.divergences import (
    FLOAT,
    ORDERS,
    POPULATIONS,
    accountant,
    both,
    sampled_divergences,
)
from tests.planning.strategies import integers, mechanisms, orders, releases


@pytest.mark.parametrize(("others", "batch", "record", "instead"), POPULATIONS)
@pytest.mark.parametrize("sigma", [2, 4, 10])
def test_a_sampled_sum_costs_no_more_than_its_price(others, batch, record, instead, sigma):
    priced = Subsample(
        release=Gaussian(sensitivity=abs(record - instead), sigma=sigma),
        batch=batch,
        population=len(others) + 1,
    )
    for order, found in sampled_divergences(others, batch, record, instead, sigma):
        assert 0 < found <= priced.renyi(order) * FLOAT


@pytest.mark.parametrize(("batch", "population"), [(1, 2), (1, 3), (1, 10), (5, 100)])
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(3)])
def test_a_sampled_randomised_response_costs_no_more_than_its_price(batch, population, epsilon):
    """With everyone else's batch giving either answer: P mixes the record's answer with that one."""
    gamma, e = batch / population, float(epsilon)
    yes = np.array([1.0, exp(-e)]) / (1 + exp(-e))
    priced = Subsample(
        release=Pure(sensitivity=epsilon.numerator, scale=epsilon.denominator),
        batch=batch,
        population=population,
    )
    for rest in (yes, yes[::-1]):
        p, q = (np.log(gamma * mine + (1 - gamma) * rest) for mine in (yes, yes[::-1]))
        assert np.abs(p - q).max() <= priced.pure() * FLOAT
        for order in (2, 3, 5, 8, 16):
            assert both(p, q, order) <= priced.renyi(order) * FLOAT


def test_the_sampled_pure_price_is_attained():
    """log(1 + gamma (e^eps - 1)), where the others' answers are the record's opposite."""
    priced = Subsample(release=Pure(sensitivity=1, scale=1), batch=1, population=4)
    assert float(priced.pure()) == pytest.approx(log(1 + (exp(1) - 1) / 4), rel=1e-15)


def theorem_9(gamma: float, rho: float, order: int) -> float:
    """Wang, Balle, Kasiviswanathan 2019 for an inner Gaussian of that rho."""
    g, r = mpf(gamma), mpf(rho)
    terms = [g**2 * comb(order, 2) * min(4 * mp.expm1(2 * r), 2 * mp.exp(2 * r))]
    terms += [2 * g**j * comb(order, j) * mp.exp((j - 1) * j * r) for j in range(3, order + 1)]
    return float(mp.log1p(mp.fsum(terms)) / (order - 1))


@pytest.mark.parametrize(("batch", "population"), [(1, 10), (10, 1000), (100, 10**6), (1, 10**9)])
@pytest.mark.parametrize(("sensitivity", "sigma"), [(2, 2), (2, 8), (1, 20)])
def test_sampling_is_priced_by_the_theorem_and_never_below_dp_accounting(
    batch, population, sensitivity, sigma
):
    inner = Gaussian(sensitivity=sensitivity, sigma=sigma)
    priced = Subsample(release=inner, batch=batch, population=population)
    event = dp_event.SampledWithoutReplacementDpEvent(
        population, batch, dp_event.GaussianDpEvent(sigma / sensitivity)
    )
    theirs = accountant(event)  # has a form that is tighter, for Gaussian noise alone
    rho = sensitivity**2 / (2 * sigma**2)
    for order in ORDERS:
        ours = float(priced.renyi(order))
        assert theirs[order] <= ours * (1 + 1e-6) + 1e-15
        assert ours == pytest.approx(min(theorem_9(batch / population, rho, order), order * rho))


@given(releases, integers, st.integers(0, 10**6), orders)
def test_sampling_never_costs_more_than_using_every_row(release, batch, others, order):
    sampled = Subsample(release=release, batch=batch, population=batch + others)
    assert 0 < sampled.renyi(order) <= release.renyi(order)
    assert (sampled.pure() is None) == (release.pure() is None)
    assert release.pure() is None or 0 < sampled.pure() <= release.pure()
    assert sampled.gaussian() is None


@given(mechanisms, integers, st.integers(1, 1000), orders)
def test_a_smaller_share_of_the_rows_never_costs_more(release, batch, others, order):
    more, fewer = (
        Subsample(release=release, batch=batch, population=batch + others * times)
        for times in (1, 2)
    )
    assert fewer.renyi(order) <= more.renyi(order)


@pytest.mark.parametrize("order", ORDERS)
def test_sampling_every_row_is_no_sampling(order):
    inner = Gaussian(sensitivity=2, sigma=5)
    assert Subsample(release=inner, batch=8, population=8).renyi(order) == inner.renyi(order)
