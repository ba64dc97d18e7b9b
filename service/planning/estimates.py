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
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from service.planning.draft import Schedule
from service.planning.lattice import CountLattice
from service.planning.tables import Counts

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


@dataclass(frozen=True)
class Told:
    """One table of a release: its noisy entries, over how many rows, with which noise in each."""

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
        tail = log(1 / (1 - self.confidence)) / sqrt(2) if self.laplace else 0.0
        return sqrt(variance) * max(self.z, tail)

    def counts(self) -> tuple[Floats, float]:
        """Of disjoint cells that hold all records, adding up to the rows; and the noise's variance."""
        many = len(self.entries)
        counts = self.entries - (self.entries.sum() - self.rows) / many
        return counts, self.deviation**2 * (1 - 1 / many)

    def shares(self) -> list[Interval]:
        counts, variance = self.counts()
        quantile = self.noise(variance) / self.rows
        return [share(float(count) / self.rows, self.rows, self.z, quantile) for count in counts]


def tables(lattice: CountLattice, rows: int, vector: Floats, confidence: float) -> list[Told]:
    """The tables of a release, from its vector."""
    ends = np.cumsum(lattice.sizes)[:-1]
    return [
        Told(part, rows, lattice.deviation(number), lattice.noise == "laplace", confidence)
        for number, part in enumerate(np.split(vector, ends))
    ]


def share(estimate: float, rows: int, z: float, noise: float) -> Interval:
    """Of a population: all p with (estimate - p)^2 <= z^2 p (1 - p)/rows + noise^2, which is Wilson's
    interval where there is no noise. Estimates are kept within [0, 1]: that moves none away from p."""
    estimate = min(max(estimate, 0.0), 1.0)
    a = z**2 / rows
    middle = estimate + a / 2
    root = sqrt(max(middle**2 - (1 + a) * (estimate**2 - noise**2), 0.0))
    low, high = (middle - root) / (1 + a), (middle + root) / (1 + a)
    return Interval(estimate, max(low, 0.0), min(high, 1.0))
