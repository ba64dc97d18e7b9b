"""Calibration on the integer lattice: from a budget to clip, lattice step and noise.

What is released is always an integer vector plus an integer noise whose scale is a power of two,
2^bits, in lattice units. So one sampler serves every Plan, and what calibration chooses is how far one
record may move the vector, in those units:

    Gaussian: T releases on the same rows cost T D^2 / (2 * 4^bits) of rho, so
              D = isqrt(2 * units * 4^bits / (T UNITS)) is the largest sensitivity that fits;
    Laplace:  T releases cost T * D / 2^bits of epsilon, so D = units * 2^bits / (T UNITS).

`bits` is then taken just large enough that the wanted precision is kept.

**Sums.** The vector is a sum over rows of integer contributions of norm at most c. Replace-one
neighbours exchange one such for another, so D = 2c. Three shapes of contribution:

- fixed storage: q * x, with x the stored integer row (||x||_2 <= l2_units, checked exactly when it
  was stored) and q the record's scalar derivative as an integer, |q| <= derivative_units. Norm at
  most derivative_units * l2_units: no rounding can break it. l1: at most sqrt(d) times that.
- fixed storage, softmax: the same with one q per class, and the norm of q checked in integers.
- otherwise an integer vector v whose norm is checked against contribution_units in exact integer
  arithmetic, after rounding towards zero.

**Points.** The vector is a point computed from the data in floating point, rounded to the nearest
multiple of a step. Replacing a record moves the point by at most S (the plan's docstring says why, and
S includes the floats' rounding); rounding to the lattice moves either side by at most
sqrt(d)/2 units in l2 or d/2 in l1, and the division that precedes it by less than 2^-3 of a unit per
entry, as points stay below 2^50 units. Together less than isqrt(2 d) + 1, or 2 d: `slack_units`.

**Moments.** The vector is a sum of functions of one row and its label: shared/moments.py bounds D.

**Counts.** The vector has the counts of tables, each record in one cell of each: tables.py bounds D.

**Scores.** Candidates' scores are integers, functions of one exact sum of contributions q x with
|q| <= derivative_units; a choice is made with probability proportional to exp(-score/scale). `scale`
is the smallest for which T choices on the same rows cost no more than was asked, at all the terms that
bind: on a renyi account at the job's order and at those of the account and its limits.
"""

from dataclasses import dataclass
from math import isqrt, sqrt
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from service.errors import PlanRefused
from service.planning.conversion import UNITS, budget_units
from service.planning.price import AccountTerms, price_units
from service.planning.problem import Problem
from service.planning.releases import Choice, Gaussian, Laplace, Release, Repeat
from service.planning.spec import Facts, JobSpec

DERIVATIVE_UNITS = 2**15 - 1  # |q|; with |x| < 2^12, sixteen products still sum within int32
CONTRIBUTION_UNITS = 2**30  # |v|; squares of norm at most this sum within int64
NETWORK_UNITS = 2**31 - 1  # of a network's gradient: its square is within int64
POINT_UNITS_MAX = 2**50  # of a point's entries: a float64 holds them to an eighth of a unit
SCALE_MAX = 2**62  # of a choice
_POINT_PRECISION = 2**16  # sensitivity over slack: what rounding to the lattice may cost
_SMALLER = 24  # attempts at a smaller scale
BITS_MAX = 56  # leaves 2^7 standard deviations within int64, whose wrap-around is post-processing


class _Lattice(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    noise: Literal["gaussian", "laplace"]
    bits: PositiveInt  # the noise scale is 2^bits lattice units
    norm: Literal["l2", "l1"]  # in which sensitivity is measured

    def variance_of(self, step: float) -> float:
        """Of the noise in one coordinate of what is released, where a lattice unit is worth `step`."""
        return float((step * 2.0**self.bits) ** 2) * (1 if self.noise == "gaussian" else 2)

    def _release(self, sensitivity: int) -> Gaussian | Laplace:
        if self.noise == "gaussian":
            return Gaussian(sensitivity=sensitivity, sigma=2**self.bits)
        return Laplace(sensitivity=sensitivity, scale=2**self.bits)


class SumLattice(_Lattice):
    """How one noisy sum is made; every field may be published."""

    kind: Literal["sum"] = "sum"
    contribution_units: PositiveInt  # the bound on one record's norm, at each point
    points: PositiveInt = 1  # at which gradients are added up before the noise
    derivative_units: PositiveInt | None  # fixed storage: the bound on |q|
    clip: PositiveFloat  # the bound in gradient units
    step: PositiveFloat  # gradient units per lattice unit

    def release(self) -> Gaussian | Laplace:
        """One noisy sum, under replacement of one record."""
        return self._release(2 * self.points * self.contribution_units)

    @property
    def noise_scale(self) -> float:
        """Standard deviation (Gaussian) or scale (Laplace) of the noise in a sum, gradient units."""
        return float(self.step * 2.0**self.bits)

    @property
    def variance(self) -> float:
        """Of the noise in one coordinate of a sum, in squared gradient units."""
        return self.variance_of(self.step)


class PointLattice(_Lattice):
    """How a noisy point is made; every field may be published."""

    kind: Literal["point"] = "point"
    sensitivity_units: PositiveInt
    slack_units: PositiveInt  # of these, what rounding to the lattice takes

    def release(self) -> Gaussian | Laplace:
        return self._release(self.sensitivity_units)

    def step(self, sensitivity: float, dimension: int) -> float:
        """The lattice step at which a point of this l2 sensitivity has the lattice's own: rounded up,
        by far more than the float operations here could err."""
        in_norm = sensitivity * (sqrt(dimension) if self.norm == "l1" else 1.0)
        return in_norm / (self.sensitivity_units - self.slack_units) * (1 + 2.0**-40)

    def finest(self, radius: float, dimension: int) -> float:
        """The smallest l2 sensitivity for which points within `radius` stay below 2^50 units."""
        in_norm = radius / POINT_UNITS_MAX * (self.sensitivity_units - self.slack_units)
        return in_norm / (sqrt(dimension) if self.norm == "l1" else 1.0)


class MomentLattice(_Lattice):
    """How noisy moments of rows and label are made; every field may be published."""

    kind: Literal["moment"] = "moment"
    order: Literal[0, 1, 2]  # 0: the sum of labels alone
    diagonal: PositiveInt  # the weight of an entry of the diagonal in what is released
    beside: PositiveInt  # that of one beside it
    label_units: PositiveInt  # the bound on a label, as one more entry of the row
    sensitivity_units: PositiveInt
    step: PositiveFloat  # units of the rows (of their products) per lattice unit

    def release(self) -> Gaussian | Laplace:
        return self._release(self.sensitivity_units)

    def entries(self, columns: int) -> int:
        """Of what is released. Of the columns, the first is the constant."""
        return {0: 1, 1: columns + 2, 2: columns * (columns + 1) // 2}[self.order]


class CountLattice(_Lattice):
    """How noisy counts are made, of several tables together; every field may be published."""

    kind: Literal["count"] = "count"
    sizes: tuple[PositiveInt, ...]  # the entries of each table
    weights: tuple[PositiveInt, ...]  # lattice units per unit of an entry, by table
    sensitivity_units: PositiveInt

    def release(self) -> Gaussian | Laplace:
        return self._release(self.sensitivity_units)

    def entries(self, columns: int) -> int:
        """Of what is released, whatever columns there are."""
        return sum(self.sizes)

    def deviation(self, table: int) -> float:
        """The standard deviation of the noise in an entry of this table, in the table's units."""
        return sqrt(self.variance_of(1 / self.weights[table]))


class ScoreLattice(BaseModel):
    """How one candidate is chosen; every field may be published."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["score"] = "score"
    noise: Literal["gumbel"] = "gumbel"
    derivative_units: PositiveInt  # the bound on |q|
    step: PositiveFloat  # gradient units per unit of the sum
    sensitivity_units: PositiveInt  # of the difference of any two scores, under replacement
    scale: PositiveInt

    def release(self) -> Choice:
        """One choice, under replacement of one record."""
        return Choice(sensitivity=self.sensitivity_units, scale=self.scale)


Lattice = Annotated[
    SumLattice | PointLattice | MomentLattice | CountLattice | ScoreLattice,
    Field(discriminator="kind"),
]


@dataclass(frozen=True)
class Target:
    """What a job asks: (epsilon, delta), and the ledger units that it buys. Its releases may cost so
    much at each of the terms that it was told, those of the account and its limits, and must satisfy
    its own (epsilon, delta). Parts of a job share units out, at its `own` terms too."""

    epsilon: float
    delta: float
    units: int
    own: AccountTerms
    told: tuple[AccountTerms, ...]  # that count in the same currency

    @property
    def rho(self) -> float:
        """The zCDP that the budget holds, for schedules: never for a price."""
        amount = self.units / UNITS
        return amount if self.delta > 0 else amount**2 / 2

    @property
    def whole(self) -> bool:
        """Whether it is all that the job has, not a part."""
        return self.units == budget_units(self.epsilon, self.delta, self.own.kind)

    @property
    def terms(self) -> tuple[AccountTerms, ...]:
        """All at which units bind, each once."""
        return tuple({each.key: each for each in (self.own, *self.told)}.values())

    @property
    def credits_draws(self) -> bool:
        """Whether noise on a drawn batch costs less than on all rows: by its mu it does not."""
        return self.own.kind != "gaussian"

    @property
    def orders(self) -> list[int]:
        return [each.order for each in self.terms if each.order is not None]

    def cost(self, release: Release) -> int:
        """In units, at the terms where that is the most."""
        return max(price_units(release, each) for each in self.terms)


def target(spec: JobSpec, facts: Facts) -> Target:
    """The job's delta defaults to its account's, and its budget comes by the same conversion."""
    account = facts.account
    delta = account.delta if spec.privacy.delta is None else spec.privacy.delta
    if account.kind == "pure" and delta > 0:
        raise PlanRefused(
            "this dataset's account is pure (delta = 0); leave privacy.delta out or set it to 0."
        )
    epsilon = spec.privacy.epsilon
    own = AccountTerms.for_ceiling(epsilon, delta, account.kind if delta > 0 else None)
    told = (account, *facts.limits) if own.kind == account.kind else ()
    units = budget_units(epsilon, delta, own.kind)
    if units == 0:
        raise PlanRefused(
            "privacy.epsilon is too small for the ledger's smallest unit; use 0.0001."
        )
    return Target(epsilon, delta, units, own, told)


def calibrate(
    goal: Target, facts: Facts, p: Problem, clip_bound: float, times: int, points: int = 1
) -> SumLattice:
    """The lattice on which `times` noisy sums over the same rows cost at most what the job asks; each
    adds up gradients at so many points.

    `clip_bound` bounds the derivative (rows of bounded norm) or else the gradient norm.
    """
    norm = norm_of(goal)
    row_units = row_units_of(facts, norm) if p.rowwise else None
    wanted = CONTRIBUTION_UNITS if row_units is None else DERIVATIVE_UNITS * row_units
    wanted = min(wanted, p.units_max)
    bits = 1
    while largest_sensitivity(goal, times, bits + 1) // (2 * points) <= wanted:
        bits += 1
    if bits > BITS_MAX:
        raise PlanRefused(
            f"privacy.epsilon is too small for {times} steps: the noise would exceed 2^{BITS_MAX} "
            "lattice units. Ask fewer steps or a larger epsilon."
        )
    largest = largest_sensitivity(goal, times, bits) // (2 * points)
    lattice = sum_lattice(goal, facts, p, clip_bound, bits, largest)
    return lattice.model_copy(update={"points": points})


def sum_lattice(
    goal: Target, facts: Facts, p: Problem, clip_bound: float, bits: int, largest: int
) -> SumLattice:
    """The lattice of sums whose records may be up to `largest` units long, under noise of 2^bits."""
    norm = norm_of(goal)
    row_units = row_units_of(facts, norm) if p.rowwise else None
    if norm == "l1" and not (p.rowwise and row_units is None):  # an analyst's clip is in that norm
        clip_bound *= p.spread
    if row_units is None or facts.feature_step is None:
        derivative_units, contribution_units = None, largest
        clip, step = clip_bound, clip_bound / largest
    else:
        derivative_units = largest // row_units
        contribution_units = derivative_units * row_units
        clip = clip_bound * row_units * facts.feature_step
        step = clip_bound / derivative_units * facts.feature_step
    return SumLattice(
        noise="gaussian" if norm == "l2" else "laplace",
        bits=bits,
        norm=norm,
        contribution_units=contribution_units,
        derivative_units=derivative_units,
        clip=clip,
        step=step,
    )


def calibrate_point(
    goal: Target, dimension: int, sensitivity: float, radius: float
) -> PointLattice:
    """The lattice on which one noisy point costs at most what the job asks. Points lie within
    `radius`, and `sensitivity` is the smallest that a step will be made for."""
    norm = norm_of(goal)
    slack = isqrt(2 * dimension) + 1 if norm == "l2" else 2 * dimension
    bits = 1
    while largest_sensitivity(goal, 1, bits) < _POINT_PRECISION * slack:
        bits += 1
    lattice = PointLattice(
        noise="gaussian" if norm == "l2" else "laplace",
        bits=bits,
        norm=norm,
        sensitivity_units=largest_sensitivity(goal, 1, bits),
        slack_units=slack,
    )
    step = lattice.step(sensitivity, dimension)
    if bits > BITS_MAX or not step > 0 or radius / step > POINT_UNITS_MAX:
        raise PlanRefused(
            "the noise that this privacy needs is outside what 64-bit lattices hold; ask a larger "
            "epsilon, or a smaller set or ridge."
        )
    return lattice


def calibrate_choice(
    goal: Target, facts: Facts, slope_bound: float, sensitivity: int, times: int
) -> ScoreLattice:
    """The lattice on which `times` choices over the same rows cost at most what the job asks."""
    return ScoreLattice(
        derivative_units=DERIVATIVE_UNITS,
        step=slope_bound / DERIVATIVE_UNITS * (facts.feature_step or 0.0),
        sensitivity_units=sensitivity,
        scale=choice_scale(goal, sensitivity, times),
    )


def choice_scale(goal: Target, sensitivity: int, times: int) -> int:
    """The smallest scale, to a part in 2^20, at which `times` choices over the same rows cost at most
    what `goal` has.

    A choice of range e = sensitivity/scale costs e in a pure account; at order a at most min(e^2/8,
    e/a), and at most pi e^2/16 < e^2/5 by its mu. From the scale at which that bound fits it is made
    smaller, as if the cost fell with its square, while the exact cost still fits.
    """

    def cost(scale: int) -> int:
        choice = Choice(sensitivity=sensitivity, scale=scale)
        return goal.cost(Repeat(release=choice, times=times))

    if goal.delta > 0:
        per = 8 if goal.orders else 5
        scale = isqrt(-(-times * UNITS * sensitivity**2 // (per * goal.units)) - 1) + 1
        if goal.orders:
            linear = -(-times * UNITS * sensitivity // (min(goal.orders) * goal.units))
            scale = min(scale, linear)
        for _ in range(_SMALLER):
            less = isqrt(scale**2 * cost(scale) // goal.units) + 1
            if less > scale - (scale >> 20) - 1 or cost(less) > goal.units:
                break
            scale = less
    else:
        scale = -(-times * UNITS * sensitivity // goal.units)
    if scale > SCALE_MAX:
        raise PlanRefused(
            f"privacy.epsilon is too small for {times} steps: the scale of the choices would exceed "
            f"{SCALE_MAX} units. Ask fewer steps or a larger epsilon."
        )
    return scale


def largest_sensitivity(goal: Target, times: int, bits: int) -> int:
    """In lattice units, for `times` releases on the same rows under noise of scale 2^bits."""
    if goal.delta > 0:
        return isqrt((2 * goal.units << 2 * bits) // (times * UNITS))
    return (goal.units << bits) // (times * UNITS)


def norm_of(goal: Target) -> Literal["l2", "l1"]:
    return "l2" if goal.delta > 0 else "l1"


def row_units_of(facts: Facts, norm: str) -> int | None:
    """The bound on a stored row's norm in feature units, or None for float64 storage."""
    if facts.l2_units is None:
        return None
    if norm == "l2":
        return facts.l2_units
    return isqrt(facts.columns * facts.l2_units**2)  # ||x||_1 <= sqrt(d) ||x||_2, and is an integer
