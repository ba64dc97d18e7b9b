"""Laplace noise, choices and randomised response: priced at exact divergences, never below them."""

from fractions import Fraction

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.special import logsumexp

from service.planning.divergences import bounded_range, laplace, randomised_response
from service.planning.releases import Choice, Exponential, Laplace, LaplacePrefixes, Leaf, Pure
from tests.planning.divergences import FLOAT, ORDERS, both

EPSILONS = [
    Fraction(n, d) for n, d in ((1, 10**9), (1, 1000), (1, 40), (1, 3), (1, 1), (7, 2), (60, 1))
]
ALL_ORDERS = (2, 3, 7, 22, 64, 4096, 10**6)


@pytest.fixture(autouse=True)
def _precision():
    with mp.workdps(120):
        yield


def exact_laplace(e: mpf, a: int) -> mpf:
    """By integrals of p^a q^(1-a) over the three pieces on which it is an exponential."""
    left = mp.exp((a - 1) * e) / 2  # both densities fall alike, the loss is e
    right = mp.exp(-a * e) / 2
    rate = 2 * a - 1
    between = mp.exp((a - 1) * e) * (1 - mp.exp(-rate * e)) / (2 * rate)
    return mp.log(left + between + right) / (a - 1)


def two_points(p: mpf, q: mpf, a: int) -> mpf:
    return mp.log(p**a * q ** (1 - a) + (1 - p) ** a * (1 - q) ** (1 - a)) / (a - 1)


def worst_range(e: mpf, a: int) -> mpf:
    """The largest divergence of two values of the loss, e apart, by golden sections over the upper."""

    def at(t: mpf) -> mpf:
        q = (mp.exp(-t) - mp.exp(-e)) / (1 - mp.exp(-e))
        return two_points(q * mp.exp(t), q, a)

    low, high, ratio = mpf(0), e, (mp.sqrt(5) - 1) / 2
    for _ in range(120):
        x, y = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, y) if at(x) > at(y) else (x, high)
    return at(low)


@pytest.mark.parametrize("order", ALL_ORDERS)
@pytest.mark.parametrize("epsilon", EPSILONS, ids=str)
def test_prices_are_the_exact_divergences_rounded_up(epsilon, order):
    e = mpf(epsilon.numerator) / epsilon.denominator
    p = 1 / (1 + mp.exp(-e))
    for priced, truth in (
        (laplace(epsilon, order), exact_laplace(e, order)),
        (randomised_response(epsilon, order), two_points(p, 1 - p, order)),
        (bounded_range(epsilon, order), worst_range(e, order)),
    ):
        value = mpf(priced.numerator) / priced.denominator
        assert truth * (1 - mpf(10) ** -30) <= value <= truth * (1 + mpf(10) ** -12)


@pytest.mark.parametrize("order", ALL_ORDERS)
@pytest.mark.parametrize("exponent", [-300, -30, -13, -12, -11, 6, 30, 300])
def test_prices_hold_for_any_epsilon(exponent, order):
    """Where decimals cannot say, the first term or the epsilon itself does."""
    epsilon = Fraction(10) ** exponent
    for price, square in ((laplace, 2), (randomised_response, 2), (bounded_range, 8)):
        simple = min(order * epsilon**2 / square, epsilon)
        assert 0.7 * simple <= price(epsilon, order) <= simple


@pytest.mark.parametrize("shifts", [(5,), (1, 4), (2, 2, 1), (1, 1, 1, 1, 1)])
@pytest.mark.parametrize("scale", [1, 4, 30])
def test_a_rounded_laplace_vector_costs_no_more_than_its_price_and_one_coordinate_nearly_that(
    shifts, scale
):
    """By sums over the integers; divergences of coordinates add."""
    k = np.arange(-60 * scale - 5, 60 * scale + 6)

    def bins(mean):
        far = np.abs(k - mean).astype(float)
        tail = np.log(0.5) - (far - 0.5) / scale + np.log1p(-np.exp(-1 / scale))
        return np.where(far == 0, np.log1p(-np.exp(-0.5 / scale)), tail)

    priced = Laplace(sensitivity=sum(shifts), scale=scale)
    for order in ORDERS:
        exact = sum(both(bins(shift), bins(0), order) for shift in shifts)
        assert exact <= priced.renyi(order) * FLOAT
        if shifts == (5,) and scale == 30:
            assert exact >= 0.99 * priced.renyi(order)


@pytest.mark.parametrize("shifts", [(3.0,), (1.0, 2.0), (0.5, 1.5, 1.0)])
def test_a_laplace_vector_costs_no_more_than_its_price_on_a_line(shifts):
    x = np.arange(-60.0, 60.0, 1e-3)
    for order in ORDERS:
        exact = 0.0
        for shift in shifts:
            p, q = -np.abs(x - shift), -np.abs(x)
            exact += both(p - logsumexp(p), q - logsumexp(q), order)
        price = float(laplace(Fraction(3), order))
        assert exact <= price * (1 + 1e-6)
        assert len(shifts) > 1 or exact >= 0.99 * price


def test_random_choices_cost_no_more_than_their_price_and_the_worst_nearly_that():
    rng = np.random.default_rng(5)
    tightest = 0.0
    for _ in range(400):
        scale = int(rng.integers(1, 30))
        ours, neighbours = rng.integers(0, 40, size=(2, rng.integers(2, 7)))
        if not np.ptp(ours - neighbours):
            continue
        priced = Choice(sensitivity=int(np.ptp(ours - neighbours)), scale=scale)
        p, q = (-s / scale - logsumexp(-s / scale) for s in (ours, neighbours))
        for order in ORDERS:
            exact = both(p, q, order)
            assert exact <= priced.renyi(order) * FLOAT
            tightest = max(tightest, exact / float(priced.renyi(order)))
    assert tightest > 0.99


@pytest.mark.parametrize("order", [2, 5, 22, 200])
@pytest.mark.parametrize(("sensitivity", "scale"), [(1, 100), (1, 4), (1, 1), (6, 1)])
def test_some_pair_of_scores_reaches_the_price_of_a_choice(sensitivity, scale, order):
    """Of two candidates whose scores differ by s - sensitivity and by s, over all s."""
    priced, e = (
        float(Choice(sensitivity=sensitivity, scale=scale).renyi(order)),
        sensitivity / scale,
    )
    offsets = np.linspace(-40 - e, 40, 40001)
    p, q = (np.stack([np.zeros_like(offsets), -(offsets + e * own)]) for own in (0, 1))
    p, q = p - logsumexp(p, axis=0), q - logsumexp(q, axis=0)
    reached = logsumexp(order * p + (1 - order) * q, axis=0).max() / (order - 1)
    assert 0.99 * priced <= reached <= priced * (1 + 1e-6)


def test_prefix_sums_with_laplace_noise_cost_as_one_laplace_release():
    leaves = (
        Leaf(sensitivity=3, squares=9, absolutes=5),
        Leaf(sensitivity=4, squares=5, absolutes=3),
    )
    made = LaplacePrefixes(scale=40, leaves=leaves, vectors=4)
    for order in ORDERS:
        one = Laplace(sensitivity=15, scale=40)
        assert made.renyi(order) == one.renyi(order)
        assert (made.pure(), made.mu_squared()) == (one.pure(), one.mu_squared())


@pytest.mark.parametrize(
    ("before", "now", "saved"), [(Pure, Laplace, 1.615), (Exponential, Choice, 1.622)]
)
def test_exact_prices_are_never_above_what_was_charged_before(before, now, saved):
    """And how far below, at the most: at e = 1 and order 2, and where a e is about 8."""
    ratios = []
    for order in (2, 3, 5, 8, 12, 22, 50, 100, 400, 2000):
        for tenths in range(-40, 30):
            scale = 10**9
            sizes = {"sensitivity": max(1, int(scale * 10 ** (tenths / 10))), "scale": scale}
            old, new = before(**sizes).renyi(order), now(**sizes).renyi(order)
            assert new <= old
            ratios.append(float(old / new))
    assert max(ratios) == pytest.approx(saved, abs=0.001)
