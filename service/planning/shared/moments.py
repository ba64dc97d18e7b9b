"""Noisy second moments of the rows and the label, released once.

z is a stored integer row x, ||x||_2 <= l2_units, with the label as one more entry: y label_units
towards zero, clamped as an integer to label_units (a NaN or an infinity counts as 0). So
|z|^2 <= R^2 = l2_units^2 + label_units^2, by integers. Released is the lower triangle of the sum of
z z', its diagonal times a and the entries below it times b, integers with b^2 <= 2 a^2.

**Sensitivity.** Replacing a record with z by one with u moves the sum of z z' by E = z z' - u u'.

- l2: the weighted triangle is no longer than a times the Frobenius norm, for an entry beside the diagonal
  is in the matrix twice and b^2 <= 2 a^2. ||E||^2 = |z|^4 + |u|^4 - 2 <z, u>^2 <= 2 R^4: not 4 R^4, as
  both matrices are positive semidefinite. So D = a sqrt(2) R^2, rounded up. Attained by z and u at right
  angles, each of length R.
- l1, with b = a: the sum over j <= i of |z_i z_j| is (||z||_1^2 + |z|^2)/2, and E has at most twice that:
  D = a (N^2 + R^2), N = the largest ||x||_1 plus label_units.

**Range.** An entry of the sum is below n M^2, M the largest entry of z: a is so small that b n M^2 < 2^62.
Within that bound it is as large as 2^10 or more, or 10 for 2^30 rows, so rounding wastes little.
"""

from math import isqrt, sqrt

from service.errors import PlanRefused
from service.planning.lattice import (
    BITS_MAX,
    MomentLattice,
    Target,
    largest_sensitivity,
    norm_of,
    row_units_of,
)
from service.planning.spec import Facts
from service.planning.vectors import Floats, length

COLUMNS_MAX = 1000  # half a million entries of noise, and matrices that are solved in a second
LABEL_UNITS_MAX = 2**14  # kernels multiply labels as 15-bit integers
LABEL_WEIGHT = 0.5  # of a label of 1, in row norms
_WEIGHT_MAX = 2**10  # of an entry: a thousandth is all that its rounding may waste
_RANGE = 2**62


def sensitivity(facts: Facts, norm: str, label_units: int, diagonal: int) -> int:
    """By which replacing a record moves the weighted triangle, at most."""
    assert facts.l2_units is not None
    squared = facts.l2_units**2 + label_units**2
    if norm == "l2":
        return isqrt(2 * (diagonal * squared) ** 2 - 1) + 1
    longest = (row_units_of(facts, norm) or 0) + label_units
    return diagonal * (longest**2 + squared)


def beside(norm: str, diagonal: int) -> int:
    return isqrt(2 * diagonal**2) if norm == "l2" else diagonal


def largest_diagonal(facts: Facts, norm: str, label_units: int) -> int:
    """The largest weight with which no entry of the sum leaves 62 bits."""
    assert facts.linf_units is not None
    entry = facts.rows * max(facts.linf_units, label_units) ** 2
    most = (_RANGE - 1) // entry
    most = isqrt(most**2 // 2) if norm == "l2" else most
    return min(most, _WEIGHT_MAX)


def calibrate_moments(name: str, goal: Target, facts: Facts) -> MomentLattice:
    """The lattice on which second moments cost at most what `goal` has."""
    assert facts.l2_units is not None and facts.feature_step is not None
    if facts.columns > COLUMNS_MAX:
        raise PlanRefused(
            f"{name} releases the second moments of all pairs of columns, of at most {COLUMNS_MAX}, and "
            f"this dataset has {facts.columns}; use gradient-descent."
        )
    norm = norm_of(goal)
    label_units = max(1, min(LABEL_UNITS_MAX, int(LABEL_WEIGHT * facts.l2_units)))
    one, most = (
        sensitivity(facts, norm, label_units, 1),
        largest_diagonal(facts, norm, label_units),
    )
    bits = 1
    while largest_sensitivity(goal, 1, bits + 1) // one <= most and bits <= BITS_MAX:
        bits += 1
    # the sensitivity of a is at most a times that of 1, which was rounded up
    diagonal = min(most, largest_sensitivity(goal, 1, bits) // one)
    if bits > BITS_MAX or diagonal < 1:
        raise PlanRefused(
            f"privacy.epsilon is too small for {name}: the noise of second moments would leave 64-bit "
            "integers. Ask a larger epsilon, or use gradient-descent."
        )
    return MomentLattice(
        noise="gaussian" if norm == "l2" else "laplace",
        bits=bits,
        norm=norm,
        diagonal=diagonal,
        beside=beside(norm, diagonal),
        label_units=label_units,
        sensitivity_units=sensitivity(facts, norm, label_units, diagonal),
        step=facts.feature_step**2 / diagonal,
    )


def spectral_noise(lattice: MomentLattice, columns: int, rows: int) -> float:
    """About how large the noise's largest eigenvalue is in the mean of x x': 2 sqrt(d) times an entry's
    deviation, by Wigner's law."""
    return 2 * sqrt(columns) * lattice.deviation / rows


def residual_noise(lattice: MomentLattice, facts: Facts, w: Floats) -> float:
    """About how far the noise of the moments may be off in the mean of (y - <w, x>)^2, w fitted to them."""
    label = (facts.feature_step or 0.0) * lattice.label_units
    entry, norm = lattice.deviation / facts.rows, length(w)
    chance = entry * sqrt(2 * norm**4 + (2 * norm / label) ** 2 + 2 / label**4)
    fitted = sqrt(facts.columns) * entry / label**2
    return chance + fitted
