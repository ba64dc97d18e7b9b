"""A small algebra of releases that price themselves.

A release says what leaves the data: a mechanism, an integer sensitivity and an integer noise scale
in units of its lattice, and how mechanisms combine. It prices itself two ways, both as exact
rationals that are upper bounds:

- `renyi(order)`: the Renyi divergence at an integer order >= 2 between neighbours;
- `pure()`: the pure epsilon, or None where there is none;

and says with `gaussian()` the squared mu of the single Gaussian it is equivalent to, where it is.

Neighbours differ by replacing one record; the number of rows is public. Sensitivities below are for
that relation: a sum of vectors of norm at most C has sensitivity 2C.

Rules for this file: add kinds, never change the meaning of one. A stored Plan must price the same
for ever.
"""

from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from math import comb, gcd, log
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

_DIGITS = 60
_AMPLIFIED_ORDER_MAX = 4096  # the sum has `order` terms; beyond, no amplification is claimed
_ROUND_UP = Decimal(1) + Decimal("1e-40")
_HUGE = Fraction(10**9)
_LOG_2, _LOG_10 = log(2), log(10)
LOG_DECIMAL_MAX = 2_290_000  # the exponential of a little more is beyond any Decimal


class _Release(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def renyi(self, order: int) -> Fraction:
        """An upper bound on the Renyi divergence of this order between neighbours."""
        raise NotImplementedError

    def pure(self) -> Fraction | None:
        """An upper bound on the pure epsilon, or None where the release has none."""
        raise NotImplementedError

    def gaussian(self) -> Fraction | None:
        """mu^2 of the one Gaussian this release is equivalent to, or None."""
        return None

    def count(self) -> int:
        """How many vectors or choices it lets out in all."""
        return 1


class Gaussian(_Release):
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
        return Fraction(self.sensitivity**2, self.sigma**2)


class Pure(_Release):
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


class Exponential(_Release):
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


class Sequence(_Release):
    """Releases on the same rows, each possibly chosen after seeing those before. Costs add."""

    kind: Literal["sequence"] = "sequence"
    parts: Annotated[tuple["Release", ...], Field(min_length=1, strict=False)]

    def renyi(self, order: int) -> Fraction:
        return sum((part.renyi(order) for part in self.parts), Fraction(0))

    def pure(self) -> Fraction | None:
        return _sum([part.pure() for part in self.parts])

    def gaussian(self) -> Fraction | None:
        return _sum([part.gaussian() for part in self.parts])

    def count(self) -> int:
        return sum(part.count() for part in self.parts)


class Repeat(_Release):
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

    def count(self) -> int:
        return self.times * self.release.count()


class Disjoint(_Release):
    """Releases on disjoint ranges of row *positions*; a part may start from earlier parts' outputs.

    The replaced record sits in one range, so only that part's distribution differs given what came
    before, and every later part is post-processing: the cost is the dearest part's. `copies` such
    groups, all on disjoint rows, cost the same as one.
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

    def count(self) -> int:
        return self.copies * sum(part.count() for part in self.parts)


class Subsample(_Release):
    """A release on `batch` rows drawn uniformly without replacement from `population`, fresh and
    secret for each use.

    Wang, Balle and Kasiviswanathan 2019, Theorem 9, at integer orders under replacement, with
    gamma = batch/population and e(j) the divergence of the inner release:

        (a-1) D_a <= log(1 + gamma^2 C(a,2) min(4(e^e(2) - 1), e^e(2) min(2, (e^e(oo) - 1)^2))
                           + sum_{j=3..a} gamma^j C(a,j) e^((j-1) e(j)) min(2, (e^e(oo) - 1)^j))

    and never more than the inner release itself (the batch's positions do not depend on the data,
    so the mixture is jointly quasi-convex), nor than the pure epsilon log(1 + gamma (e^e(oo) - 1))
    implies by itself.
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
        if order > _AMPLIFIED_ORDER_MAX:
            return self.release.renyi(order)
        common = gcd(self.batch, self.population)
        share = self.batch // common, self.population // common
        amplified, pure = _amplified(self.release, *share, order), self.pure()
        bounds = [self.release.renyi(order), amplified]
        bounds += [] if pure is None else [pure, order * pure**2 / 2]
        return min(bound for bound in bounds if bound is not None)

    def count(self) -> int:
        return self.release.count()

    def pure(self) -> Fraction | None:
        epsilon = self.release.pure()
        if epsilon is None:
            return None
        with localcontext(prec=_DIGITS):
            gamma = Decimal(self.batch) / self.population
            amplified = ((1 + gamma * (_decimal(epsilon).exp() - 1)) * _ROUND_UP).ln() * _ROUND_UP
        return min(epsilon, Fraction(amplified))


Release = Annotated[
    Gaussian | Pure | Exponential | Sequence | Repeat | Disjoint | Subsample,
    Field(discriminator="kind"),
]
for _model in (Sequence, Repeat, Disjoint, Subsample):
    _model.model_rebuild()


@lru_cache(maxsize=4096)
def _amplified(release: Release, batch: int, population: int, order: int) -> Fraction | None:
    """Theorem 9 of `Subsample`, or None where it says no less than the inner release, or is made of
    numbers too large to say.

    A term that could not change a digit of the sum is not evaluated, and once one term alone exceeds
    the inner release the rest is not: estimates in floats, a factor of e apart from the decision, say
    which. Either way the value is that of the whole sum.
    """
    if release.renyi(2) > LOG_DECIMAL_MAX:
        return None
    enough = (order - 1) * float(min(release.renyi(order), _HUGE)) + 1
    log_share, log_choices = log(batch) - log(population), log(order) + log((order - 1) / 2)
    choices = comb(order, 2)
    with localcontext(prec=_DIGITS):
        gamma = Decimal(batch) / population
        pure = release.pure()
        range_ = None if pure is None else _decimal(pure).exp() - 1
        e2 = _decimal(release.renyi(2)).exp()
        bounded = Decimal(2) if range_ is None else min(Decimal(2), range_**2)
        total = 1 + gamma**2 * choices * min(4 * (e2 - 1), e2 * bounded)
        for j in range(3, order + 1):
            choices = choices * (order - j + 1) // j
            log_choices += log((order - j + 1) / j)
            inner = release.renyi(j)
            exponent = (j - 1) * float(min(inner, _HUGE))
            size = j * log_share + log_choices + exponent + _LOG_2
            if size + 1 < (total.adjusted() - _DIGITS) * _LOG_10:
                continue
            if range_ is None and (size > enough or max(size, exponent) > LOG_DECIMAL_MAX):
                return None
            bounded = Decimal(2) if range_ is None else min(Decimal(2), range_**j)
            growth = ((j - 1) * _decimal(inner)).exp()
            total += gamma**j * choices * growth * bounded
        return Fraction((total * _ROUND_UP).ln() / (order - 1) * _ROUND_UP)


def _sum(values: list[Fraction | None]) -> Fraction | None:
    known = [value for value in values if value is not None]
    return sum(known, Fraction(0)) if len(known) == len(values) else None


def _decimal(value: Fraction) -> Decimal:
    """The fraction in the current precision, never below it."""
    return Decimal(value.numerator) / Decimal(value.denominator) * _ROUND_UP
