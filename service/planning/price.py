"""What a release costs in an account, and what an account can admit.

Two kinds of account. A `renyi` account fixes one integer order a* when it is opened and counts a
release at its Renyi divergence of that order divided by a* (for Gaussian noise that is its rho).
Comparing the sum with one threshold at one fixed order is a privacy filter: it holds although
analysts choose each job after seeing earlier results, and while jobs overlap (Feldman and Zrnic
2021). A `pure` account counts epsilons, which add.
"""

from fractions import Fraction
from math import floor, sqrt
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from service.planning.conversion import (
    UNITS,
    best_order,
    budget_units,
    epsilon_at_order,
    epsilon_of_gaussian,
    largest_epsilon,
)
from service.planning.releases import Release

_ORDERS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256)


class AccountTerms(BaseModel):
    """The part of an account that pricing needs; public, fixed when the ceiling is set."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    kind: Literal["renyi", "pure"]
    delta: float = Field(ge=0, lt=1)
    order: int | None = Field(default=None, ge=2)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        renyi = self.kind == "renyi"
        if (self.delta > 0) != renyi or (self.order is not None) != renyi:
            raise ValueError("a renyi account has delta > 0 and an order; a pure one has neither")
        return self

    @classmethod
    def for_ceiling(cls, epsilon: float, delta: float) -> Self:
        if delta == 0:
            return cls(kind="pure", delta=0.0)
        return cls(kind="renyi", delta=delta, order=best_order(epsilon, delta))


def largest_fitting_epsilon(units: int, delta: float, terms: AccountTerms) -> float:
    """An epsilon at which a job certainly fits `units` of the account: the largest, where the job
    and the account count in the same currency."""
    if delta > 0 or terms.order is None:
        return largest_epsilon(units, delta)
    # a pure job of epsilon costs at most min(epsilon^2/2, epsilon/order), however it is composed
    rho = max(0, units) / UNITS
    return floor(max(sqrt(2 * rho), terms.order * rho) * (1 - 1e-9) * 10**6) / 10**6


class NotPureError(ValueError):
    """A release without a pure epsilon was priced in a pure account."""


def price_units(release: Release, terms: AccountTerms) -> int:
    """The cost of a release in the account's units, rounded up."""
    if terms.order is None:
        epsilon = release.pure()
        if epsilon is None:
            raise NotPureError
        return _ceil(epsilon * UNITS)
    return _ceil(release.renyi(terms.order) / terms.order * UNITS)


def fits_own_target(release: Release, epsilon: float, delta: float) -> bool:
    """Whether the release, taken alone, is (epsilon, delta)-DP by the ledger's conversion."""
    if delta == 0:
        pure = release.pure()
        return pure is not None and pure <= Fraction(epsilon)
    order = best_order(epsilon, delta)
    return _ceil(release.renyi(order) / order * UNITS) <= budget_units(epsilon, delta)


def epsilon_alone(release: Release, epsilon: float, delta: float) -> float:
    """The tightest epsilon we can state for this release alone, where it is known to satisfy
    (epsilon, delta): informative, never charged."""
    candidates = [epsilon]
    pure = release.pure()
    if pure is not None:
        candidates.append(_ceil(pure * 10**6) / 10**6)
    mu_squared = release.gaussian()
    if delta > 0 and mu_squared is not None:  # exact, so no order could do better
        candidates.append(epsilon_of_gaussian(mu_squared, delta))
    elif delta > 0:
        candidates += [epsilon_at_order(release.renyi(a), delta, a) for a in _ORDERS]
    return min(candidates)


def _ceil(value: Fraction) -> int:
    return -(-value.numerator // value.denominator)
