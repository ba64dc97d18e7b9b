"""The oracle of composition against closed forms, exact sums and dp_accounting: below each of them,
and by less than a hundredth of epsilon."""

import warnings
from math import comb, exp, expm1, inf, log, log1p, sqrt

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from scipy.special import log_ndtr, ndtr

from service.planning.conversion import epsilon_at_order
from service.planning.releases import (
    Disjoint,
    Exponential,
    Gaussian,
    Leaf,
    Prefixes,
    Pure,
    Recursive,
    Repeat,
    SampledGaussian,
    Sequence,
    Subsample,
)
from tests.composition import Pair, compose, worst
from tests.planning import cases
from tests.planning.strategies import releases

DELTAS = (1e-3, 1e-6, 1e-10, 1e-15)
FLOAT = 1 + 1e-9


def just_below(found, delta_of, delta):
    """Whether an epsilon is a lower bound of the one that belongs to delta, and within 1 % of it."""
    return delta_of(found / FLOAT) >= delta / FLOAT and delta_of(1.01 * found) <= delta


def of_gaussian(mu):
    """Balle and Wang 2018, Theorem 8."""

    def delta(epsilon):
        lost = exp(min(0.0, epsilon + log_ndtr(-mu / 2 - epsilon / mu)))
        return float(ndtr(mu / 2 - epsilon / mu)) - lost

    return delta


def of_responses(epsilon, n):
    """n randomised responses: k of them truthful with a loss of (2k - n) epsilon."""
    p = 1 / (1 + exp(-epsilon))
    terms = [(comb(n, k) * p**k * (1 - p) ** (n - k), (2 * k - n) * epsilon) for k in range(n + 1)]
    return lambda e: sum(mass * -expm1(e - loss) for mass, loss in terms if loss > e)


def of_drawn(z, share, place):
    """One drawn Gaussian: the best test is whether the output exceeds the point of this loss."""
    up, down = place * z, (place - 1) * z

    def above(x, shift):
        return (1 - share) * float(ndtr(-x)) + share * float(ndtr(shift - x))

    def loss(x):
        p, q = (log1p(share * expm1(min(600.0, shift * x - shift**2 / 2))) for shift in (up, down))
        return p - q

    def delta(epsilon):
        low, high = -40.0, 40.0
        for _ in range(100):
            middle = (low + high) / 2
            low, high = (middle, high) if loss(middle) < epsilon else (low, middle)
        return above(low, up) - exp(epsilon) * above(low, down)

    return delta


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize(("mu", "times"), [(0.01, 1), (0.1, 4), (0.3, 100), (1.0, 1), (1.0, 16)])
def test_gaussians_are_one_gaussian(mu, times, delta):
    found = compose([(Pair.gaussian(mu), times)]).epsilon(delta)
    assert just_below(found, of_gaussian(mu * sqrt(times)), delta)


@pytest.mark.parametrize("times", [1, 10, 1000, 10**5])
@pytest.mark.parametrize("delta", DELTAS)
def test_cells_composed_many_times_are_still_a_gaussian(times, delta):
    """Nearly all rows drawn: not merged to one, but composed as any drawn batch is."""
    share = 1 - 2**-45
    drawn = Pair("gaussian", 1 / sqrt(times), share=share, place=0.5)
    assert just_below(compose([(drawn, times)]).epsilon(delta), of_gaussian(1.0), delta)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize(("epsilon", "times"), [(1.0, 1), (1.0, 10), (0.1, 100), (0.01, 900)])
def test_randomised_responses_are_a_binomial(epsilon, times, delta):
    composed = compose([(Pair.randomised_response(epsilon), times)])
    exact = of_responses(epsilon, times)
    assert just_below(composed.epsilon(delta), exact, delta)
    for share in (0.1, 0.3):
        level = share * times * epsilon
        assert 0.9 * exact(level) <= composed.delta(level) <= exact(level) * FLOAT


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("place", [0.0, 0.5, 1.0])
@pytest.mark.parametrize(("z", "batch", "population"), [(4, 1, 1000), (1, 1, 10), (0.5, 3, 4)])
def test_a_drawn_gaussian_is_tested_best_by_a_threshold(z, batch, population, place, delta):
    exact = of_drawn(z, batch / population, place)
    found = compose([(Pair.drawn_gaussian(z, batch, population, place), 1)]).epsilon(delta)
    assert just_below(found, exact, delta) or (found == 0 and exact(0.0) <= delta)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0])
def test_one_laplace_release_has_its_closed_form(epsilon):
    one = compose([(Pair.laplace(epsilon), 1)])
    for level in (0.1 * epsilon, 0.5 * epsilon, 0.9 * epsilon):
        exact = -expm1((level - epsilon) / 2)
        assert 0.99 * exact <= one.delta(level) <= exact * FLOAT
    assert one.epsilon(0) == pytest.approx(epsilon)
    assert 0.99 * epsilon <= one.epsilon(1e-6) < epsilon


@pytest.mark.parametrize("range_", [0.1, 1.0, 5.0])
def test_one_choice_leaks_as_its_split_says_and_the_worst_of_them(range_):
    for split in (0.3, 0.5, 0.9):
        t = split * range_
        p = expm1(t - range_) / expm1(-range_)
        exact = p * -expm1(0.5 * t - t)
        assert compose([(Pair.exponential(range_, split), 1)]).delta(0.5 * t) == pytest.approx(
            exact, rel=1e-3
        )
    worst_of_all = expm1(-range_ / 4) ** 2 / -expm1(-range_)  # epsilon = range/2, t = 3/4 of it
    found = compose([(Pair.exponential(range_), 1)]).delta(range_ / 2)
    assert 0.9 * worst_of_all <= found <= worst_of_all * FLOAT


def pessimistic(make):
    """dp_accounting's upper bound; its lower one is no use beyond a few releases."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


@pytest.mark.parametrize(
    ("epsilon", "times", "step"), [(1.0, 10, 1e-4), (0.1, 100, 1e-4), (0.01, 1000, 1e-5)]
)
def test_laplace_releases_compose_as_dp_accounting_says(epsilon, times, step):
    theirs = pessimistic(
        lambda: pld.from_laplace_mechanism(
            1 / epsilon, value_discretization_interval=step
        ).self_compose(times)
    ).get_epsilon_for_delta(1e-6)
    ours = compose([(Pair.laplace(epsilon), times)]).epsilon(1e-6)
    assert 0.99 * theirs <= ours <= theirs


@pytest.mark.parametrize(
    ("z", "batch", "population", "times", "step"),
    [
        (1.0, 1, 100, 1000, 1e-4),
        (1.0, 1, 10, 100, 1e-3),
        (4.0, 1, 1000, 10, 1e-3),
        (2.0, 1, 2, 3, 1e-3),
    ],
)
def test_drawn_gaussians_compose_as_dp_accounting_says(z, batch, population, times, step):
    """A Poisson sample against the same without the record is our pair where the others add -C."""
    theirs = pessimistic(
        lambda: pld.from_gaussian_mechanism(
            1 / z, sampling_prob=batch / population, value_discretization_interval=step
        ).self_compose(times)
    ).get_epsilon_for_delta(1e-6)
    ours = compose([(Pair.drawn_gaussian(z, batch, population), times)]).epsilon(1e-6)
    assert 0.985 * theirs <= ours <= theirs


def test_different_mechanisms_compose_as_dp_accounting_says():
    made = [
        pessimistic(lambda: pld.from_gaussian_mechanism(2.0)),
        pessimistic(lambda: pld.from_gaussian_mechanism(1.0, sampling_prob=0.05)).self_compose(20),
        pessimistic(lambda: pld.from_laplace_mechanism(5.0)).self_compose(3),
        pessimistic(lambda: pld.from_randomized_response(0.9, 2)),
    ]
    theirs = made[0].compose(made[1]).compose(made[2]).compose(made[3])
    ours = compose(
        [
            (Pair.gaussian(0.5), 1),
            (Pair.drawn_gaussian(1.0, 1, 20), 20),
            (Pair.laplace(0.2), 3),
            (Pair.randomised_response(log(0.55 / 0.45)), 1),
        ]
    )
    for delta in (1e-3, 1e-6, 1e-9):
        bound = theirs.get_epsilon_for_delta(delta)
        assert 0.985 * bound <= ours.epsilon(delta) <= bound


def test_what_is_more_than_nothing_adds():
    jobs = [(Pair.gaussian(0.1), 3), (Pair.laplace(0.1), 2), (Pair.exponential(0.3), 4)]
    found = [compose(jobs[:k]).epsilon(1e-6) for k in range(4)]
    assert found[0] == 0.0 and found == sorted(found)
    assert compose(jobs).epsilon(0) == inf and compose(jobs).delta(100.0) == 0.0


WALKS = [
    (Gaussian(sensitivity=1, sigma=2), [(Pair.gaussian(0.5), 1)]),
    (Pure(sensitivity=1, scale=2), [(Pair.laplace(0.5), 1)]),
    (Exponential(sensitivity=1, scale=2), [(Pair.exponential(0.5), 1)]),
    (
        SampledGaussian(sensitivity=4, sigma=2, batch=1, population=8),
        [(Pair.drawn_gaussian(2.0, 1, 8), 1)],
    ),
    (
        Sequence(parts=(Repeat(release=Pure(sensitivity=1, scale=2), times=3),) * 2),
        [(Pair.laplace(0.5), 6)],
    ),
    (
        Disjoint(parts=(Gaussian(sensitivity=1, sigma=9), Gaussian(sensitivity=1, sigma=2))),
        [(Pair.gaussian(0.5), 1)],
    ),
    (
        Prefixes(
            noise="gaussian",
            scale=8,
            leaves=(Leaf(sensitivity=2, squares=4, absolutes=4),),
            vectors=4,
        ),
        [(Pair.gaussian(0.5), 1)],
    ),
    (
        Prefixes(
            noise="laplace",
            scale=8,
            leaves=(Leaf(sensitivity=2, squares=3, absolutes=3),),
            vectors=4,
        ),
        [(Pair.laplace(0.25), 3)],
    ),
    (
        Subsample(release=Pure(sensitivity=1, scale=2), batch=1, population=4),
        [(Pair.laplace(0.5).drawn(1, 4), 1)],
    ),
    (
        Subsample(
            release=Repeat(release=Gaussian(sensitivity=1, sigma=2), times=4), batch=1, population=4
        ),
        [(Pair.drawn_gaussian(1.0, 1, 4), 1)],
    ),
    (
        Recursive(sensitivities=(2, 1), kept=(0, 2**31), scales=(4, 4), slack=1),
        [(Pair.exponential(0.5), 1), (Pair.exponential(0.25), 1)],
    ),
]


@pytest.mark.parametrize(("release", "pairs"), WALKS, ids=lambda value: getattr(value, "kind", ""))
def test_a_release_is_as_bad_as_its_pairs(release, pairs):
    assert worst(release) == pairs
    assert worst(release, order=2) == pairs


@given(releases)
@settings(max_examples=100, derandomize=True, deadline=None)
def test_no_release_leaks_more_than_its_price(release):
    """Whatever is built of mechanisms, at any order; and its pure epsilon, where it has one."""
    composed = compose(worst(release))
    found = composed.epsilon(1e-6)
    claims = [epsilon_at_order(release.renyi(order), 1e-6, order) for order in (2, 4, 8, 16, 64)]
    assert found <= min(claims)
    pure = release.pure()
    assert pure is None or max(found, composed.epsilon(0)) <= pure * FLOAT


@pytest.mark.parametrize(
    ("ratio", "rows", "others_against", "others_nothing"),
    [(2.583963, 1000, 3.79, 0.073), (1.588357, 300, 0.96, 0.046)],
)
def test_one_drawn_row_leaks_less_than_its_job_asked_for(
    ratio, rows, others_against, others_nothing
):
    """And nothing to speak of, unless all the others point the other way. These were planned for
    epsilons 8 and 4, and their costs at a low order were next to nothing."""
    sensitivity = round(ratio * 2**26)
    release = SampledGaussian(sensitivity=sensitivity, sigma=2**26, batch=1, population=rows)
    [(pair, times)] = worst(release)
    assert times == 1 and pair.share == 1 / rows
    assert compose([(pair, 1)]).epsilon(1e-6) == pytest.approx(others_against, rel=0.005)
    alone = Pair.drawn_gaussian(pair.size, 1, rows, place=0.5)
    assert compose([(alone, 1)]).epsilon(1e-6) == pytest.approx(others_nothing, rel=0.02)


@pytest.mark.parametrize(
    ("name", "storage"), [(name, each) for name, row in cases.ROWS.items() for each in row.storages]
)
def test_no_plan_leaks_more_than_it_promises(name, storage):
    for about, epsilon in ((cases.facts(storage, epsilon=8.0), 2.0), (cases.facts(storage), 0.3)):
        made = cases.planned(name, about, epsilon)
        found = compose(worst(made.release)).epsilon(made.guarantee.delta)
        assert 0 < found <= made.guarantee.epsilon_alone
