"""A small algebra of releases that price themselves.

A release says what leaves the data: a mechanism, an integer sensitivity and an integer noise scale
in units of its lattice, and how mechanisms combine. It prices itself three ways, all as exact
rationals that are upper bounds:

- `renyi(order)`: the Renyi divergence at an integer order >= 2 between neighbours;
- `pure()`: the pure epsilon, or None where there is none;

- `mu_squared()`: mu^2 for a mu at which it is mu-GDP (no easier to tell apart than two unit normals
  whose means are mu apart);

and says with `gaussian()` the squared mu of the single Gaussian it is equivalent to, where it is.
While a job runs, `meter()` lets out what was priced and nothing else (metering.py).

Neighbours differ by replacing one record; the number of rows is public. Sensitivities below are for
that relation: a sum of vectors of norm at most C has sensitivity 2C.

Rules for this package: add kinds, never change the meaning of one. A stored Plan must price the same
for ever.
"""

from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from math import gcd
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from service.planning.amplification import DIGITS, ORDER_MAX, ROUND_UP, as_decimal, subsampled
from service.planning.divergences import mu_squared_of_pure, randomised_response
from service.planning.releases import metering
from service.planning.releases.base import ReleaseBase
from service.planning.releases.metering import Meter
from service.planning.releases.objective import PerturbedMinimum
from service.planning.releases.running import LaplacePrefixes, Leaf, Prefixes, PrefixSums, Recursive
from service.planning.releases.single import (
    Choice,
    Exponential,
    Gaussian,
    Laplace,
    Pure,
    SampledGaussian,
)

__all__ = [
    "Choice",
    "Disjoint",
    "Exponential",
    "Gaussian",
    "Laplace",
    "LaplacePrefixes",
    "Leaf",
    "PerturbedMinimum",
    "PrefixSums",
    "Prefixes",
    "Pure",
    "Recursive",
    "Release",
    "Repeat",
    "SampledGaussian",
    "Sequence",
    "Subsample",
]


class Sequence(ReleaseBase):
    """Releases on the same rows, each possibly chosen after seeing those before. Costs add."""

    kind: Literal["sequence"] = "sequence"
    parts: Annotated[tuple["Release", ...], Field(min_length=1, strict=False)]

    def renyi(self, order: int) -> Fraction:
        return sum((part.renyi(order) for part in self.parts), Fraction(0))

    def pure(self) -> Fraction | None:
        return _sum([part.pure() for part in self.parts])

    def gaussian(self) -> Fraction | None:
        return _sum([part.gaussian() for part in self.parts])

    def mu_squared(self) -> Fraction:
        return sum((part.mu_squared() for part in self.parts), Fraction(0))

    def meter(self) -> Meter:
        return metering.Parts(self.parts)


class Repeat(ReleaseBase):
    """`times` releases alike on the same rows, in sequence, adaptively. The cost multiplies."""

    kind: Literal["repeat"] = "repeat"
    release: "Release"
    times: PositiveInt

    def renyi(self, order: int) -> Fraction:
        return self.times * self.release.renyi(order)

    def pure(self) -> Fraction | None:
        epsilon = self.release.pure()
        return None if epsilon is None else self.times * epsilon

    def gaussian(self) -> Fraction | None:
        mu_squared = self.release.gaussian()
        return None if mu_squared is None else self.times * mu_squared

    def mu_squared(self) -> Fraction:
        return self.times * self.release.mu_squared()

    def meter(self) -> Meter:
        return metering.Times(self.release, self.times)


class Disjoint(ReleaseBase):
    """Releases on disjoint ranges of row *positions*; a part may start from earlier parts' outputs.

    The replaced record sits in one range, so only that part's distribution differs given what came
    before, and every later part is post-processing: the cost is that of the costliest part. `copies`
    such groups, all on disjoint rows, cost the same as one.
    """

    kind: Literal["disjoint"] = "disjoint"
    parts: Annotated[tuple["Release", ...], Field(min_length=1, strict=False)]
    copies: PositiveInt = 1

    def renyi(self, order: int) -> Fraction:
        return max(part.renyi(order) for part in self.parts)

    def pure(self) -> Fraction | None:
        epsilons = [part.pure() for part in self.parts]
        return None if None in epsilons else max(e for e in epsilons if e is not None)

    def gaussian(self) -> Fraction | None:
        squares = [part.gaussian() for part in self.parts]
        return None if None in squares else max(s for s in squares if s is not None)

    def mu_squared(self) -> Fraction:
        return max(part.mu_squared() for part in self.parts)

    def meter(self) -> Meter:
        return metering.Apart(self.parts, self.copies)


class Subsample(ReleaseBase):
    """A release on `batch` rows drawn uniformly without replacement from `population`, fresh and
    secret for each use.

    Wang, Balle and Kasiviswanathan 2019, Theorem 9, at integer orders under replacement, with
    gamma = batch/population and e(j) the divergence of the inner release:

        (a-1) D_a <= log(1 + gamma^2 C(a,2) min(4(e^e(2) - 1), e^e(2) min(2, (e^e(oo) - 1)^2))
                           + sum_{j=3..a} gamma^j C(a,j) e^((j-1) e(j)) min(2, (e^e(oo) - 1)^j))

    and never more than the inner release itself (the batch's positions do not depend on the data,
    so the mixture is jointly quasi-convex), nor than the pure epsilon log(1 + gamma (e^e(oo) - 1))
    implies by itself: for Laplace noise by `randomised_response`, for kinds that came before it by
    the older bounds on that. mu is that of the inner release, as for `SampledGaussian`, or the one
    that the pure epsilon implies.
    """

    kind: Literal["subsample"] = "subsample"
    release: "Release"
    batch: PositiveInt
    population: PositiveInt

    @model_validator(mode="after")
    def _batch_fits(self) -> "Subsample":
        if self.batch > self.population:
            raise ValueError("a batch cannot exceed the population it is drawn from")
        return self

    def renyi(self, order: int) -> Fraction:
        pure = self.pure()
        if order > ORDER_MAX:
            inner = self.release.renyi(order)
            exact = pure is not None and isinstance(self.release, Laplace)
            return min(inner, randomised_response(pure, order)) if exact and pure else inner
        common = gcd(self.batch, self.population)
        share = self.batch // common, self.population // common
        amplified = subsampled(self.release, *share, order)
        bounds = [self.release.renyi(order), amplified]
        if pure is not None and isinstance(self.release, Laplace):
            bounds.append(randomised_response(pure, order))
        elif pure is not None:
            bounds += [pure, order * pure**2 / 2]
        return min(bound for bound in bounds if bound is not None)

    def mu_squared(self) -> Fraction:
        inner, pure = self.release.mu_squared(), self.pure()
        return inner if pure is None else min(inner, mu_squared_of_pure(pure))

    def meter(self) -> Meter:
        """Of one vector or choice; that several come of one batch is priced and never run."""
        one = self.release.meter()
        if not isinstance(one, metering.Single) or one.drawn is not None:
            raise TypeError("only a single release over all rows is made of a batch")
        return replace(one, drawn=(self.batch, self.population))

    def pure(self) -> Fraction | None:
        epsilon = self.release.pure()
        if epsilon is None:
            return None
        with localcontext(prec=DIGITS):
            gamma = Decimal(self.batch) / self.population
            amplified = ((1 + gamma * (as_decimal(epsilon).exp() - 1)) * ROUND_UP).ln() * ROUND_UP
        return min(epsilon, Fraction(amplified))


Release = Annotated[
    Gaussian
    | Pure
    | Laplace
    | Exponential
    | Choice
    | Sequence
    | Repeat
    | Disjoint
    | Prefixes
    | LaplacePrefixes
    | Subsample
    | SampledGaussian
    | Recursive
    | PerturbedMinimum,
    Field(discriminator="kind"),
]
for _model in (Sequence, Repeat, Disjoint, Subsample):
    _model.model_rebuild()


def _sum(values: list[Fraction | None]) -> Fraction | None:
    known = [value for value in values if value is not None]
    return sum(known, Fraction(0)) if len(known) == len(values) else None
