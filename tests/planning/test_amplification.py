"""What Gaussian noise on a secret batch costs: never less than any attack finds, and hardly more."""

import hashlib
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from math import comb, exp, log, log1p

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from pydantic import ValidationError
from scipy.special import logsumexp

from service.planning import amplification
from service.planning.amplification import roughly, sampled_gaussian
from service.planning.conversion import budget_units
from service.planning.lattice import Target
from service.planning.price import AccountTerms
from service.planning.releases import Gaussian, SampledGaussian, Subsample
from service.planning.releases.metering import Ask
from service.planning.shared.subsampling import largest_ratio
from tests.depth import some
from tests.planning.divergences import (
    FLOAT,
    ORDERS,
    POPULATIONS,
    accountant,
    both,
    sampled_divergences,
    sampled_sum,
)

SHARES = ((1, 1000), (1, 100), (63, 1000), (1, 4), (1, 2), (9, 10), (999, 1000))
RATIOS = tuple(map(Fraction, ("1/1000", "1/20", "1/5", "1/2", "1", "3")))


def bound(z: Fraction, share: tuple[int, int], order: int) -> float:
    return float(sampled_gaussian(z**2, *share, order))


# --- against exact divergences ----------------------------------------------------------------------


@pytest.mark.parametrize(("others", "batch", "record", "instead"), POPULATIONS)
@pytest.mark.parametrize("sigma", [2, 4, 10])
def test_a_sampled_sum_costs_no_more_than_its_price(others, batch, record, instead, sigma):
    """All batches of a small population, both directions."""
    moved = abs(record - instead)
    priced = SampledGaussian(
        sensitivity=moved, sigma=sigma, batch=batch, population=len(others) + 1
    )
    for order, found in sampled_divergences(others, batch, record, instead, sigma):
        assert 0 < found <= priced.renyi(order) * FLOAT


def mixtures(z: float, gamma: float, rest: float, order: int) -> float:
    """Between a record at z/2 and its replacement at -z/2, where batches without it sum to rest z."""
    x = np.linspace(-14 - z * order, 14 + z * order, 40_001)
    logs = []
    for mine in (z / 2, -z / 2):
        parts = [log1p(-gamma) - (x - rest * z) ** 2 / 2, log(gamma) - (x - mine) ** 2 / 2]
        density = np.logaddexp(*parts)
        logs.append(density - logsumexp(density))
    return both(logs[0], logs[1], order)


@pytest.mark.parametrize(("batch", "population"), SHARES)
@pytest.mark.parametrize("z", RATIOS)
def test_the_worst_single_batches_cost_no_more_and_hardly_less(batch, population, z):
    """What is left over: at most the 0.7 z that separates a Gaussian's two sides, or 2 % of a mixture
    whose every part matters."""
    for order in (2, 3, 4, 15, 40):
        gamma, rests = batch / population, (-0.5, -0.25, 0.0, 0.3, 0.5)
        worst = max(mixtures(float(z), gamma, rest, order) for rest in rests)
        priced = min(bound(z, (batch, population), order), order * float(z) ** 2 / 2)
        assert worst <= priced * FLOAT + 1e-14
        assert priced <= worst * (1.02 + 0.75 * float(z)) + 1e-9


def test_no_three_places_in_the_plane_cost_more():
    """The others' sum need not lie on the line between the record's two."""
    z, gamma, grid = 1.0, 0.2, np.linspace(-9, 9, 361)
    x, y = np.meshgrid(grid, grid)
    rng = np.random.default_rng(3)
    points = rng.normal(size=(40, 3, 2))
    points *= (z / 2 / np.maximum(z / 2, np.linalg.norm(points, axis=2)))[..., None]
    right = [np.array([[0, 0.5], [0.5, 0], [-0.5, 0]]), np.array([[0.5, 0], [0.5, 0], [-0.5, 0]])]
    tightest = 0.0
    for rest, mine, instead in [*points, *right]:
        logs = []
        for centre in (mine, instead):
            about = [-((x - c[0]) ** 2 + (y - c[1]) ** 2) / 2 for c in (rest, centre)]
            density = np.logaddexp(log1p(-gamma) + about[0], log(gamma) + about[1]).ravel()
            logs.append(density - logsumexp(density))
        for order in (2, 5, 9):
            found, priced = both(*logs, order), bound(Fraction(1), (1, 5), order)
            assert found <= priced * FLOAT
            tightest = max(tightest, found / priced)
    assert tightest > 0.6


def test_many_different_records_do_not_help_an_attacker():
    """Every population of four from five values, half of the rows drawn."""
    values, sigma, x = (-2, -1, 0, 1, 2), 3, np.arange(-60, 60, 0.02)
    for order in (2, 6, 16):
        priced = SampledGaussian(sensitivity=4, sigma=sigma, batch=2, population=4).renyi(order)
        for others in combinations(values, 3):
            p, q = (sampled_sum((*others, mine), 2, sigma, x) for mine in (2, -2))
            assert both(p, q, order) <= priced * FLOAT


# --- against the theorem's own integrals -----------------------------------------------------------


@pytest.mark.parametrize(("share", "z", "order"), some(SHARES, RATIOS[:-1], (2, 3, 4, 9, 30)))
def test_the_sums_are_the_integrals_of_the_theorem(share, z, order):
    batch, population = share
    mp.dps = 40
    gamma, ratio = mpf(batch) / population, mpf(z.numerator) / z.denominator

    @cache  # the three integrals meet at the same places
    def at(g):
        return gamma * mp.expm1(ratio * g - ratio**2 / 2), mp.npdf(g)

    def integrate(value):
        def density(g):
            v, weight = at(g)
            return value(v) * weight

        ends = [ratio / 2, 2, 4 + ratio, 9 + ratio * order / 2, 20 + ratio * order]
        return mp.quad(density, sorted(set(ends)))

    first = integrate(lambda v: (1 + v) ** order - 1 - order * v)
    second = integrate(lambda v: (1 + v) ** (1 - order) - 1 + (order - 1) * v)
    theorem = float(mp.log1p(first + second) / (order - 1))
    quadratic = float(mp.log1p(first + integrate(lambda v: comb(order, 2) * v**2)) / (order - 1))
    assert theorem * (1 - 1e-12) <= bound(z, (batch, population), order) <= quadratic * (1 + 1e-12)


@pytest.mark.parametrize("x", ["0", "0.0000001", "0.3", "1", "2.5", "7", "15.9"])
def test_the_normal_distribution_function_has_59_digits_and_is_not_above(x):
    """What its series adds up to, as a share of it."""
    mp.dps = 90
    bits = amplification._BITS
    at = int(mpf(x) * 2**bits)
    wanted = (mp.ncdf(mpf(at) / 2**bits) - mpf(1) / 2) * mp.sqrt(2 * mp.pi)
    wanted *= mp.exp((mpf(at) / 2**bits) ** 2 / 2) * 2**bits
    ours = amplification._rise(at)
    assert wanted * (1 - mpf(10) ** -59) - 1000 <= ours <= wanted


def test_beyond_the_last_place_that_is_evaluated_the_distribution_function_is_1():
    mp.dps = 90
    assert 1 - mp.ncdf(amplification._FAR / 2**amplification._BITS) < mpf(10) ** -56


def test_pi_is_pi():
    mp.dps = 90
    assert abs(mpf(str(amplification._PI)) - mp.pi) < mpf(10) ** -78


@given(
    st.fractions(Fraction(1, 10**6), 4, max_denominator=10**6),
    st.integers(1, 10**9),
    st.integers(1, 10**9),
    st.integers(2, 300),
)
def test_the_search_looks_for_what_is_charged(z, batch, others, order):
    exact = sampled_gaussian(z**2, batch, batch + others, order)
    rough = roughly(float(z), batch / (batch + others), order) / (order - 1)
    assert rough == pytest.approx(float(exact), rel=2e-3)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize("times", [10, 200, 8192])
def test_a_glance_finds_a_ratio_a_fifth_off_at_most(epsilon, times):
    goal = Target(
        epsilon, 1e-6, budget_units(epsilon, 1e-6), AccountTerms.for_ceiling(epsilon, 1e-6), ()
    )
    for halvings in range(1, 10):
        asked = goal, 10**6 >> halvings, 10**6, times
        assert largest_ratio(*asked, glance=True) == pytest.approx(largest_ratio(*asked), rel=0.2)


# --- beside other bounds ---------------------------------------------------------------------------


@pytest.mark.parametrize(("batch", "population"), SHARES)
@pytest.mark.parametrize(("sensitivity", "sigma"), [(2, 2), (1, 2), (1, 5), (1, 20), (1, 1000)])
def test_never_dearer_than_theorem_9_nor_than_dp_accounting(batch, population, sensitivity, sigma):
    drawn = {"batch": batch, "population": population}
    ours = SampledGaussian(sensitivity=sensitivity, sigma=sigma, **drawn)
    older = Subsample(release=Gaussian(sensitivity=sensitivity, sigma=sigma), **drawn)
    inner = dp_event.GaussianDpEvent(sigma / sensitivity)
    theirs = accountant(dp_event.SampledWithoutReplacementDpEvent(population, batch, inner))
    for order in ORDERS:
        assert ours.renyi(order) <= older.renyi(order)
        assert float(ours.renyi(order)) <= theirs[order] * (1 + 1e-9)


def test_a_quarter_of_theorem_9_where_noise_is_large():
    """Its leading term is 4 gamma^2 times that of all rows; gamma^2 is what a release attains."""
    inner, drawn = Gaussian(sensitivity=1, sigma=1000), {"batch": 1, "population": 10**5}
    ours = SampledGaussian(sensitivity=1, sigma=1000, **drawn)
    for order in (2, 5, 20):
        quarter = Subsample(release=inner, **drawn).renyi(order) / 4
        assert ours.renyi(order) <= 1.01 * quarter
        assert ours.renyi(order) >= order * Fraction(1, 2 * 1000**2) / 10**10


def test_poisson_batches_under_added_records_cost_less_than_what_is_priced():
    """That formula, with half the sensitivity or with all of it, is not for replaced records."""
    z, gamma, order = 0.5, 0.1, 12

    def poisson(ratio):
        terms = [
            comb(order, k) * (1 - gamma) ** (order - k) * gamma**k * exp(k * (k - 1) * ratio**2 / 2)
            for k in range(order + 1)
        ]
        return log(sum(terms)) / (order - 1)

    attained = max(mixtures(z, gamma, rest, order) for rest in (-0.5, 0.0, 0.5))
    assert poisson(z / 2) < attained / 2
    assert attained <= bound(Fraction(1, 2), (1, 10), order) * FLOAT


# --- what a price must be ---------------------------------------------------------------------------


@given(st.integers(1, 500), st.integers(1, 500), st.integers(1, 60), st.integers(1, 60))
def test_more_noise_fewer_rows_or_a_lower_order_never_cost_more(sensitivity, sigma, batch, others):
    def price(sensitivity=sensitivity, others=others, order=7):
        made = SampledGaussian(
            sensitivity=sensitivity, sigma=sigma, batch=batch, population=batch + others
        )
        return made.renyi(order)

    assert 0 < price() <= price(sensitivity=sensitivity + 1)
    assert price(others=others + 1) <= price() <= price(order=8)
    assert price() <= Gaussian(sensitivity=sensitivity, sigma=sigma).renyi(7)


@pytest.mark.parametrize(
    ("sensitivity", "sigma"), [(1, 2**56), (10**5, 1), (620, 1), (1, 1), (2**31, 2**40)]
)
@pytest.mark.parametrize(("batch", "population"), [(1, 2**30), (2**30 - 1, 2**30), (1, 2)])
def test_extremes_are_priced_and_never_above_the_gaussian(sensitivity, sigma, batch, population):
    made = SampledGaussian(sensitivity=sensitivity, sigma=sigma, batch=batch, population=population)
    plain = Gaussian(sensitivity=sensitivity, sigma=sigma)
    for order in (2, 3, 200, 4096, 4097):
        assert 0 < made.renyi(order) <= plain.renyi(order)
    assert made.renyi(4097) == plain.renyi(4097)  # no more is claimed for orders beyond the sum
    assert made.pure() is None and made.gaussian() is None
    ask = Ask("gaussian", sensitivity, sigma, range(population), batch)
    meter = made.meter()
    assert not meter.spend(replace(ask, batch=None)) and not meter.spend(
        replace(ask, rows=range(batch))
    )
    assert meter.spend(ask) and not meter.spend(ask)


@pytest.mark.parametrize(("batch", "population"), [(3, 3), (4, 3), (0, 3), (1, 0)])
def test_a_batch_is_fewer_rows_than_all(batch, population):
    with pytest.raises(ValidationError):
        SampledGaussian(sensitivity=1, sigma=1, batch=batch, population=population)


def test_a_stored_plan_prices_the_same_for_ever():
    """To 40 digits, of which prices show 12 after the point."""
    with localcontext(prec=40):
        values = [
            str(Decimal(found.numerator) / found.denominator)
            for (sensitivity, sigma), (b, n) in product(((2, 3), (1, 40), (9, 4)), SHARES)
            for order in (2, 3, 4, 7, 22, 64, 200)
            for found in [
                SampledGaussian(sensitivity=sensitivity, sigma=sigma, batch=b, population=n).renyi(
                    order
                )
            ]
        ]
    digest = hashlib.sha256("\n".join(values).encode()).hexdigest()
    assert digest == "b45b4f3cbec8216d5530401343c22e0babe54bf4dbf09824040e2ae2fb9ad2bd"
