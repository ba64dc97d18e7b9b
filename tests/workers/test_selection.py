"""The exponential mechanism's race: exact probabilities, whatever the scores, on either path."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
from mpmath import mp, mpf

from workers.randomness import Randomness, Use
from workers.samplers import choose, selection
from workers.samplers.selection import first_round, further_round, race

KEY = bytes(range(32))
SCORES = {
    "ties": [5, 5, 5],
    "a step": [0, 1, 2, 3],
    "both signs": [7, -3, 0, 12, -3],
    "many": list(range(9)),
    "large": [2**61, 2**61 + 2**40, 2**61 - 2**40],
}


def stream(index=0):
    return Randomness(KEY, "selection").stream(Use.NOISE, index)


def supply(words):
    """`take` of a race, from a list of words."""
    left = iter(words)
    return lambda count: np.array([next(left) for _ in range(count)], dtype=np.uint64)


def p_value(drawn, scores, scale):
    """Chi-square against the exact probabilities, candidates below 25 expected put together."""
    with mp.workdps(50):
        weights = [mp.exp(-mpf(s - min(scores)) / scale) for s in scores]
        total = mp.fsum(weights)
        expected = np.array([float(len(drawn) * w / total) for w in weights])
    observed = np.bincount(drawn, minlength=len(scores))
    rare = expected < 25
    if rare.any():
        expected = np.append(expected[~rare], expected[rare].sum())
        observed = np.append(observed[~rare], observed[rare].sum())
    kept = expected > 1e-3
    assert observed[~kept].sum() == 0
    if kept.sum() == 1:
        return 1.0
    statistic = float(((observed - expected)[kept] ** 2 / expected[kept]).sum())
    return float(mp.gammainc(mpf(int(kept.sum()) - 1) / 2, mpf(statistic) / 2, regularized=True))


@pytest.mark.parametrize("scale", [1, 3, 10, 2**40])
@pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)
def test_every_candidate_has_its_exact_probability(scores, scale):
    source = stream(scale)
    drawn = [choose(source, np.array(scores), scale) for _ in range(6000)]
    assert p_value(drawn, scores, scale) > 1e-7


@pytest.mark.parametrize("scores", SCORES.values(), ids=SCORES)
def test_the_slow_path_alone_has_the_same_probabilities_and_the_same_winners(scores, monkeypatch):
    """With a huge slack the first round decides nothing and every race goes to the decimals."""
    scores, scale, rng = np.array(scores), 3, np.random.default_rng(1)
    words = rng.integers(0, 2**64, size=(400, 3 * scores.size), dtype=np.uint64)
    fast = [race(supply(row), scores, scale) for row in words]
    monkeypatch.setattr(selection, "SLACK", 2.0**60)
    slow = [race(supply(row), scores, scale) for row in words]
    assert slow == fast
    assert p_value(slow, scores.tolist(), scale) > 1e-7


def test_the_first_round_nearly_always_decides():
    """What the slack and the unseen digits leave open is far below one race in 2^30."""
    rng, scores = np.random.default_rng(2), np.array([0, 3, 5, 9], dtype=np.uint64)
    widest = 0.0
    for _ in range(2000):
        low, high = first_round(rng.integers(0, 2**64, size=4, dtype=np.uint64), scores, 4)
        widest = max(widest, float((high - low)[low <= high.min()].max()))
    assert widest < 2.0**-36


WORDS = [0, 1, 2, 2**11, 2**40 + 12345, 2**63 - 1, 2**63, 2**64 - 2**20, 2**64 - 2, 2**64 - 1]


@pytest.mark.parametrize("scale", [1, 7, 2**62])
@pytest.mark.parametrize("excess", [0, 1, 12345, 2**53 + 1, 2**63, 2**64 - 1])
def test_every_round_encloses_the_exact_entry(excess, scale):
    """Both ends of what the digits allow, to 200 digits, at ends of the range and in between."""
    with mp.workdps(200):
        drawn = np.random.default_rng(3).integers(0, 2**64, 40, dtype=np.uint64)
        for word in [*WORDS, *drawn.tolist()]:
            low, high = first_round(
                np.array([word], dtype=np.uint64), np.array([excess], dtype=np.uint64), scale
            )
            for uniform, bound, sign in ((word, low[0], 1), (word + 1, high[0], -1)):
                if not 0 < uniform < 2**64:
                    assert bound == -sign * np.inf
                    continue
                entry = mp.log(-mp.log1p(-mpf(uniform) / 2**64)) + mpf(excess) / scale
                assert sign * (entry - mpf(float(bound))) > 0
            finer = word << 64 | 987654321
            low, high = further_round(finer, 128, excess, scale)
            exact = [
                mp.log(-mp.log1p(-mpf(k) / mpf(2) ** 128)) + mpf(excess) / scale
                for k in (finer, finer + 1)
            ]
            assert mpf(str(low)) < exact[0] <= exact[1] < mpf(str(high))


def test_equal_words_are_told_apart_by_further_ones():
    scores = np.array([4, 4, 4])
    a, b, c = 2**60, 2**59, 2**58
    assert race(supply([a, a, c]), scores, 5) == 2
    assert race(supply([a, a, a] * 3 + [b, c, a]), scores, 5) == 1
    # two of three are tied: only they draw on
    assert race(supply([a, b, b, b, c]), scores, 5) == 2


def test_no_digit_at_all_is_no_obstacle():
    """All digits zero: E may be arbitrarily small, so its candidate stays until they differ."""
    scores = np.array([0, 2**62])
    assert race(supply([2**63, 0, 5, 2**63]), scores, 1) == 0
    # log E = -log(2^64) - ..., which a handicap of forty does not outweigh
    assert race(supply([2**63, 0, 5, 1]), np.array([0, 40]), 1) == 1


def test_scores_two_to_the_sixty_two_apart_and_more():
    ends = np.array([-(2**63), 2**63 - 1])
    for scores, scale in ((np.array([0, 2**62]), 1), (ends, 1), (-1 - ends, 2**50)):
        best = int(scores.argmin())
        assert {choose(stream(i), scores, scale) for i in range(200)} == {best}
    flat = [choose(stream(i), np.array([0, 1]), 2**62) for i in range(4000)]
    assert 1800 < sum(flat) < 2200


def test_a_single_candidate_is_chosen():
    assert choose(stream(), np.array([-17]), 3) == 0


def test_a_common_offset_changes_nothing():
    scores = np.array([3, -8, 5, 0])
    for i in range(300):
        moved = choose(stream(i), scores + 2**60, 4)
        assert choose(stream(i), scores, 4) == moved


def test_words_are_read_in_order_and_no_more_than_needed():
    asked = []

    def take(count):
        asked.append(count)
        return np.arange(1, count + 1, dtype=np.uint64) << np.uint64(50)

    race(take, np.zeros(6, dtype=np.int64), 9)
    assert asked == [6]


def test_decimals_do_not_depend_on_the_callers_context():
    with localcontext(prec=3):
        rough = further_round(2**127 + 1, 128, 5, 3)
    assert rough == further_round(2**127 + 1, 128, 5, 3)
    assert rough[1] - rough[0] < Decimal("1e-30")
