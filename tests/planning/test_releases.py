"""Every release prices itself at an upper bound: against exact divergences and dp_accounting."""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from importlib.metadata import version
from itertools import combinations
from math import comb, exp, log

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.privacy_accountant import NeighboringRelation
from dp_accounting.rdp import RdpAccountant
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf
from pydantic import TypeAdapter, ValidationError
from scipy.special import log_ndtr, logsumexp

from service.planning.releases import (
    Disjoint,
    Exponential,
    Gaussian,
    Pure,
    Recursive,
    Release,
    Repeat,
    Sequence,
    Subsample,
)

ORDERS = (2, 3, 5, 8, 16, 32, 64)
ANY = TypeAdapter(Release)
FLOAT = 1 + 1e-9  # what a float64 oracle may err by


def divergence(p: np.ndarray, q: np.ndarray, order: int) -> float:
    """The Renyi divergence of two positive measures on the same points, given as logarithms."""
    return float(logsumexp(order * p - (order - 1) * q)) / (order - 1)


def both(p: np.ndarray, q: np.ndarray, order: int) -> float:
    return max(divergence(p, q, order), divergence(q, p, order))


def accountant(event: dp_event.DpEvent) -> dict[int, float]:
    """dp_accounting's Renyi divergences under replacement of one record."""
    made = RdpAccountant(ORDERS, NeighboringRelation.REPLACE_ONE).compose(event)
    return dict(zip(ORDERS, made._rdp, strict=True))


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


# --- composition ----------------------------------------------------------------------------------


def test_a_composition_costs_what_dp_accounting_says():
    parts = (Gaussian(sensitivity=2, sigma=9), Gaussian(sensitivity=1, sigma=3))
    release = Sequence(parts=(Repeat(release=parts[0], times=40), parts[1]))
    theirs = accountant(
        dp_event.ComposedDpEvent(
            [
                dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(4.5), 40),
                dp_event.GaussianDpEvent(3),
            ]
        )
    )
    for order in ORDERS:
        assert float(release.renyi(order)) == pytest.approx(theirs[order], rel=1e-12)
    assert release.gaussian() == 40 * Fraction(4, 81) + Fraction(1, 9)


def test_composed_randomised_responses_cost_no_more_than_their_sum():
    p = np.array([0.0, -0.5]) - np.log1p(np.exp(-0.5))
    joint_p = (p[:, None, None] + p[:, None] + p).ravel()
    joint_q = (p[::-1][:, None, None] + p[::-1][:, None] + p[::-1]).ravel()
    thrice = Repeat(release=Pure(sensitivity=1, scale=2), times=3)
    for order in ORDERS:
        assert both(joint_p, joint_q, order) <= thrice.renyi(order) * FLOAT
    assert thrice.pure() == Fraction(3, 2)


integers = st.integers(1, 50)
mechanisms = st.one_of(
    st.builds(Gaussian, sensitivity=integers, sigma=integers),
    st.builds(Pure, sensitivity=integers, scale=integers),
    st.builds(Exponential, sensitivity=integers, scale=integers),
)
choices = st.lists(st.tuples(integers, st.integers(0, 2**32), integers), min_size=1, max_size=4)
mechanisms |= st.builds(
    lambda rows, slack: Recursive(**recursive(rows), slack=slack), choices, st.integers(0, 9)
)
releases = st.recursive(
    mechanisms,
    lambda inner: st.one_of(
        st.builds(Sequence, parts=st.lists(inner, min_size=1, max_size=3).map(tuple)),
        st.builds(Repeat, release=inner, times=integers),
        st.builds(
            Disjoint, parts=st.lists(inner, min_size=1, max_size=3).map(tuple), copies=integers
        ),
        st.builds(
            lambda release, batch, others: Subsample(
                release=release, batch=batch, population=batch + others
            ),
            inner,
            integers,
            st.integers(0, 500),
        ),
    ),
    max_leaves=4,
)
orders = st.sampled_from((2, 3, 4, 7, 12))


def recursive(rows):
    """The fields of a recursive release from (sensitivity, kept, scale) per choice."""
    names = ("sensitivities", "kept", "scales")
    return dict(zip(names, (tuple(column) for column in zip(*rows, strict=True)), strict=True))


def prices(release, order):
    return release.renyi(order), release.pure(), release.gaussian()


@given(releases, st.integers(1, 5), orders)
def test_repeating_is_a_sequence_of_the_same(release, times, order):
    repeat, sequence = Repeat(release=release, times=times), Sequence(parts=(release,) * times)
    assert prices(repeat, order) == prices(sequence, order)


@given(releases, orders)
def test_a_sequence_or_group_of_one_is_the_one(release, order):
    for wrapped in (Sequence(parts=(release,)), Disjoint(parts=(release,), copies=9)):
        assert prices(wrapped, order) == prices(release, order)


@given(st.lists(releases, min_size=2, max_size=4), orders)
def test_a_sequence_adds_and_disjoint_rows_cost_the_costliest(parts, order):
    forward, backward = Sequence(parts=tuple(parts)), Sequence(parts=tuple(parts[::-1]))
    apart = Disjoint(parts=tuple(parts))
    costs = [part.renyi(order) for part in parts]
    assert forward.renyi(order) == backward.renyi(order) == sum(costs)
    assert apart.renyi(order) == max(costs)
    pures = [part.pure() for part in parts]
    assert (forward.pure() is None) == (apart.pure() is None) == (None in pures)
    if None not in pures:
        assert forward.pure() == sum(pures) and apart.pure() == max(pures)


@given(releases, orders)
def test_no_price_is_free_and_none_exceeds_the_pure_one(release, order):
    renyi, pure, gaussian = prices(release, order)
    assert isinstance(renyi, Fraction) and renyi > 0
    assert pure is None or 0 < renyi <= pure
    assert gaussian is None or (gaussian > 0 and renyi == order * gaussian / 2)


@given(releases)
def test_a_release_survives_json(release):
    assert ANY.validate_json(ANY.dump_json(release)) == release
    assert ANY.validate_python(ANY.dump_python(release, mode="json")) == release


# --- choices by a running sum ----------------------------------------------------------------------


@given(choices, st.integers(0, 50), orders)
def test_a_recursive_release_costs_the_choices_of_its_costliest_batch(rows, slack, order):
    """Against the sums of its docstring, as fractions: equal but for roundings upwards."""
    release = Recursive(**recursive(rows), slack=slack)
    linear, squares = [], []
    for k in range(len(rows)):
        share, ranges = Fraction(1), []
        for t in range(k, len(rows)):
            share *= Fraction(rows[t][1], 2**32) if t > k else 1
            ranges.append((rows[k][0] * share + slack) / rows[t][2])
        linear.append(sum(ranges))
        squares.append(sum(e**2 for e in ranges))
    least = Fraction(1, 2**200)
    assert max(linear) <= release.pure() <= max(linear) + least
    exact = min(order * max(squares) / 8, max(linear))
    assert exact <= release.renyi(order) <= exact + order * least
    assert release.gaussian() is None


@given(integers, integers, st.integers(1, 5), orders)
def test_what_is_kept_whole_repeats_a_choice_and_what_is_dropped_is_apart(s, scale, times, order):
    choice = Exponential(sensitivity=s, scale=scale)
    rows = [(s, 2**32, scale)] * times
    whole = Recursive(**recursive(rows), slack=0)
    apart = Recursive(**recursive([(s, 0, scale)] * times), slack=0)
    close = Fraction(1, 2**200)
    assert abs(whole.pure() - Repeat(release=choice, times=times).pure()) < close
    assert abs(whole.renyi(order) - times * choice.renyi(order)) < order * close
    assert abs(apart.renyi(order) - choice.renyi(order)) < order * close


def test_composed_choices_by_a_running_sum_cost_no_more_than_their_price():
    """The exact joint distribution of three choices whose batches depend on earlier choices."""
    rng = np.random.default_rng(11)
    tightest, T, J = 0.0, 3, 3
    for _ in range(40):
        scales, kept = rng.integers(5, 40, T), [0, 2**31, 2**30]
        k, moved = int(rng.integers(T)), 0
        tables = rng.integers(
            0, 30, (T, J**T, J)
        )  # batch t's part of the scores, by what was chosen
        instead = tables.copy()
        instead[k] = tables[k] + rng.integers(-6, 7, (J**T, J))
        logs = []
        for world in (tables, instead):
            joint = np.zeros((J,) * T)
            for path in np.ndindex(*joint.shape):
                scores = np.zeros(J)
                for t in range(T):
                    seen = int(sum(c * J**i for i, c in enumerate(path[:t])))
                    scores = scores * kept[t] / 2**32 + world[t][seen]
                    x = -scores / scales[t]
                    joint[path] += x[path[t]] - logsumexp(x)
            logs.append(joint.ravel())
        moved = max(int(np.ptp(row)) for row in instead[k] - tables[k])
        sensitivities = [1] * T
        sensitivities[k] = max(1, moved)
        rows = list(zip(sensitivities, kept, (int(s) for s in scales), strict=True))
        priced = Recursive(**recursive(rows), slack=0)
        assert np.abs(logs[0] - logs[1]).max() <= priced.pure() * FLOAT
        for order in ORDERS:
            assert both(*logs, order) <= priced.renyi(order) * FLOAT
            tightest = max(tightest, both(*logs, order) / float(priced.renyi(order)))
    assert tightest > 0.3


# --- sampling without replacement -----------------------------------------------------------------


def sampled_sum(values: tuple[int, ...], batch: int, sigma: int, x: np.ndarray) -> np.ndarray:
    """log density of (the sum over a uniform batch) + N(0, sigma^2), up to the grid's constant."""
    sums = Counter(sum(chosen) for chosen in combinations(values, batch))
    logs = [np.log(times) - (x - s) ** 2 / (2 * sigma**2) for s, times in sums.items()]
    density = logsumexp(np.array(logs), axis=0)
    return density - logsumexp(density)


def sampled_divergences(
    others: tuple[int, ...], batch: int, record: int, instead: int, sigma: int
) -> Iterator[tuple[int, float]]:
    """(order, the larger of both directions) between a record and what replaces it."""
    for order in (2, 3, 5, 8, 16):
        reach = 14 * sigma + 4 * batch + 4 * order
        x = np.arange(-reach, reach, sigma / 200)
        p = sampled_sum((*others, record), batch, sigma, x)
        q = sampled_sum((*others, instead), batch, sigma, x)
        yield order, both(p, q, order)


POPULATIONS = [  # the others, then the record and what replaces it
    ((0,) * 3, 1, 2, -2),
    ((0,) * 9, 1, 2, -2),
    ((2,) * 9, 1, 2, -2),
    ((-2,) * 9, 3, 2, -2),
    ((2, -2, 0, 1, 2, -1), 2, -2, 2),
    ((0,) * 19, 2, 2, -2),
]


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


# --- what no release can be -----------------------------------------------------------------------

NO_SIZE = [0, -1, 1.5, 2.0, float("nan"), float("inf"), -float("inf"), "3", None, True, [2], 0.0]
SHAPES = [
    (Gaussian, "sensitivity", {"sigma": 4}),
    (Gaussian, "sigma", {"sensitivity": 4}),
    (Pure, "sensitivity", {"scale": 4}),
    (Pure, "scale", {"sensitivity": 4}),
    (Exponential, "sensitivity", {"scale": 4}),
    (Exponential, "scale", {"sensitivity": 4}),
    (Repeat, "times", {"release": Pure(sensitivity=1, scale=1)}),
    (Disjoint, "copies", {"parts": (Pure(sensitivity=1, scale=1),)}),
    (Subsample, "batch", {"release": Pure(sensitivity=1, scale=1), "population": 9}),
    (Subsample, "population", {"release": Pure(sensitivity=1, scale=1), "batch": 1}),
]


@pytest.mark.parametrize("size", NO_SIZE, ids=repr)
@pytest.mark.parametrize(("kind", "field", "rest"), SHAPES, ids=lambda v: getattr(v, "__name__", v))
def test_a_size_is_a_positive_integer_or_no_release(kind, field, rest, size):
    with pytest.raises(ValidationError):
        kind(**rest, **{field: size})


@pytest.mark.parametrize(
    "size", ["NaN", "Infinity", "0", "-3", "1.0", "1e3", '"2"', "true", "null"]
)
def test_json_smuggles_no_size_in(size):
    with pytest.raises(ValidationError):
        ANY.validate_json(f'{{"kind": "gaussian", "sensitivity": {size}, "sigma": 5}}')


@pytest.mark.parametrize(
    "text",
    [
        '{"kind": "sequence", "parts": []}',
        '{"kind": "disjoint", "parts": []}',
        '{"kind": "gaussian", "sensitivity": 1}',
        '{"kind": "gaussian", "sensitivity": 1, "sigma": 1, "discount": 2}',
        '{"kind": "free"}',
        '{"kind": "recursive", "sensitivities": [], "kept": [], "scales": [], "slack": 0}',
        '{"kind": "recursive", "sensitivities": [1, 2], "kept": [0], "scales": [1, 1], "slack": 0}',
        '{"kind": "recursive", "sensitivities": [1], "kept": [4294967297], "scales": [1], "slack": 0}',
        '{"kind": "recursive", "sensitivities": [1.0], "kept": [0], "scales": [1], "slack": 0}',
        '{"kind": "recursive", "sensitivities": [1], "kept": [-1], "scales": [1], "slack": 0}',
        '{"kind": "recursive", "sensitivities": [1], "kept": [0], "scales": [true], "slack": 0}',
        '{"kind": "recursive", "sensitivities": [1], "kept": [0], "scales": [1], "slack": -1}',
        '{"sensitivity": 1, "sigma": 1}',
        '{"kind": "subsample", "batch": 3, "population": 2,'
        ' "release": {"kind": "pure", "sensitivity": 1, "scale": 1}}',
    ],
)
def test_an_incomplete_or_unknown_release_has_no_price(text):
    with pytest.raises(ValidationError):
        ANY.validate_json(text)


@pytest.mark.parametrize(("kind", "field", "rest"), SHAPES, ids=lambda v: getattr(v, "__name__", v))
def test_a_release_cannot_be_changed(kind, field, rest):
    release = kind(**rest, **{field: 3})
    with pytest.raises(ValidationError):
        setattr(release, field, 1)
