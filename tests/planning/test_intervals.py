"""Intervals hold the truth as often as they say; `make bench-evaluation` asks at more places."""

import numpy as np
import pytest

from benchmarks.evaluation_coverage import LABELS, Population, covered
from service.planning.intervals import Estimate, Noisy, average, difference, mean_of, quotient

TIMES, SLACK = 300, 4.0  # percent: three deviations of the share of so many that are held


@pytest.mark.parametrize("label", sorted(LABELS))
@pytest.mark.parametrize(("rows", "epsilon", "delta"), [(1000, 0.1, 1e-6), (3000, 1.0, 0.0)])
def test_intervals_of_an_evaluation_hold_the_truth(label, rows, epsilon, delta):
    found = covered(Population(label), rows, epsilon, delta, TIMES, 5)
    assert {name: held for name, (held, _) in found.items() if held < 95 - SLACK} == {}


def test_without_noise_a_ratio_has_the_interval_of_wilson():
    a, b = np.array([1.0, 0.0]), np.ones(2)
    told = Noisy(np.array([0.0, 10.0]), 0.0, "gaussian").ratio(a, b)
    assert (told.value, told.low) == (0, 0)
    assert told.high == pytest.approx(1.959964**2 / (10 + 1.959964**2))


@pytest.mark.parametrize("counts", [(0.0, 0.0), (-5.0, 3.0), (4.0, -9.0)])
def test_where_noise_hides_the_whole_a_share_may_be_anything(counts):
    told = Noisy(np.array(counts), 10.0, "laplace").ratio(np.array([1.0, 0.0]), np.ones(2))
    assert (told.low, told.high) == (0, 1)


def test_a_mean_stays_within_its_range_and_has_a_width():
    for total, squares in ((0, 0), (-5, 7), (100, 100), (105, -4)):
        told = mean_of(total, squares, 100, 5.0, "gaussian")
        assert 0 <= told.low <= told.value <= told.high <= 1
        assert told.high > told.low


def test_estimates_that_were_cut_are_combined_plainly():
    cut, whole = Estimate(0.1, 0.0, 0.4), Estimate(0.5, 0.4, 0.6)
    apart = difference(whole, cut)
    assert (apart.value, apart.low, apart.high) == pytest.approx((0.4, 0.0, 0.6))
    both = average([whole, cut])
    assert (both.value, both.low, both.high) == pytest.approx((0.3, 0.2, 0.5))
    near = difference(whole, Estimate(0.5, 0.4, 0.6))
    assert near.high == pytest.approx(0.1 * 2**0.5)


def test_a_quotient_of_next_to_nothing_is_finite():
    assert np.isfinite(quotient(Estimate(0.5, 0.4, 0.6), Estimate(0.0, -1.0, 0.0)).high)
