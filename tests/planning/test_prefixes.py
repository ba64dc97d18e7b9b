"""Prefix sums: what a sum costs is what its column weighs, and what the paper prints is not that."""

from fractions import Fraction
from math import log2

import numpy as np
import pytest

from service.errors import PlanRefused
from service.planning.lattice import largest_sensitivity, target
from service.planning.price import price_units
from service.planning.problem import problem
from service.planning.releases import Gaussian, Leaf, Prefixes, Pure
from service.planning.shared.prefixes import (
    PRECISION,
    burden,
    calibrate_prefixes,
    columns,
    error,
    intervals,
    root,
    vectors,
    weights,
)
from tests.planning.cases import facts, spec
from workers.prefixes import prefixes

LENGTHS = [1, 2, 3, 4, 5, 7, 8, 13, 16, 31, 32, 33]
mechanisms = pytest.mark.parametrize("mechanism", ["root", "tree"])
lengths = pytest.mark.parametrize("length", LENGTHS)


def matrix(mechanism: str, length: int) -> np.ndarray:
    """K, found by running the mechanism on unit sums; rows in the order of their release."""
    sums = prefixes(mechanism, length, length)
    rows = []
    for time in range(length):
        due = [row for _, row in sums.due(np.eye(length, dtype=np.int64)[time])]
        rows += [(time, row) for row in due]
        sums.estimate([np.zeros(length)] * len(due))
    for time, row in rows:
        assert not row[time + 1 :].any()  # nothing of a later time
    return np.array([row for _, row in rows])


@mechanisms
@lengths
def test_a_sum_weighs_what_it_is_priced_for(mechanism, length):
    K = matrix(mechanism, length)
    priced = columns(mechanism, length)
    assert len(K) == vectors(mechanism, length)
    squares, absolutes = (K**2).sum(axis=0), np.abs(K).sum(axis=0)
    assert (squares[0], absolutes[0]) == (priced[0].squares, priced[0].absolutes)
    if length > 1:
        assert (squares[1:].max(), absolutes[1:].max()) == (priced[1].squares, priced[1].absolutes)


@mechanisms
@lengths
def test_without_noise_every_prefix_is_exact(mechanism, length):
    sums = prefixes(mechanism, length, 2)
    x = np.random.default_rng(length).integers(-(2**30), 2**30, (length, 2))
    for time in range(length):
        due = [row for _, row in sums.due(x[time])]
        found = sums.estimate([row.astype(np.float64) for row in due])
        assert np.allclose(found, x[: time + 1].sum(axis=0), rtol=1e-9, atol=1e-3)


@mechanisms
@pytest.mark.parametrize("length", [1, 3, 8, 33])
def test_the_error_is_that_of_the_noise(mechanism, length):
    """Unit vectors of noise, one per row of K: their squared effects are the variance."""
    total = np.zeros(length)
    count = vectors(mechanism, length)
    for noisy in range(count):
        sums, seen = prefixes(mechanism, length, 1), 0
        for time in range(length):
            due = [row for _, row in sums.due(np.zeros(1, dtype=np.int64))]
            rows = [np.array([1.0 if seen + i == noisy else 0.0]) for i in range(len(due))]
            seen += len(due)
            total[time] += sums.estimate(rows)[0] ** 2
    assert error(mechanism, length) == pytest.approx(total.mean())


def test_roots_are_the_nearest_integers_and_square_to_all_ones():
    exact, value = [], Fraction(1)
    for i in range(200):
        value = value * (2 * i - 1) / (2 * i) if i else value
        exact.append(value * 2**PRECISION)
    assert all(abs(k - e) <= Fraction(1, 2) for k, e in zip(root(200), exact, strict=True))
    series = np.convolve(weights(200), np.array(root(200), dtype=float))[:200]
    assert np.allclose(series, 1.0)


def test_the_root_beats_the_tree_in_squares_and_the_tree_wins_in_absolute_values():
    for power in range(2, 13):
        assert burden("root", "l2", 2**power) < burden("tree", "l2", 2**power)
    assert burden("tree", "l1", 4096) < burden("root", "l1", 4096) / 2


# --- the price


def test_the_costliest_leaf_is_the_price():
    leaves = (
        Leaf(sensitivity=3, squares=5, absolutes=2),
        Leaf(sensitivity=2, squares=9, absolutes=4),
    )
    gaussian = Prefixes(noise="gaussian", scale=7, leaves=leaves, vectors=4)
    assert gaussian.gaussian() == Fraction(45, 49) and gaussian.pure() is None
    assert gaussian.renyi(6) == 6 * Fraction(45, 98)
    laplace = Prefixes(noise="laplace", scale=7, leaves=leaves, vectors=4)
    assert laplace.pure() == Fraction(8, 7) and laplace.gaussian() is None
    assert laplace.renyi(2) == min(2 * Fraction(8, 7) ** 2 / 2, Fraction(8, 7))
    assert gaussian.vectors == laplace.vectors == 4


def test_a_single_time_costs_one_release():
    one = Leaf(sensitivity=6, squares=1, absolutes=1)
    for order in (2, 9):
        gaussian = Prefixes(noise="gaussian", scale=11, leaves=(one,), vectors=1)
        assert gaussian.renyi(order) == Gaussian(sensitivity=6, sigma=11).renyi(order)
        laplace = Prefixes(noise="laplace", scale=11, leaves=(one,), vectors=1)
        assert laplace.renyi(order) == Pure(sensitivity=6, scale=11).renyi(order)


@pytest.mark.parametrize("storage", ["fixed", "float64"])
@pytest.mark.parametrize("delta", [1e-6, 0.0])
@mechanisms
@pytest.mark.parametrize("length", [1, 2, 32, 1000])
@pytest.mark.parametrize("ratio", [0.2, 1.0, 30.0])
def test_a_period_spends_what_was_asked_and_no_more(storage, delta, mechanism, length, ratio):
    job = spec("gradient-descent", 1.0, parameters={"clip": 1.0})
    about = facts(storage, 10**5, 20, delta=delta)
    goal = target(job, about)
    made = calibrate_prefixes(
        goal, about, problem(job, about), (1.0, ratio), (300, 20), mechanism, length
    )
    asked = goal.units
    assert 0.999 * asked <= price_units(made.release, about.account) <= asked
    assert made.release.vectors == vectors(mechanism, length)
    # one unit of a mean, whichever batch it came from
    assert made.first.step / 300 == pytest.approx(made.later.step / 20)
    assert made.later.clip <= made.later.step * made.later.contribution_units * (1 + 1e-9)
    assert about.rows * made.first.contribution_units * 2**PRECISION < 2**62


def test_too_little_privacy_is_refused_with_advice():
    job, about = spec("gradient-descent", 1e-4), facts(rows=2**30)
    with pytest.raises(PlanRefused, match="ask a larger epsilon"):
        calibrate_prefixes(
            target(job, about), about, problem(job, about), (1.0, 1e-9), (1, 2**20), "root", 4096
        )


# --- what is printed


def printed_nodes(length: int) -> set[tuple[int, int]]:
    """KLT algorithm 1, line 2."""
    found = set()
    for level in range(1, int(log2(length)) + 1):
        size = 2 ** (level - 1)
        found |= {(j * size + 1, (j + 1) * size) for j in range(length // size)}
    return found


def printed_node(t: int, length: int) -> list[tuple[int, int]]:
    """KLT algorithm 1, function NODE."""
    top = int(np.ceil(np.log2(length)))
    chosen, k = [], 0
    for i in range(1, top + 1):
        if k >= t:
            break
        further = k + 2 ** (top - i)
        if further <= t:
            chosen.append((k + 1, further))
            k = further
    return chosen


def test_as_printed_the_last_of_a_period_has_no_noise():
    length = 8
    assert printed_node(length % length, length) == []  # TREE(t mod N) at t = N
    sums = prefixes("tree", length, 1)
    for _ in range(length):  # here it has the noise of the whole interval
        due = [row for _, row in sums.due(np.zeros(1, dtype=np.int64))]
        found = sums.estimate([np.ones(1)] * len(due))
    assert found[0] == 1.0


@pytest.mark.parametrize("length", [2, 4, 8, 16, 64])
def test_as_printed_powers_of_two_miss_their_last_terms(length):
    covered = sum(last - first + 1 for first, last in printed_node(length, length))
    assert covered == length - 1
    assert len(intervals(length)) == int(log2(length)) + 1  # here the whole of it is an interval


def test_as_printed_some_nodes_do_not_exist():
    assert any(
        node not in printed_nodes(length)
        for length in (5, 6, 7, 11)
        for t in range(1, length + 1)
        for node in printed_node(t, length)
    )


def test_as_printed_the_first_leaf_moves_twice_as_far_as_is_charged():
    """Lemma 6.3 has L/B1 for the mean of B1 gradients; one exchange moves it by 2 L/B1."""
    L, B1 = 1.0, 4
    there, here = np.full(B1, L), np.full(B1, L)
    here[0] = -L
    assert abs(there.mean() - here.mean()) == 2 * L / B1 > L / B1
    job, about = spec("gradient-descent", 1.0), facts(rows=1000)
    goal = target(job, about)
    made = calibrate_prefixes(goal, about, problem(job, about), (L, L), (B1, B1), "tree", 1)
    assert made.release.leaves[0].sensitivity == 2 * made.first.contribution_units
    assert 2 * made.first.contribution_units <= largest_sensitivity(goal, 1, made.first.bits)
