"""Compositions and choices by a running sum price themselves at an upper bound, and survive JSON."""

from fractions import Fraction

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import logsumexp

from service.planning.releases import (
    Disjoint,
    Exponential,
    Gaussian,
    Pure,
    Recursive,
    Repeat,
    Sequence,
)
from tests.planning.divergences import FLOAT, ORDERS, accountant, both
from tests.planning.strategies import ANY, choices, integers, orders, recursive, releases

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
    squares = [part.mu_squared() for part in parts]
    assert forward.mu_squared() == backward.mu_squared() == sum(squares)
    assert apart.mu_squared() == max(squares)


@given(releases, orders)
def test_no_price_is_free_and_none_exceeds_the_pure_one(release, order):
    renyi, pure, gaussian = prices(release, order)
    assert isinstance(renyi, Fraction) and renyi > 0
    assert pure is None or 0 < renyi <= pure
    assert gaussian is None or (gaussian > 0 and renyi == order * gaussian / 2)
    assert release.mu_squared() > 0
    assert gaussian is None or gaussian == release.mu_squared()


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
