"""Samplers of integers by integers: exact probabilities, whatever the supply of words."""

import numpy as np
import pytest
from mpmath import mp, mpf

from tests.workers.integer_samplers import discrete_laplace, permutation, uniform_integers
from tests.workers.words import Words, fair, stream
from workers.samplers import choose


def fits(observed, probabilities):
    """Chi-square; passes but once in 10^7 keys."""
    expected = np.asarray(probabilities) * np.sum(observed)
    assert expected.min() > 20
    statistic = float(((observed - expected) ** 2 / expected).sum())
    assert mp.gammainc(mpf(len(expected) - 1) / 2, mpf(statistic) / 2, regularized=True) > 1e-7


@pytest.mark.parametrize(
    ("over", "under"), [(1, 1), (1, 3), (7, 2), (5, 1), (22, 7), (355, 113), (2**20, 2**19)]
)
def test_discrete_laplace_has_its_exact_probabilities(over, under):
    count, ratio = 200_000, mp.exp(-mpf(under) / over)
    drawn = discrete_laplace(stream(over), count, over, under)
    zero = (1 - ratio) / (1 + ratio)
    edge = max(k for k in range(200) if count * zero * ratio**k > 60)
    inner = [zero * ratio ** abs(k) for k in range(-edge, edge + 1)]
    tail = (1 - mp.fsum(inner)) / 2
    observed = np.bincount(np.clip(drawn, -edge - 1, edge + 1) + edge + 1, minlength=2 * edge + 3)
    fits(observed, [float(p) for p in (tail, *inner, tail)])


@pytest.mark.parametrize("scale", [1, 3, 10, 1000])
@pytest.mark.parametrize("scores", [[0], [5, 5], [0, 1, 2, 3], [7, -3, 0, 12, -3], list(range(20))])
def test_the_exponential_mechanism_has_its_exact_probabilities(scores, scale):
    count = 4000
    weights = [mp.exp(-mpf(s - min(scores)) / scale) for s in scores]
    likely = [i for i, w in enumerate(weights) if count * w / mp.fsum(weights) > 25]
    source = stream(scale)
    drawn = [choose(source, np.array(scores, dtype=np.int64), scale) for _ in range(count)]
    observed = np.bincount(drawn, minlength=len(scores))
    kept = [*observed[likely], count - observed[likely].sum()]
    rest = 1 - mp.fsum(weights[i] for i in likely) / mp.fsum(weights)
    shares = [float(weights[i] / mp.fsum(weights)) for i in likely]
    if count * rest > 25:
        fits(np.array(kept), [*shares, float(rest)])
    elif len(likely) > 1:
        fits(np.array(kept[:-1]), np.array(shares) / sum(shares))
        assert kept[-1] < 90
    else:
        assert kept[-1] < 90


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 255, 2**33 + 1])
def test_uniform_integers_are_uniform(bound):
    drawn = uniform_integers(stream(bound), 100_000, bound)
    assert drawn.min() >= 0 and drawn.max() < bound
    if bound > 1:
        cells = min(bound, 16)
        fits(np.bincount(drawn * cells // bound, minlength=cells), cell_shares(bound, cells))


def cell_shares(bound, cells):
    return np.diff([-(-bound * i // cells) for i in range(cells + 1)]) / bound


def test_words_past_the_last_multiple_are_passed_over():
    """The bias that `word % bound` alone would have, made large: a bound just above 2^62."""
    bound = 2**62 + 2**61
    drawn = uniform_integers(stream(9), 100_000, bound)
    fits(np.bincount(drawn // (bound // 3), minlength=3)[:3], [1 / 3] * 3)


def test_permutations_are_uniform():
    source = stream(11)
    seen = [tuple(permutation(source, 4)) for _ in range(48_000)]
    kinds_seen = sorted(set(seen))
    assert len(kinds_seen) == 24 and all(sorted(p) == [0, 1, 2, 3] for p in kinds_seen)
    fits(np.array([seen.count(p) for p in kinds_seen]), [1 / 24] * 24)
    assert sorted(permutation(source, 1000).tolist()) == list(range(1000))
    assert permutation(source, 0).tolist() == [] and permutation(source, 1).tolist() == [0]


@pytest.mark.parametrize("piece", [1, 2, 7])
@pytest.mark.parametrize(
    "sample",
    [
        lambda source: discrete_laplace(source, 50, 7, 2).tolist(),
        lambda source: uniform_integers(source, 50, 2**62 + 1).tolist(),
        lambda source: permutation(source, 50).tolist(),
        lambda source: choose(source, np.arange(30), 4),
    ],
)
def test_samplers_of_integers_do_not_mind_a_short_supply(sample, piece):
    assert sample(Words(fair(4), piece)) == sample(Words(fair(4)))


@pytest.mark.parametrize(
    "ask",
    [
        lambda: discrete_laplace(stream(), 1, 0, 1),
        lambda: discrete_laplace(stream(), 1, 1, 2**31),
        lambda: uniform_integers(stream(), 1, 0),
        lambda: uniform_integers(stream(), 1, 2**63),
        lambda: choose(stream(), np.array([], dtype=np.int64), 1),
        lambda: choose(stream(), np.array([1]), 0),
        lambda: choose(stream(), np.array([1]), 2**63),
        lambda: choose(stream(), np.array([1.5]), 1),
    ],
)
def test_arguments_out_of_range_are_refused(ask):
    with pytest.raises(ValueError):
        ask()
