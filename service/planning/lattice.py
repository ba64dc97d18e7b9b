"""Calibration on the integer lattice: from a budget to clip, lattice step and noise.

What is released is always an integer vector: the sum over rows of integer contributions, plus an
integer noise whose scale is a power of two, 2^bits, in lattice units. So one sampler serves every
Plan, and what calibration chooses is how large one record may be in those units:

    Gaussian: T releases on the same rows cost T (2c)^2 / (2 * 4^bits) of rho, so
              c = isqrt(units * 4^bits / (2 T UNITS)) is the largest contribution that fits;
    Laplace:  T releases cost T * 2c / 2^bits of epsilon, so c = units * 2^bits / (2 T UNITS).

Replace-one neighbours: a record of norm at most c is exchanged for another such, so the sum moves by
at most 2c. `bits` is then taken just large enough that c keeps the wanted precision.

Two shapes of contribution:

- fixed storage: q * x, with x the stored integer row (||x||_2 <= l2_units, checked exactly when it
  was stored) and q the record's scalar derivative as an integer, |q| <= derivative_units. Norm at
  most derivative_units * l2_units: no rounding can break it. l1: at most sqrt(d) times that.
- float64 storage: an integer vector v whose norm is checked against contribution_units in exact
  integer arithmetic, after rounding towards zero.
"""

from dataclasses import dataclass
from math import isqrt
from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt

from service.errors import PlanRefused
from service.planning.conversion import UNITS, budget_units
from service.planning.releases import Gaussian, Pure
from service.planning.spec import Facts, JobSpec

DERIVATIVE_UNITS = 2**15 - 1  # |q|; with |x| < 2^12, sixteen products still sum within int32
CONTRIBUTION_UNITS = 2**30  # |v|; squares of norm at most this sum within int64
_BITS_MAX = 56  # leaves 2^7 standard deviations within int64, whose wrap-around is post-processing


class Lattice(BaseModel):
    """How one noisy sum is made; every field may be published."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    noise: Literal["gaussian", "laplace"]
    bits: PositiveInt  # the noise scale is 2^bits lattice units
    norm: Literal["l2", "l1"]  # of a contribution
    contribution_units: PositiveInt  # the bound on that norm
    derivative_units: PositiveInt | None  # fixed storage: the bound on |q|
    clip: PositiveFloat  # the same bound in gradient units
    step: PositiveFloat  # gradient units per lattice unit

    def release(self) -> Gaussian | Pure:
        """One noisy sum, under replacement of one record."""
        if self.noise == "gaussian":
            return Gaussian(sensitivity=2 * self.contribution_units, sigma=2**self.bits)
        return Pure(sensitivity=2 * self.contribution_units, scale=2**self.bits)

    @property
    def noise_scale(self) -> float:
        """Standard deviation (Gaussian) or scale (Laplace) of the noise in a sum, gradient units."""
        return float(self.step * 2.0**self.bits)

    @property
    def variance(self) -> float:
        """Of the noise in one coordinate of a sum, in squared gradient units."""
        return self.noise_scale**2 * (1 if self.noise == "gaussian" else 2)


@dataclass(frozen=True)
class Target:
    """What a job asks: (epsilon, delta), and the ledger units that it buys."""

    epsilon: float
    delta: float
    units: int

    @property
    def rho(self) -> float:
        """The zCDP that the budget holds, for schedules: never for a price."""
        amount = self.units / UNITS
        return amount if self.delta > 0 else amount**2 / 2


def target(spec: JobSpec, facts: Facts) -> Target:
    """The job's delta defaults to its account's, and its budget comes by the same conversion."""
    account = facts.account
    delta = account.delta if spec.privacy.delta is None else spec.privacy.delta
    if account.kind == "pure" and delta > 0:
        raise PlanRefused(
            "this dataset's account is pure (delta = 0); leave privacy.delta out or set it to 0."
        )
    units = budget_units(spec.privacy.epsilon, delta)
    if units == 0:
        raise PlanRefused(
            "privacy.epsilon is too small for the ledger's smallest unit; use 0.0001."
        )
    return Target(epsilon=spec.privacy.epsilon, delta=delta, units=units)


def calibrate(goal: Target, facts: Facts, clip_bound: float, times: int) -> Lattice:
    """The lattice on which `times` noisy sums over the same rows cost at most what the job asks.

    `clip_bound` bounds the scalar derivative (fixed storage) or the gradient norm (float64).
    """
    units = goal.units
    norm: Literal["l2", "l1"] = "l2" if goal.delta > 0 else "l1"
    row_units = _row_units(facts, norm)
    wanted = CONTRIBUTION_UNITS if row_units is None else DERIVATIVE_UNITS * row_units
    bits = 1
    while _largest_contribution(units, times, bits + 1, norm) <= wanted:
        bits += 1
    if bits > _BITS_MAX:
        raise PlanRefused(
            f"privacy.epsilon is too small for {times} steps: the noise would exceed 2^{_BITS_MAX} "
            "lattice units. Ask fewer steps or a larger epsilon."
        )
    largest = _largest_contribution(units, times, bits, norm)
    if row_units is None or facts.feature_step is None:
        derivative_units, contribution_units = None, largest
        clip, step = clip_bound, clip_bound / largest
    else:
        derivative_units = largest // row_units
        contribution_units = derivative_units * row_units
        clip = clip_bound * row_units * facts.feature_step
        step = clip_bound / derivative_units * facts.feature_step
    return Lattice(
        noise="gaussian" if norm == "l2" else "laplace",
        bits=bits,
        norm=norm,
        contribution_units=contribution_units,
        derivative_units=derivative_units,
        clip=clip,
        step=step,
    )


def _largest_contribution(units: int, times: int, bits: int, norm: str) -> int:
    if norm == "l2":
        return isqrt((units << 2 * bits) // (2 * times * UNITS))
    return (units << bits) // (2 * times * UNITS)


def _row_units(facts: Facts, norm: str) -> int | None:
    """The bound on a stored row's norm in feature units, or None for float64 storage."""
    if facts.l2_units is None:
        return None
    if norm == "l2":
        return facts.l2_units
    return isqrt(facts.columns * facts.l2_units**2)  # ||x||_1 <= sqrt(d) ||x||_2, and is an integer
