"""Intervals hold the truth as often as they say, over the drawing of rows and the noise; the whole
table is `make bench-coverage`."""

import numpy as np
import pytest

from benchmarks.coverage import coverage, lines
from service.planning.estimates import Told, cumulative, noise_quantile, share
from service.planning.tables import Bins, Magnitudes

LINES = {line.name: line for line in lines()}
DATASETS = 300  # 95 % of them is 285, and one standard deviation 4


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize(("rows", "epsilon", "delta"), [(1000, 0.5, 1e-6), (100_000, 2.0, 0.0)])
def test_intervals_hold_the_truth(name, rows, epsilon, delta):
    assert min(coverage(LINES[name], rows, epsilon, delta, DATASETS)) >= 0.91


def told(entries, rows, deviation=1e-9, table=None, laplace=False):
    return Told(table, np.array(entries, dtype=float), rows, deviation, laplace, 0.95)


def test_without_noise_the_interval_of_a_share_is_wilsons():
    found = share(0.3, 100, 1.959964, 0.0)
    assert (found.low, found.high) == pytest.approx((0.21895, 0.39585), abs=1e-5)


@pytest.mark.parametrize("estimate", [-5.0, -0.01, 0.0, 0.4, 1.0, 1.01, 7.0])
@pytest.mark.parametrize("noise", [0.0, 1e-3, 0.3, 10.0])
def test_a_share_is_within_its_interval_and_that_within_nought_and_one(estimate, noise):
    found = share(estimate, 50, 1.96, noise)
    assert 0 <= found.low <= found.value <= found.high <= 1


def test_counts_are_made_to_add_up_to_the_rows():
    counts, variance = told([5.0, 1.0, 3.0, 3.0], 10, deviation=2.0).counts()
    assert counts.tolist() == [4.5, 0.5, 2.5, 2.5] and variance == 3.0


@pytest.mark.parametrize("laplace", [True, False])
def test_the_quantile_of_noise_is_that_of_its_law(laplace):
    rng = np.random.default_rng(1)
    noise = rng.laplace(size=400_000) / np.sqrt(2) if laplace else rng.normal(size=400_000)
    for confidence in (0.9, 0.95, 0.99):
        held = np.mean(np.abs(noise) <= noise_quantile(confidence, laplace))
        assert confidence - 0.002 <= held <= confidence + 0.004


@pytest.mark.parametrize("ends", [True, False])
def test_shares_below_edges_come_from_the_fewest_entries(ends):
    rng = np.random.default_rng(2)
    fine = rng.integers(0, 50, 256 + 2 * ends)
    inner = fine[1:-1] if ends else fine
    coarse = inner.reshape(16, 16).sum(axis=1)
    coarse = np.array([fine[0], *coarse, fine[-1]]) if ends else coarse
    rows = int(fine.sum())
    of = [Bins(column=1, low=0, high=1, cells=cells, open=ends) for cells in (16, 256)]
    found = cumulative(told(coarse, rows, table=of[0]), told(fine, rows, table=of[1]))
    exact = np.concatenate([[0], np.cumsum(inner)]) + ends * fine[0]
    assert np.allclose(found.shares, exact / rows)
    least = [np.sqrt(k) for k in range(18)]
    used = found.quantiles / found.quantiles[(ends == 0 and 1) or 0]
    assert used.max() <= least[17] + 1e-9  # eight coarse cells, eight fine ones and an end
    value, low, high = found.at(0.5)
    assert low <= value <= high and high - low <= 30


def test_quantiles_beyond_the_range_have_no_end_there():
    of = [Bins(column=1, low=0, high=1, cells=cells, open=True) for cells in (16, 256)]
    entries = [np.array([90.0, *[0.0] * cells, 10.0]) for cells in (16, 256)]
    found = cumulative(*(told(e, 100, table=table) for e, table in zip(entries, of, strict=True)))
    assert found.at(0.5)[1] is None and found.at(0.99)[2] is None


def test_moments_of_noise_alone_are_within_their_range():
    for entries in ([1e12, 1e12], [-1e12, -1e12], [0.0, 1e12], [0.0, 0.0]):
        mean, variance = told(entries, 1000, deviation=1e6).moments()
        assert -1 <= mean.low <= mean.value <= mean.high <= 1
        assert 0 <= variance.low <= variance.value <= variance.high <= 1


def test_cells_that_hold_records_for_certain_are_beyond_what_noise_reaches():
    table = Magnitudes(column=0)
    entries = np.random.default_rng(3).normal(0, 5.0, table.size)
    assert told(entries, 1000, deviation=5.0, table=table).inside() == (101, 101)  # none
    entries[[80, 120]] += 100
    assert told(entries, 1000, deviation=5.0, table=table).inside() == (80, 120)
