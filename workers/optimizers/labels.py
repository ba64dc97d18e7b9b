"""The mean of labels, from their noisy sum."""

from math import erf, exp, pi, sqrt

from service.planning.lattice import MomentLattice
from workers.data import Data

_FAR = 4.0  # deviations: what lies further outside is noise for certain


def mean_label(data: Data, lattice: MomentLattice, rows: int) -> tuple[float, float]:
    """As it was released, and its noise."""
    noise = sqrt(lattice.variance_of(lattice.step / lattice.label_units)) / rows
    return float(data.noisy_label_sum()[0]) / rows, noise


def expected(seen: float, noise: float) -> float:
    """Of a number that may be anywhere in [-1, 1], given it with normal noise."""
    seen = min(max(seen, -1 - _FAR * noise), 1 + _FAR * noise)
    low, high = (-1 - seen) / noise, (1 - seen) / noise
    inside = (erf(high / sqrt(2)) - erf(low / sqrt(2))) / 2
    density = (exp(-(low**2) / 2) - exp(-(high**2) / 2)) / sqrt(2 * pi)
    return min(max(seen + noise * density / inside, -1.0), 1.0)
