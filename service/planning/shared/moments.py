"""First and second moments of rows and label, with noise, and rows in coordinates that follow from
them.

Column 0 is the constant of the encoding; x is a stored integer row without it, ||x||_2 <= l2_units.
A label enters as an integer t towards zero, clamped as an integer to label_units (a NaN, or an
infinity, counts as 0).

**First moments.** The sum of u = (x, t, floor(|x|^2/L), floor(t^2 L/label_units^2)), L = l2_units,
times an integer a; the last is 0 for a binary label. Replacing a record moves x and t by at most
twice their bounds, and the other two, which are not negative, by L. So in l2

    D = a sqrt(4 (L^2 + label_units^2) + L^2 + L^2), rounded up,

the last L^2 not for a binary label; and in l1 the sum of the same bounds, with isqrt(d L^2) for x.

**Labels alone.** The sum of t times a: replacing a record moves it by at most D = 2 a label_units, in
l2 and in l1, and no row enters.

**Derived rows.** Whatever has been released may say which coordinates rows are to be seen in: a
derived row is a function of one stored row and of public numbers, so replacing one record replaces
one of them. Its norm without the constant is at most 4095, *enforced on integers*
(workers/kernels/derive.py) as that of stored rows is at ingestion; its column 0 is a constant of
the Plan, K. So sums over derived rows have a sensitivity that rests on `derived` facts, and on
nothing that was released.

**Second moments.** z is a derived row without the constant, with the label as one more entry: |z|^2
<= R^2 = 4095^2 + label_units^2. Released is the lower triangle of the sum of z z', its diagonal
times a and the entries below it times b, integers with b^2 <= 2 a^2. Replacing z by u moves the sum
by E = z z' - u u'.

- l2: the weighted triangle is no longer than a times the Frobenius norm, for an entry beside the
  diagonal is in the matrix twice and b^2 <= 2 a^2. ||E||^2 = |z|^4 + |u|^4 - 2 <z, u>^2 <= 2 R^4:
  not 4 R^4, as both matrices are positive semidefinite. So D = a sqrt(2) R^2, rounded up. Attained
  by z and u at right angles, each of length R.
- l1, with b = a: the sum over j <= i of |z_i z_j| is (||z||_1^2 + |z|^2)/2, and E has at most twice
  that: D = a (N^2 + R^2), N = the largest ||z||_1.

**Range.** An entry of a contribution is at most M, and a is so small that b n M < 2^62. Within that,
a is at most 2^14, and about 180 for 2^30 rows of second moments: its rounding wastes little.
"""

from dataclasses import replace
from math import isqrt, sqrt
from typing import Literal

from pydantic import PositiveFloat

from service.errors import PlanRefused
from service.planning.draft import Part
from service.planning.lattice import (
    BITS_MAX,
    MomentLattice,
    Target,
    largest_sensitivity,
    norm_of,
)
from service.planning.spec import Facts

COLUMNS_MAX = 1000  # half a million entries of noise, and systems that are solved in a second
DERIVED_UNITS = 4095  # the bound on a derived row, without its constant
LABEL_WEIGHT = 0.5  # of a label at its bound, in bounds of a row
LABEL_UNITS = 2**20  # of a label that is summed by itself
_WEIGHT_MAX = 2**14  # of an entry: its rounding wastes next to nothing
_RANGE = 2**62

Order = Literal[0, 1, 2]


class Coordinates(Part):
    """Numbers of a run's own rules, by which releases become coordinates."""

    row_radius: PositiveFloat  # of centred rows, in root mean squares
    label_radius: PositiveFloat = 2.5  # in standard deviations
    threshold: PositiveFloat = 0.7  # below it an eigenvalue is noise, in norms of that
    damping: PositiveFloat = 0.3  # added to each, in the same
    effective: PositiveFloat  # how many dimensions white rows may have, where labels are balanced
    white_radius: PositiveFloat  # of white rows, in root mean squares
    doubt: PositiveFloat = 0.5  # standard deviations of chance that a model must be longer by


def derived(facts: Facts, constant: int) -> Facts:
    """What is public of derived rows: units of 1/4095, and a norm of 1 besides the constant."""
    longest = isqrt(DERIVED_UNITS**2 + constant**2 - 1) + 1
    return facts.model_copy(
        update={
            "feature_step": 1 / DERIVED_UNITS,
            "linf_units": DERIVED_UNITS,
            "l2_units": longest,
        }
    )


def row_bound(facts: Facts, order: Order) -> int:
    """On the l2 norm of x, or of a derived row without its constant; none is summed at order 0."""
    return {0: 0, 1: facts.l2_units or 0, 2: DERIVED_UNITS}[order]


def sensitivity(facts: Facts, order: Order, norm: str, label: int, a: int) -> int:
    """By which replacing a record moves the weighted moments, at most."""
    row = row_bound(facts, order)
    row_l1 = isqrt((facts.columns - 1) * row**2)
    squares = 1 if facts.label == "binary" else 2  # that are released besides
    if order == 0:
        return 2 * a * label
    if order == 1 and norm == "l2":
        return isqrt(a**2 * (4 * (row**2 + label**2) + squares * row**2) - 1) + 1
    if order == 1:
        return a * (2 * (row_l1 + label) + squares * row)
    if norm == "l2":
        return isqrt(2 * (a * (row**2 + label**2)) ** 2 - 1) + 1
    return a * ((row_l1 + label) ** 2 + row**2 + label**2)


def beside(order: Order, norm: str, a: int) -> int:
    return isqrt(2 * a**2) if (order, norm) == (2, "l2") else a


def largest_weight(facts: Facts, order: Order, norm: str, label: int) -> int:
    """The largest a with which no entry of the sum leaves 62 bits."""
    longest = max(row_bound(facts, order), label)
    most = (_RANGE - 1) // (facts.rows * longest ** max(order, 1))
    most = isqrt(most**2 // 2) if (order, norm) == (2, "l2") else most
    return min(most, _WEIGHT_MAX)


def calibrate_moments(name: str, goal: Target, facts: Facts, order: Order) -> MomentLattice:
    """The lattice on which moments of this order cost at most what `goal` has."""
    if order > 0 and facts.columns > COLUMNS_MAX:
        raise PlanRefused(
            f"{name} releases the second moments of all pairs of columns, of at most {COLUMNS_MAX}, "
            f"and this dataset has {facts.columns}; use an algorithm that sums gradients alone."
        )
    norm = norm_of(goal)
    label = max(1, int(LABEL_WEIGHT * row_bound(facts, order))) if order else LABEL_UNITS
    one, most = (
        sensitivity(facts, order, norm, label, 1),
        largest_weight(facts, order, norm, label),
    )
    bits = 1
    while bits < BITS_MAX and largest_sensitivity(goal, 1, bits + 1) // one <= most:
        bits += 1
    # D of a is at most a times that of 1, which was rounded up
    a = min(most, largest_sensitivity(goal, 1, bits) // one)
    if a < 1:
        raise PlanRefused(
            f"privacy.epsilon is too small for {name}: the noise of moments would leave 64-bit "
            "integers. Ask a larger epsilon, or use an algorithm that sums gradients alone."
        )
    return MomentLattice(
        order=order,
        noise="gaussian" if norm == "l2" else "laplace",
        bits=bits,
        norm=norm,
        diagonal=a,
        beside=beside(order, norm, a),
        label_units=label,
        sensitivity_units=sensitivity(facts, order, norm, label, a),
        step=1 / a,
    )


def part_of(goal: Target, share: float) -> Target:
    """For moments; enough to pay for something."""
    part = replace(goal, units=int(goal.units * share))
    if part.units == 0:
        raise PlanRefused(
            "privacy.epsilon is too small to pay for moments and for more; ask a larger epsilon."
        )
    return part


def deviation(lattice: MomentLattice) -> float:
    """Of the noise in an entry of a sum (of second moments, beside the diagonal), in units of rows."""
    return sqrt(lattice.variance_of(1.0)) / lattice.beside
