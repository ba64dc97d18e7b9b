"""What noisy tables say, with intervals: functions of what was released, and of nothing else.

An interval is about the population that the rows were drawn from: it holds its true number with the
probability that is asked, over the drawing of n independent rows and the noise. The noise of a number
is known: Gaussian, or a sum of Laplace variables, whose quantile q is taken to be that of a single one
of the same variance, which is larger. The two parts are independent and about normal, so quantiles add
in squares: |estimate - truth|^2 <= z^2 variance/n + q^2.

Counts of all cells add up to n, which is public: what is released is projected to that, and noise gets
less by the part that goes into the sum.
"""

from dataclasses import dataclass
from math import log, sqrt
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from service.planning.draft import Schedule
from service.planning.lattice import CountLattice
from service.planning.tables import MOMENT_UNITS, Bins, Counts, Magnitudes, Moments

Floats = NDArray[np.float64]


class SummarySchedule(Schedule):
    """Releases of tables, one after the other."""

    kind: Literal["summary"] = "summary"
    counts: tuple[Counts, ...]
    confidence: float

    @property
    def steps(self) -> int:
        return len(self.counts)

    def counted(self) -> tuple[Counts, ...]:
        return self.counts


@dataclass(frozen=True)
class Interval:
    value: float
    low: float
    high: float

    def mapped(self, offset: float, factor: float, wider: float = 0.0) -> "Interval":
        """In other units, and wider by so many of these on either side."""
        low, high = offset + factor * self.low - wider, offset + factor * self.high + wider
        return Interval(offset + factor * self.value, low, high)


@dataclass(frozen=True)
class Told:
    """One table of a release: its noisy entries, over how many rows, with which noise in each."""

    table: Any
    entries: Floats
    rows: int
    deviation: float
    laplace: bool
    confidence: float

    @property
    def z(self) -> float:
        """The sampling error's quantile, for a standard deviation of 1."""
        return NormalDist().inv_cdf((1 + self.confidence) / 2)

    def noise(self, variance: float) -> float:
        """The quantile of noise that has so much variance."""
        return sqrt(variance) * noise_quantile(self.confidence, self.laplace)

    def counts(self) -> tuple[Floats, float]:
        """Of disjoint cells that hold all records, adding up to the rows; and the noise's variance."""
        many = len(self.entries)
        counts = self.entries - (self.entries.sum() - self.rows) / many
        return counts, self.deviation**2 * (1 - 1 / many)

    def share_of(self, count: float, variance: float) -> Interval:
        return share(count / self.rows, self.rows, self.z, self.noise(variance) / self.rows)

    def shares(self) -> list[Interval]:
        counts, variance = self.counts()
        return [self.share_of(float(count), variance) for count in counts]

    def moments(self) -> tuple[Interval, Interval]:
        """Mean and variance of u = t/B, which is within [-1, 1].

        V = mean of u^2 less the squared mean, plus what noise in the mean adds to that. Its sampling
        variance is at most ((1 + |m|)^2 V - V^2)/n, as |u - m| <= 1 + |m|; V is taken at the upper end
        of what noise leaves open, so that the bound holds where noise makes V small.
        """
        n, unit = self.rows, self.deviation / MOMENT_UNITS / self.rows
        m, square = (float(entry) / MOMENT_UNITS / n for entry in self.entries)
        m = min(max(m, -1.0), 1.0)
        spread = min(max(square - m**2 + unit**2, 0.0), 1 - m**2)
        noise = self.noise(unit**2 * (1 + 4 * m**2 + 2 * unit**2))
        likely = min(spread + noise / 2, 1.0)
        half = sqrt(self.z**2 * likely / n + self.noise(unit**2) ** 2)
        mean = Interval(m, max(m - half, -1.0), min(m + half, 1.0))
        fourth = max((1 + abs(m)) ** 2 * likely - likely**2, 0.0)
        half = sqrt(self.z**2 * fourth / n + noise**2)
        return mean, Interval(spread, max(spread - half, 0.0), min(spread + half, 1.0))

    def correlations(self) -> dict[tuple[int, int], Interval]:
        """Of every pair of columns (i, j < i). What noise adds is that of the linear part of r in the
        entries; where it could move a variance by a third, nothing is known. The sampling variance is
        (1 - r^2)^2/n for normal columns, taken a fifth larger for tails that are a little heavier, and
        at the end of the interval that is nearer to 0."""
        p, n = len(self.table.columns), self.rows
        beside = self.table.BESIDE / 2**15
        unit = self.deviation / MOMENT_UNITS / n
        sums = iter((self.entries / MOMENT_UNITS / n).tolist())
        m = [next(sums) for _ in range(p)]
        found, v, known = {}, [], []
        for i in range(p):
            v.append(next(sums) - m[i] ** 2 + unit**2)
            known.append(v[i] > 3 * unit * sqrt(1 + 4 * m[i] ** 2))
            for j in range(i):
                cov = next(sums) / beside - m[i] * m[j]
                if not (known[i] and known[j]):
                    found[i, j] = Interval(0.0, -1.0, 1.0)
                    continue
                both = sqrt(v[i] * v[j])
                r = cov / both
                parts = [1 / both / beside, r / v[i] / 2, r / v[j] / 2]
                parts += [r * m[i] / v[i] - m[j] / both, r * m[j] / v[j] - m[i] / both]
                quantile = self.noise(unit**2 * sum(part**2 for part in parts))
                r = min(max(r, -1.0), 1.0)
                nearer = abs(r)
                for _ in range(2):
                    half = sqrt(1.2 * self.z**2 * (1 - nearer**2) ** 2 / n + quantile**2)
                    nearer = max(abs(r) - half, 0.0)
                found[i, j] = Interval(r, max(r - half, -1.0), min(r + half, 1.0))
        return found

    def inside(self) -> tuple[int, int]:
        """The first and the last cell that hold records for certain: counts beyond what noise alone
        reaches in any cell, but for one time in twenty. The middle cell, if none does."""
        counts, many = self.entries, len(self.entries)
        least = self.deviation * noise_quantile(1 - 0.1 / many, self.laplace)
        found = np.flatnonzero(counts > least)
        return (int(found[0]), int(found[-1])) if len(found) else (many // 2, many // 2)


def tables(counts: Counts, vector: Floats, confidence: float) -> list[Told]:
    """The tables of a release, from its vector."""
    lattice, rows = counts.lattice, counts.stop - counts.start
    parts = np.split(vector, np.cumsum(lattice.sizes)[:-1])
    return [
        Told(table, part, rows, lattice.deviation(k), lattice.noise == "laplace", confidence)
        for k, (table, part) in enumerate(zip(counts.tables, parts, strict=True))
    ]


def releases(schedule: SummarySchedule, vector: Floats) -> list[list[Told]]:
    """The same of each release of a Plan."""
    ends = np.cumsum([sum(counts.lattice.sizes) for counts in schedule.counts])[:-1]
    parts = zip(schedule.counts, np.split(vector, ends), strict=True)
    return [tables(counts, part, schedule.confidence) for counts, part in parts]


def ranges_for(schedule: SummarySchedule, first: Floats) -> Floats:
    """The range of each table of the second release: what holds records, of its column's sizes."""
    told = tables(schedule.counts[0], first, schedule.confidence)
    sizes = {one.table.column: one for one in told if isinstance(one.table, Magnitudes)}
    found = []
    for later in schedule.counts[1].tables:
        assert isinstance(later, Moments)
        of = sizes[later.column]
        low, high = of.inside()
        found.append([of.table.edges(low)[0], of.table.edges(high)[1]])
    return np.array(found)


def share(estimate: float, rows: int, z: float, noise: float) -> Interval:
    """Of a population: all p with (estimate - p)^2 <= z^2 p (1 - p)/rows + noise^2, which is Wilson's
    interval where there is no noise. Estimates are kept within [0, 1]: that moves none away from p."""
    estimate = min(max(estimate, 0.0), 1.0)
    a = z**2 / rows
    middle = estimate + a / 2
    root = sqrt(max(middle**2 - (1 + a) * (estimate**2 - noise**2), 0.0))
    low, high = (middle - root) / (1 + a), (middle + root) / (1 + a)
    low = 0.0 if estimate <= noise else max(min(low, estimate), 0.0)  # an end is met, not nearly so
    high = 1.0 if 1 - estimate <= noise else min(max(high, estimate), 1.0)
    return Interval(estimate, low, high)


def noise_quantile(confidence: float, laplace: bool) -> float:
    """Of the size of noise with a standard deviation of 1."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    return max(z, log(1 / (1 - confidence)) / sqrt(2)) if laplace else z


def moment_noise(lattice: CountLattice, number: int, rows: int, confidence: float) -> float:
    """The quantile of the noise in a mean, in units of half a range."""
    quantile = noise_quantile(confidence, lattice.noise == "laplace")
    return quantile * lattice.deviation(number) / MOMENT_UNITS / rows


def clip_length(k: float, r: float, noise: float) -> float:
    """Where a bound on the bias and the noise's quantile together are the least."""
    return float(r * noise ** (-1 / k))


def clip_bias(k: float, r: float, length: float) -> float:
    """By how much clipping at this length moves a mean, where E|X|^k <= r^k."""
    return float((r / length) ** (k - 1) * r / (k - 1))


@dataclass(frozen=True)
class Cumulative:
    """Noisy shares below the edges of the finer of two tables over one range, each from the fewest
    entries that say it: whole cells of the coarse one from either end, and of the fine one from either
    side of the coarse edge."""

    shares: Floats
    quantiles: Floats  # of the noise in each
    rows: int
    z: float

    def at(self, probability: float) -> tuple[float, int | None, int | None]:
        """The edge below which this share lies, as a number of cells that need not be whole; and the
        interval, null where the range's end does not close it.

        An edge b is refused as a lower bound's neighbour while the share below it is certainly less
        than p, from the left, and so from the right: the interval fails on one side only if the one
        edge next to the true quantile is wrong, however many edges there are."""
        error = np.sqrt(self.z**2 * probability * (1 - probability) / self.rows + self.quantiles**2)
        below = np.flatnonzero(self.shares + error >= probability)
        above = np.flatnonzero(self.shares - error <= probability)
        low = int(below[0]) - 1 if len(below) else len(self.shares) - 1
        high = int(above[-1]) + 1 if len(above) else 0
        rising = (
            np.maximum.accumulate(self.shares) + np.minimum.accumulate(self.shares[::-1])[::-1]
        ) / 2
        edges = np.arange(len(rising), dtype=np.float64)
        value = float(np.interp(probability, rising + 1e-12 * edges, edges))
        return value, None if low < 0 else low, None if high >= len(self.shares) else high


def cumulative(coarse: Told, fine: Told) -> Cumulative:
    table, n = fine.table, fine.rows
    assert isinstance(table, Bins) and isinstance(coarse.table, Bins)
    ends, each = int(table.open), table.cells // coarse.table.cells
    whole, parts = coarse.entries, fine.entries[ends : ends + table.cells]
    shares, terms = [], []
    for edge in range(table.cells + 1):
        cell, within = divmod(edge, each)
        inside = parts[cell * each : cell * each + each]
        ways = []
        for start, few in ((cell, inside[:within].sum()), (cell + 1, -inside[within:].sum())):
            used = within if start == cell else each - within
            if start > cell and within == 0:
                continue
            left, right = whole[: ends + start], whole[ends + start :]
            ways.append((len(left) + used, left.sum() + few))
            ways.append((len(right) + used, n - right.sum() + few))
        used, count = min(ways)
        shares.append(count / n)
        terms.append(used)
    quantiles = [fine.noise(fine.deviation**2 * used) / n for used in terms]
    return Cumulative(np.array(shares), np.array(quantiles), n, fine.z)
