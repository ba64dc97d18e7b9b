"""The noise: exact bin probabilities, and the same integers as an independent implementation."""

from collections.abc import Callable
from itertools import pairwise
from math import erf, exp, sqrt

import numpy as np
import pytest
from mpmath import mp, mpf

from tests.workers.words import WORD, Words, fair, stream
from workers.samplers import rounded_laplace, rounded_normal
from workers.samplers.digits import root_e
from workers.samplers.real import TIED, fill_laplace, fill_normal

# --- the distribution -----------------------------------------------------------------------------


def normal_tail(x: mpf) -> mpf:
    """P(Z > x)."""
    return mp.erfc(x / mp.sqrt(2)) / 2


def laplace_tail(x: mpf) -> mpf:
    return mp.exp(-x) / 2 if x >= 0 else 1 - mp.exp(x) / 2


NORMAL, LAPLACE = (rounded_normal, normal_tail), (rounded_laplace, laplace_tail)
BOTH = pytest.mark.parametrize(("sampler", "tail"), [NORMAL, LAPLACE], ids=["normal", "laplace"])


@BOTH
@pytest.mark.parametrize("bits", [1, 2, 3, 4, 5, 6])
def test_every_integer_has_the_probability_of_its_interval(sampler, tail, bits):
    """Chi-square over [k - 1/2, k + 1/2)/2^bits and two tails; passes but once in 10^7 keys."""
    count = 300_000
    drawn = sampler(stream(bits), count, bits)
    edge = max(k for k in range(1, 10 << bits) if count * tail((k + mpf(1) / 2) / 2**bits) > 50)
    ends = [(k + mpf(1) / 2) / 2**bits for k in range(-edge - 1, edge + 1)]
    tails = [mpf(1), *(tail(end) for end in ends), mpf(0)]
    expected = [count * (a - b) for a, b in pairwise(tails)]
    clipped = np.clip(drawn, -edge - 1, edge + 1) + edge + 1
    observed = np.bincount(clipped, minlength=len(expected))
    statistic = mp.fsum((int(o) - e) ** 2 / e for o, e in zip(observed, expected, strict=True))
    freedom = len(expected) - 1
    assert mp.gammainc(mpf(freedom) / 2, statistic / 2, regularized=True) > 1e-7


@pytest.mark.parametrize("bits", [16, 20, 31, 32, 33, 40, 50, 56])
@pytest.mark.parametrize(
    ("sampler", "cdf"),
    [
        (rounded_normal, lambda x: (1 + erf(x / sqrt(2))) / 2),
        (rounded_laplace, lambda x: exp(x) / 2 if x < 0 else 1 - exp(-x) / 2),
    ],
    ids=["normal", "laplace"],
)
def test_a_fine_lattice_follows_the_continuous_law(sampler, cdf, bits):
    """Kolmogorov distance times sqrt(n) above 3 has probability below 2 exp(-18) = 3e-8."""
    x = np.sort(sampler(stream(bits), 50_000, bits)) / 2.0**bits
    law = np.array([cdf(v) for v in x.tolist()])
    steps = np.arange(x.size + 1) / x.size
    distance = max(np.abs(law - steps[1:]).max(), np.abs(law - steps[:-1]).max())
    assert distance * sqrt(x.size) < 3


@pytest.mark.parametrize("bits", [16, 24, 32, 40, 50])
@pytest.mark.parametrize(
    ("sampler", "moments"),
    [(rounded_normal, {2: 1, 4: 3}), (rounded_laplace, {1: 1, 2: 2, 3: 6})],
    ids=["normal", "laplace"],
)
def test_the_moments_are_those_of_the_law(sampler, moments, bits):
    """Sign, and powers of the absolute value, each within 6 standard errors."""
    x = sampler(stream(bits), 200_000, bits) / 2.0**bits
    assert abs(np.sign(x).sum()) < 6 * sqrt(x.size)
    for power, value in moments.items():
        powers = np.abs(x) ** power
        assert abs(powers.mean() - value) < 6 * powers.std() / sqrt(x.size)


@BOTH
@pytest.mark.parametrize("bits", [20, 50, 56])
def test_the_last_bits_are_even(sampler, tail, bits):
    """The low byte is uniform: a rounding in floating point would leave zeros there."""
    low = np.bincount(sampler(stream(bits), 100_000, bits) & 255, minlength=256)
    statistic = ((low - 100_000 / 256) ** 2).sum() / (100_000 / 256)
    assert mp.gammainc(mpf(255) / 2, mpf(float(statistic)) / 2, regularized=True) > 1e-7


# --- the same integers as a second implementation ----------------------------------------------------


with mp.workprec(64 * 40):
    ROOT_E = [int(mp.floor(mp.exp(-mpf(1) / 2) * mpf(2) ** (64 * k))) % WORD for k in range(1, 36)]


class Reference:
    """Karney's algorithm N and von Neumann's, with digit strings of any length, in Python ints."""

    def __init__(self, supply: Words) -> None:
        self._supply, self.used, self.longest = supply, 0, 0

    def word(self) -> int:
        self.used += 1
        return self._supply.at(self.used - 1)

    def less(self, a: list[int], b: list[int]) -> bool:
        k = 0
        while True:
            for string in (a, b):
                if len(string) == k:
                    string.append(self.word())
            self.longest = max(self.longest, k + 1)
            if a[k] != b[k]:
                return a[k] < b[k]
            k += 1

    def half(self) -> bool:
        """exp(-1/2): a deviate below that number, digit by digit."""
        return self.less([self.word()], list(ROOT_E))

    def share(self, x: list[int], k: int) -> bool:
        """exp(-x (2k + x)/(2k + 2))."""
        m, last, turns = 2 * k + 2, x, 0
        while True:
            following = [self.word()]
            if not self.less(following, last):
                break
            while (word := self.word()) >= WORD - WORD % m:
                pass
            if word % m == 0:
                break
            if word % m == 1 and not self.less([self.word()], x):
                break
            last, turns = following, turns + 1
        return turns % 2 == 0

    def finish(self, k: int, x: list[int], bits: int) -> int:
        """The nearest integer to 2^bits (k + x), by adding half and cutting off; then a sign."""
        magnitude = (((k << 64) + x[0] << bits) + WORD // 2) >> 64
        return magnitude if self.word() >= WORD // 2 else -magnitude

    def normal(self, bits: int) -> int:
        while True:
            k = 0
            while self.half():
                k += 1
            if not all(self.half() for _ in range(k * (k - 1))):
                continue
            x = [self.word()]
            if all(self.share(x, k) for _ in range(k + 1)):
                return self.finish(k, x, bits)

    def laplace(self, bits: int) -> int:
        k = 0
        while True:
            x = [self.word()]
            last, length = x, 1
            while self.less(following := [self.word()], last):
                last, length = following, length + 1
            if length % 2 == 1:
                return self.finish(k, x, bits)
            k += 1


def alphabet(*letters: int) -> Callable[[int], Callable[[], int]]:
    def drawing(seed: int) -> Callable[[], int]:
        rng = np.random.default_rng(seed)
        return lambda: letters[rng.integers(len(letters))]

    return drawing


SUPPLIES = {
    "fair words": fair,
    "two words": alphabet(2**61, 3 * 2**62),
    "ends of the range": alphabet(0, 1, 2**63 - 1, 2**63, WORD - 1),
    "words past the last multiple": alphabet(5, WORD - 1, WORD - 2, 2**62),
    "mostly one word": alphabet(*[3 * 2**62] * 9, 2**61, WORD - 1),
    "digits of exp(-1/2)": alphabet(*ROOT_E[:2], 2**62, WORD - 1),
}
KINDS = {
    "normal": (rounded_normal, Reference.normal),
    "laplace": (rounded_laplace, Reference.laplace),
}
kinds = pytest.mark.parametrize("kind", KINDS)
supplies = pytest.mark.parametrize("supply", SUPPLIES)


def referred(
    kind: str, supply: str, seed: int, count: int, bits: int
) -> tuple[list[int], Reference]:
    reference = Reference(Words(SUPPLIES[supply](seed)))
    return [KINDS[kind][1](reference, bits) for _ in range(count)], reference


@kinds
@supplies
@pytest.mark.parametrize("bits", [1, 2, 20, 32, 50, 56])
def test_the_integers_are_those_of_the_reference(kind, supply, bits):
    expected, _ = referred(kind, supply, bits, 300, bits)
    drawn = KINDS[kind][0](Words(SUPPLIES[supply](bits)), 300, bits)
    assert drawn.tolist() == expected


@kinds
@supplies
@pytest.mark.parametrize("piece", [1, 2, 3, 30])
def test_words_in_short_supply_change_nothing(kind, supply, piece):
    """Whenever a sample runs out of words it starts again from its first one."""
    expected, _ = referred(kind, supply, 3, 40, 20)
    drawn = KINDS[kind][0](Words(SUPPLIES[supply](3), piece), 40, 20)
    assert drawn.tolist() == expected


@kinds
def test_tied_digits_are_told_apart_by_further_digits(kind):
    """The tied supplies do stop the compiled sampler, and do need strings of many digits."""
    for supply in ("two words", "mostly one word"):
        _, reference = referred(kind, supply, 20, 300, 20)
        assert reference.longest > 4
        words = Words(SUPPLIES[supply](20)).words(reference.used)
        fill = fill_normal if kind == "normal" else fill_laplace
        made, used, reason = fill(words, np.empty(300, dtype=np.int64), 20)
        assert reason == TIED and made < 300 and used < reference.used


def test_the_digits_of_exp_minus_half_are_right():
    assert [root_e(k) for k in range(30)] == ROOT_E[:30]


@kinds
def test_the_real_stream_gives_the_integers_of_the_reference(kind):
    words = [int(word) for word in stream(5).words(40_000)]
    supply = iter(words)
    reference = Reference(Words(lambda: next(supply)))
    expected = [KINDS[kind][1](reference, 28) for _ in range(1000)]
    assert KINDS[kind][0](stream(5), 1000, 28).tolist() == expected


@kinds
@pytest.mark.parametrize("count", [1, 2, 7, 100, 999])
def test_fewer_integers_are_a_prefix_of_more(kind, count):
    sampler = KINDS[kind][0]
    assert np.array_equal(sampler(stream(1), count, 30), sampler(stream(1), 1000, 30)[:count])


@kinds
def test_a_coarser_lattice_rounds_the_same_deviates(kind):
    """The bits decide the rounding alone: each deviate keeps its words at every scale."""
    sampler = KINDS[kind][0]
    fine, coarse = (sampler(stream(2), 5000, bits) for bits in (50, 10))
    assert np.array_equal(coarse, np.sign(fine) * ((np.abs(fine) + 2**39) >> 40))


def flipped(word: int) -> int:
    return word ^ (1 << 63)


@kinds
def test_the_last_word_of_a_sample_is_its_sign(kind):
    for seed in range(200):
        (value,), reference = referred(kind, "fair words", seed, 1, 20)
        words = Words(fair(seed))
        words.at(reference.used)
        words._drawn[reference.used - 1] = flipped(words.at(reference.used - 1))
        assert KINDS[kind][0](words, 1, 20).tolist() == [-value]


@pytest.mark.parametrize("bits", [0, 63, -1])
@kinds
def test_a_scale_that_a_word_cannot_hold_is_refused(kind, bits):
    with pytest.raises(ValueError):
        KINDS[kind][0](stream(), 1, bits)
