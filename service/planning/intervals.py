"""Intervals for what noisy counts say of a population, with the sampling of rows and the noise.

Rows are taken to be independent draws; all else is derived. z is the normal's two-sided 95 % point,
or, for Laplace noise, whose tails are longer, that of a single Laplace deviate: a sum of several,
or of one with a normal, has shorter ones.

**Ratios** (shares, precision, recall, F1) by Fieller's method. With A and B linear in the counts, v
is in the interval if E[A - v B] = 0 is not refuted:

    (A - v B)^2 <= z^2 (k v (1 - v) B + Var(noise of A - v B)),

a quadratic in v. Without noise that is Wilson's interval, which never has width 0; where noise
hides whether B is above 0 it is all of [0, 1]. B of the sampling variance is taken one deviation of
its noise up, and k is 1 for a share; F1 = 2 TP/(2 TP + FP + FN) has k = 2 - v, for a record that is
right weighs 2 in both.

**AUC** by the same method with U - v P Q in the place of A - v B: U = sum over bins b > b' of p_b
q_b', half of those alike, P and Q the sums of p and q. Noise of different cells is independent (or
its covariance is known, and taken out), so E[U - v P Q] is 0 at the true v. Its variance has a part
of p's noise and one of q's, which the noisy counts overstate, and the placements' sampling
variance.

**Means** of values in [0, 1] from noisy sums of v and v^2: the variance is taken one deviation of
its noise up, and never above m (1 - m), which no distribution on [0, 1] exceeds.

**Combinations** of estimates with intervals of their own: distances to the bounds add up as roots
of squares if the estimates are independent (Zou and Donner 2008) and none was cut at 0 or 1, else
plainly, which is conservative.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
CONFIDENCE = 0.95
Z = {"gaussian": 1.959964, "laplace": 2.118298}


@dataclass(frozen=True)
class Estimate:
    """What is measured, and between which bounds it is with probability `confidence`."""

    value: float
    low: float
    high: float

    def view(self) -> dict[str, float]:
        return {"value": self.value, "low": self.low, "high": self.high, "confidence": CONFIDENCE}

    @property
    def cut(self) -> bool:
        """Whether an interval of a share ends where shares do, and so perhaps too near its value."""
        return self.low <= 0 or self.high >= 1

    def scaled(self, factor: float) -> "Estimate":
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def within(self, low: float, high: float) -> "Estimate":
        return Estimate(*(min(max(v, low), high) for v in (self.value, self.low, self.high)))


@dataclass(frozen=True)
class Noisy:
    """Noisy counts of the cells of a table: their deviation, and how their noise is distributed. Where
    all records are in some cell their number is known, and what noise has added to it is taken out
    again, evenly: `mean_out` says that it was."""

    counts: Floats
    deviation: float
    noise: str
    mean_out: bool = False

    @property
    def z(self) -> float:
        return Z[self.noise]

    def covariance(self, a: Floats, b: Floats) -> float:
        """Of the noise in <a, counts> and <b, counts>."""
        out = a.sum() * b.sum() / len(self.counts) if self.mean_out else 0.0
        return float(self.deviation**2 * (a @ b - out))

    def centred(self, rows: int) -> "Noisy":
        moved = self.counts - (self.counts.sum() - rows) / len(self.counts)
        return Noisy(moved, self.deviation, self.noise, True)

    def ratio(self, a: Floats, b: Floats, weighs: float = 1.0) -> Estimate:
        """<a, counts>/<b, counts>, a part of it: a record adds 0 or `weighs` to the part."""
        A, B = float(a @ self.counts), float(b @ self.counts)
        part, across, whole = self.covariance(a, a), self.covariance(a, b), self.covariance(b, b)
        share = min(max(A / B, 0.0), 1.0) if B > 0 else 0.5
        k = weighs - (weighs - 1.0) * share
        sampled = k * max(B + sqrt(max(whole, 0.0)), 0.0)
        z2 = self.z**2
        low, high = _below_zero(
            B * B - z2 * (whole - sampled),
            -2 * A * B - z2 * (sampled - 2 * across),
            A * A - z2 * part,
        )
        low, high = max(low, 0.0), min(high, 1.0)
        if not low <= high:
            low, high = 0.0, 1.0
        return Estimate(min(max(share, low), high), low, high)


def _below_zero(a: float, b: float, c: float) -> tuple[float, float]:
    """Where a v^2 + b v + c <= 0, or everywhere if that is no interval."""
    root = b * b - 4 * a * c
    if not (a > 0 and root >= 0 and isfinite(root)):
        return -inf, inf
    return (-b - sqrt(root)) / (2 * a), (-b + sqrt(root)) / (2 * a)


def area_under(cells: Noisy) -> Estimate:
    """The chance that a positive is in a higher bin than a negative, half of those in the same. Cells
    are bins by label, negative first."""
    q, p = cells.counts[::2], cells.counts[1::2]
    P, Q, bins = p.sum(), q.sum(), len(p)
    beneath = np.cumsum(q) - q / 2  # for each bin, the negatives below it
    above = P - np.cumsum(p) + p / 2  # and the positives above
    # where noise was taken out evenly, that of two cells has a covariance: it is taken out too
    shared = cells.deviation**2 / (2 * bins) if cells.mean_out else 0.0
    U, PQ = float(p @ beneath) + shared * bins**2 / 2, float(P * Q) + shared * bins**2
    # U - v P Q is as steep in the counts as `constant` + v `slope`
    constant, slope = np.empty((2, 2 * bins))
    constant[::2], constant[1::2], slope[::2], slope[1::2] = above, beneath, -P, -Q
    drawn = np.maximum(cells.counts, 0.0)
    variances = [
        cells.covariance(constant, constant) + drawn @ constant**2,
        2 * cells.covariance(constant, slope) + 2 * drawn @ (constant * slope),
        cells.covariance(slope, slope) + drawn @ slope**2,
    ]
    least, middle, most = (cells.z**2 * float(v) for v in variances)
    low, high = _below_zero(PQ**2 - most, -2 * U * PQ - middle, U**2 - least)
    if min(P, Q) <= 0 or not max(low, 0.0) <= min(high, 1.0):
        low, high = 0.0, 1.0
    value = U / PQ if PQ > 0 else 0.5
    return Estimate(value, low, high).within(max(low, 0.0), min(high, 1.0))


def mean_of(total: float, squares: float, rows: int, deviation: float, noise: str) -> Estimate:
    """Of a value in [0, 1], from noisy sums of it and of its square."""
    mean, of_squares = total / rows, squares / rows
    within = min(max(mean, 0.0), 1.0)
    spread = min(max(of_squares - within**2 + deviation / rows, 1 / rows), 0.25)
    largest = within * (1 - within) + deviation / rows
    half = Z[noise] * sqrt(min(spread, largest) / rows + (deviation / rows) ** 2)
    return Estimate(mean, mean - half, mean + half).within(0.0, 1.0)


def average(estimates: Sequence[Estimate]) -> Estimate:
    """Of independent shares."""
    if any(e.cut for e in estimates):
        return plainly(estimates)
    k, value = len(estimates), sum(e.value for e in estimates) / len(estimates)
    below = sqrt(sum((e.value - e.low) ** 2 for e in estimates)) / k
    above = sqrt(sum((e.high - e.value) ** 2 for e in estimates)) / k
    return Estimate(value, value - below, value + above)


def difference(one: Estimate, other: Estimate) -> Estimate:
    """Of independent shares."""
    value = one.value - other.value
    if one.cut or other.cut:
        return Estimate(value, one.low - other.high, one.high - other.low)
    below = sqrt((one.value - one.low) ** 2 + (other.high - other.value) ** 2)
    above = sqrt((one.high - one.value) ** 2 + (other.value - other.low) ** 2)
    return Estimate(value, value - below, value + above)


def plainly(estimates: Sequence[Estimate]) -> Estimate:
    """The average of estimates that may depend on each other."""
    k = len(estimates)
    low, high = sum(e.low for e in estimates) / k, sum(e.high for e in estimates) / k
    return Estimate(sum(e.value for e in estimates) / k, low, high)


def quotient(one: Estimate, other: Estimate) -> Estimate:
    """Of two that may depend on each other and are not below 0; of next to nothing it is large, and
    finite."""
    least = 1e-4
    low, high = one.low / max(other.high, least), one.high / max(other.low, least)
    return Estimate(min(max(one.value / max(other.value, least), low), high), low, high)
