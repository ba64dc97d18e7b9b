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
from typing import Annotated, ClassVar, Literal, NamedTuple

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    model_validator,
)

from service.planning.amplification import LOG_DECIMAL_MAX, ORDER_MAX, sampled_gaussian

_DIGITS = 60
_ROUND_UP = Decimal(1) + Decimal("1e-40")
_HUGE = Fraction(10**9)
_FIXED = 2**320  # the unit of fixed-point sums: squares of scales are below 2^126
_LOG_2, _LOG_10 = log(2), log(10)


class Single(NamedTuple):
    """One vector or choice: its sensitivity and noise scale, and (batch, population) if it is over a
    batch that is drawn. What leaves the data is compared with this."""

    sensitivity: int
    scale: int
    drawn: tuple[int, int] | None = None


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

    def singles(self) -> frozenset[Single]:
        """What one vector or choice of it may be."""
        raise NotImplementedError


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

    def singles(self) -> frozenset[Single]:
        return frozenset([Single(self.sensitivity, self.sigma)])


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

    def singles(self) -> frozenset[Single]:
        return frozenset([Single(self.sensitivity, self.scale)])


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

    def singles(self) -> frozenset[Single]:
        return frozenset([Single(self.sensitivity, self.scale)])


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

    def singles(self) -> frozenset[Single]:
        return frozenset().union(*(part.singles() for part in self.parts))


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

    def singles(self) -> frozenset[Single]:
        return self.release.singles()


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

    def singles(self) -> frozenset[Single]:
        return frozenset().union(*(part.singles() for part in self.parts))


class Leaf(BaseModel):
    """How one sum enters a `Prefixes`: its integer sensitivity, and of its column of the matrix the
    sum of squares and the sum of absolute values."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    sensitivity: PositiveInt
    squares: PositiveInt
    absolutes: PositiveInt


class Prefixes(_Release):
    """K s plus noise, a row at a time: s = (s_1, s_2, ...) integer vectors over disjoint row
    *positions*, K an integer matrix none of whose rows needs a sum of a later time.

    s_j may be chosen after seeing what earlier times released. The replaced record sits in one s_j.
    Given what was released before time j both neighbours have the same s_1, ..., s_{j-1}, and given
    any transcript the same s_i for i > j, each a function of that transcript and of rows that do not
    differ. So the transcript's noise is shifted by the column of K times one vector of norm at most
    Delta_j, fixed at time j: it costs as a single Gaussian of sensitivity ||K e_j||_2 Delta_j in l2,
    or a Laplace one of ||K e_j||_1 Delta_j in l1. The whole costs its dearest leaf. `leaves` are the
    kinds that there are; `vectors` is how many rows K has.
    """

    kind: Literal["prefixes"] = "prefixes"
    noise: Literal["gaussian", "laplace"]
    scale: PositiveInt  # the standard deviation, or Laplace's scale
    leaves: Annotated[tuple[Leaf, ...], Field(min_length=1, strict=False)]
    vectors: PositiveInt

    def renyi(self, order: int) -> Fraction:
        mu_squared = self.gaussian()
        if mu_squared is not None:
            return order * mu_squared / 2
        epsilon = self.pure() or Fraction(0)
        return min(order * epsilon**2 / 2, epsilon)

    def pure(self) -> Fraction | None:
        if self.noise == "gaussian":
            return None
        return Fraction(max(leaf.sensitivity * leaf.absolutes for leaf in self.leaves), self.scale)

    def gaussian(self) -> Fraction | None:
        if self.noise == "laplace":
            return None
        dearest = max(leaf.sensitivity**2 * leaf.squares for leaf in self.leaves)
        return Fraction(dearest, self.scale**2)

    def count(self) -> int:
        return self.vectors

    def singles(self) -> frozenset[Single]:
        """By leaf: a row of K is made of sums that have no more than the leaf's sensitivity."""
        return frozenset(Single(leaf.sensitivity, self.scale) for leaf in self.leaves)


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
        if order > ORDER_MAX:
            return self.release.renyi(order)
        common = gcd(self.batch, self.population)
        share = self.batch // common, self.population // common
        amplified, pure = _amplified(self.release, *share, order), self.pure()
        bounds = [self.release.renyi(order), amplified]
        bounds += [] if pure is None else [pure, order * pure**2 / 2]
        return min(bound for bound in bounds if bound is not None)

    def count(self) -> int:
        return self.release.count()

    def singles(self) -> frozenset[Single]:
        share = self.batch, self.population
        return frozenset(one._replace(drawn=share) for one in self.release.singles())

    def pure(self) -> Fraction | None:
        epsilon = self.release.pure()
        if epsilon is None:
            return None
        with localcontext(prec=_DIGITS):
            gamma = Decimal(self.batch) / self.population
            amplified = ((1 + gamma * (_decimal(epsilon).exp() - 1)) * _ROUND_UP).ln() * _ROUND_UP
        return min(epsilon, Fraction(amplified))


class SampledGaussian(_Release):
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

    def singles(self) -> frozenset[Single]:
        return frozenset([Single(self.sensitivity, self.sigma, (self.batch, self.population))])


class Recursive(_Release):
    """Choices t = 0, 1, ... by scores that are linear in a running sum d_t = kept_t d_(t-1) + h_t, h_t
    a function of batch t and of earlier choices. Batches are disjoint ranges of row *positions*.

    A record of batch k moves the difference of any two scores by at most sensitivities[k] in choice k,
    and by the product of kept[j]/2^32 over j = k+1..t times that in a later choice t, for what it did
    is only carried on; rounding adds at most `slack` to either. Choice t is made with probability
    proportional to exp(-score/scales[t]), so its privacy loss has range at most

        e(t, k) = (sensitivities[k] kept[k+1] ... kept[t]/2^(32(t-k)) + slack)/scales[t],   t >= k,

    and costs as `Exponential` says. The record is in one batch, and choices before its own do not
    depend on it: the cost is that of the dearest k, the sum over t >= k.
    """

    KEPT_ONE: ClassVar[int] = 2**32

    kind: Literal["recursive"] = "recursive"
    sensitivities: Annotated[tuple[PositiveInt, ...], Field(min_length=1, strict=False)]
    kept: Annotated[tuple[NonNegativeInt, ...], Field(min_length=1, strict=False)]
    scales: Annotated[tuple[PositiveInt, ...], Field(min_length=1, strict=False)]
    slack: NonNegativeInt

    @model_validator(mode="after")
    def _one_of_each_per_choice(self) -> "Recursive":
        if not len(self.sensitivities) == len(self.kept) == len(self.scales):
            raise ValueError("every choice has a batch, a factor and a scale")
        if max(self.kept) > self.KEPT_ONE:
            raise ValueError("what is kept of a sum is at most all of it")
        return self

    def renyi(self, order: int) -> Fraction:
        return min(order * self.squares() / 8, self.pure())

    def pure(self) -> Fraction:
        """max over k of the sum of e(t, k)."""
        return _dearest_batch(self)[0]

    def squares(self) -> Fraction:
        """max over k of the sum of e(t, k)^2."""
        return _dearest_batch(self)[1]

    def count(self) -> int:
        return len(self.scales)

    def singles(self) -> frozenset[Single]:
        return frozenset(map(Single, self.sensitivities, self.scales))


Release = Annotated[
    Gaussian
    | Pure
    | Exponential
    | Sequence
    | Repeat
    | Disjoint
    | Prefixes
    | Subsample
    | SampledGaussian
    | Recursive,
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


@lru_cache(maxsize=256)
def _dearest_batch(release: Recursive) -> tuple[Fraction, Fraction]:
    """The largest sums over t of e(t, k) and of its square, from the last choice backwards: what a
    unit of sensitivity and one of slack cost from k on. In fixed point, every rounding upwards."""
    one, slack = Recursive.KEPT_ONE, release.slack
    linear = linear_slack = square = mixed = square_slack = 0
    sums, squares = [], []
    following = (*release.kept[1:], 0)
    for k in reversed(range(len(following))):
        s, kept, scale = release.sensitivities[k], following[k], release.scales[k]
        once, twice = _ceil_div(_FIXED, scale), _ceil_div(_FIXED, scale**2)
        linear, linear_slack = once + _ceil_div(kept * linear, one), linear_slack + once
        square = twice + _ceil_div(kept**2 * square, one**2)
        mixed, square_slack = twice + _ceil_div(kept * mixed, one), square_slack + twice
        sums.append(s * linear + slack * linear_slack)
        squares.append(s**2 * square + 2 * s * slack * mixed + slack**2 * square_slack)
    return Fraction(max(sums), _FIXED), Fraction(max(squares), _FIXED)


def _sum(values: list[Fraction | None]) -> Fraction | None:
    known = [value for value in values if value is not None]
    return sum(known, Fraction(0)) if len(known) == len(values) else None


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _decimal(value: Fraction) -> Decimal:
    """The fraction in the current precision, never below it."""
    return Decimal(value.numerator) / Decimal(value.denominator) * _ROUND_UP
