"""Mechanisms: one noisy vector, or one choice.

`Laplace` and `Choice` have taken the place of `Pure` and `Exponential`, which stored Plans name: the
same mechanisms at the exact divergence instead of a bound on it.
"""

from fractions import Fraction
from math import gcd
from typing import Literal

from pydantic import PositiveInt, model_validator

from service.planning.amplification import ORDER_MAX, sampled_gaussian
from service.planning.divergences import (
    bounded_range,
    laplace,
    mu_squared_of_pure,
    mu_squared_of_range,
)
from service.planning.releases import metering
from service.planning.releases.base import ReleaseBase
from service.planning.releases.metering import Meter


class Gaussian(ReleaseBase):
    """An integer vector plus a normal of standard deviation `sigma` rounded to integers.

    round(q + N) = q + round(N) for an integer q, so the release is post-processing of the
    continuous Gaussian mechanism and costs exactly what that costs: sensitivity^2/(2 sigma^2) of
    zCDP, where `sensitivity` bounds the l2 distance of q between neighbours.
    """

    kind: Literal["gaussian"] = "gaussian"
    sensitivity: PositiveInt
    sigma: PositiveInt

    def renyi(self, order: int) -> Fraction:
        return order * Fraction(self.sensitivity**2, 2 * self.sigma**2)

    def pure(self) -> Fraction | None:
        return None

    def gaussian(self) -> Fraction | None:
        return self.mu_squared()

    def mu_squared(self) -> Fraction:
        return Fraction(self.sensitivity**2, self.sigma**2)

    def meter(self) -> Meter:
        return metering.Single("gaussian", self.sensitivity, self.sigma)


class Pure(ReleaseBase):
    """A release with pure epsilon = sensitivity / scale, such as Laplace noise of that scale added
    to integers whose l1 distance between neighbours is at most `sensitivity`.

    eps-DP implies eps^2/2-zCDP (Bun and Steinke 2016, Prop. 1.4) and divergence at most eps.
    """

    kind: Literal["pure"] = "pure"
    sensitivity: PositiveInt
    scale: PositiveInt

    def renyi(self, order: int) -> Fraction:
        epsilon = self.pure()
        return min(order * epsilon**2 / 2, epsilon)

    def pure(self) -> Fraction:
        return Fraction(self.sensitivity, self.scale)

    def mu_squared(self) -> Fraction:
        return mu_squared_of_pure(self.pure())

    def meter(self) -> Meter:
        return metering.Single("laplace", self.sensitivity, self.scale)


class Laplace(ReleaseBase):
    """An integer vector plus Laplace noise of `scale`, rounded, in every coordinate; `sensitivity`
    bounds the l1 distance between neighbours.

    Rounding is post-processing, as for `Gaussian`. A coordinate that is shifted by x scales has
    divergence log(a/(2a-1) e^((a-1)x) + (a-1)/(2a-1) e^(-ax))/(a-1): a logarithm of a sum of
    exponentials of linear functions, so convex in x, and 0 at 0. The sum over coordinates is
    therefore largest where one of them has all of the shift.
    """

    kind: Literal["laplace"] = "laplace"
    sensitivity: PositiveInt
    scale: PositiveInt

    def renyi(self, order: int) -> Fraction:
        return laplace(self.pure(), order)

    def pure(self) -> Fraction:
        return Fraction(self.sensitivity, self.scale)

    def mu_squared(self) -> Fraction:
        return mu_squared_of_pure(self.pure())

    def meter(self) -> Meter:
        return metering.Single("laplace", self.sensitivity, self.scale)


class Exponential(ReleaseBase):
    """A choice v with probability proportional to exp(-score(v)/scale).

    `sensitivity` bounds, over neighbours and over *pairs* of candidates, the change of the
    difference of their scores. The privacy loss then has range at most eps = sensitivity/scale,
    which gives eps-DP and eps^2/8-zCDP (Cesar and Rogers 2021, Lemma 3.4).
    """

    kind: Literal["exponential"] = "exponential"
    sensitivity: PositiveInt
    scale: PositiveInt

    def renyi(self, order: int) -> Fraction:
        epsilon = self.pure()
        return min(order * epsilon**2 / 8, epsilon)

    def pure(self) -> Fraction:
        return Fraction(self.sensitivity, self.scale)

    def mu_squared(self) -> Fraction:
        return mu_squared_of_range(self.pure())

    def meter(self) -> Meter:
        return metering.Single("exponential", self.sensitivity, self.scale)


class Choice(ReleaseBase):
    """A choice v with probability proportional to exp(-score(v)/scale); `sensitivity` as for
    `Exponential`.

    Its privacy loss lies in [t - e, t] for some t, with e = sensitivity/scale. e^loss has mean 1 and
    its a-th power is convex in it, so of all such losses one with two values has the largest
    divergence; the largest over t is `bounded_range`.
    """

    kind: Literal["choice"] = "choice"
    sensitivity: PositiveInt
    scale: PositiveInt

    def renyi(self, order: int) -> Fraction:
        return bounded_range(self.pure(), order)

    def pure(self) -> Fraction:
        return Fraction(self.sensitivity, self.scale)

    def mu_squared(self) -> Fraction:
        return mu_squared_of_range(self.pure())

    def meter(self) -> Meter:
        return metering.Single("exponential", self.sensitivity, self.scale)


class SampledGaussian(ReleaseBase):
    """A `Gaussian` on `batch` rows drawn uniformly without replacement from `population`, fewer than
    all, fresh and secret for each use. amplification.py has the theorem. Never more than the Gaussian
    itself: the positions do not depend on the data, so the mixture is jointly quasi-convex.
    """

    kind: Literal["sampled_gaussian"] = "sampled_gaussian"
    sensitivity: PositiveInt
    sigma: PositiveInt
    batch: PositiveInt
    population: PositiveInt

    @model_validator(mode="after")
    def _batch_is_smaller(self) -> "SampledGaussian":
        if self.batch >= self.population:
            raise ValueError("a batch is fewer rows than those it is drawn from")
        return self

    def renyi(self, order: int) -> Fraction:
        z_squared = Fraction(self.sensitivity**2, self.sigma**2)
        plain = order * z_squared / 2
        if order > ORDER_MAX:
            return plain
        common = gcd(self.batch, self.population)
        share = self.batch // common, self.population // common
        amplified = sampled_gaussian(z_squared, *share, order)
        return plain if amplified is None else min(plain, amplified)

    def pure(self) -> Fraction | None:
        return None

    def mu_squared(self) -> Fraction:
        """Of the Gaussian itself: given the positions, which do not depend on the data, the trade-off
        is no worse than G_mu or none at all, and G_mu is convex. A draw earns nothing here."""
        return Fraction(self.sensitivity**2, self.sigma**2)

    def meter(self) -> Meter:
        drawn = self.batch, self.population
        return metering.Single("gaussian", self.sensitivity, self.sigma, drawn)
