"""Releases that go on from sum to sum: prefix sums, and choices by a running sum."""

from fractions import Fraction
from functools import lru_cache
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

from service.planning.divergences import laplace, mu_squared_of_pure
from service.planning.normal import PI_ABOVE
from service.planning.releases import metering
from service.planning.releases.base import ReleaseBase
from service.planning.releases.metering import Meter

_FIXED = 2**320  # the unit of fixed-point sums: squares of scales are below 2^126


class Leaf(BaseModel):
    """How one sum enters a `Prefixes`: its integer sensitivity, and of its column of the matrix the
    sum of squares and the sum of absolute values."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    sensitivity: PositiveInt
    squares: PositiveInt
    absolutes: PositiveInt


class PrefixSums(ReleaseBase):
    """K s plus noise, a row at a time: s = (s_1, s_2, ...) integer vectors over disjoint row
    *positions*, K an integer matrix none of whose rows needs a sum of a later time.

    s_j may be chosen after seeing what earlier times released. The replaced record sits in one s_j.
    Given what was released before time j both neighbours have the same s_1, ..., s_{j-1}, and given
    any transcript the same s_i for i > j, each a function of that transcript and of rows that do not
    differ. So the transcript's noise is shifted by the column of K times one vector of norm at most
    Delta_j, fixed at time j: it costs as a single Gaussian of sensitivity ||K e_j||_2 Delta_j in l2,
    or a Laplace one of ||K e_j||_1 Delta_j in l1. The whole costs what its costliest leaf does.
    `leaves` are the kinds that there are; `vectors` is how many rows K has.
    """

    noise: Literal["gaussian", "laplace"]
    scale: PositiveInt  # the standard deviation, or Laplace's scale
    leaves: Annotated[tuple[Leaf, ...], Field(min_length=1, strict=False)]
    vectors: PositiveInt

    def pure(self) -> Fraction | None:
        if self.noise == "gaussian":
            return None
        return Fraction(max(leaf.sensitivity * leaf.absolutes for leaf in self.leaves), self.scale)

    def gaussian(self) -> Fraction | None:
        if self.noise == "laplace":
            return None
        costliest = max(leaf.sensitivity**2 * leaf.squares for leaf in self.leaves)
        return Fraction(costliest, self.scale**2)

    def mu_squared(self) -> Fraction:
        mu_squared = self.gaussian()
        return mu_squared_of_pure(self.pure() or Fraction(0)) if mu_squared is None else mu_squared

    def meter(self) -> Meter:
        leaves = [(leaf.sensitivity, leaf.squares, leaf.absolutes) for leaf in self.leaves]
        return metering.PrefixRows(self.noise, self.scale, leaves, self.vectors)


class Prefixes(PrefixSums):
    """With Gaussian noise; in stored Plans also with Laplace noise, by a bound on its divergence."""

    kind: Literal["prefixes"] = "prefixes"

    def renyi(self, order: int) -> Fraction:
        mu_squared = self.gaussian()
        if mu_squared is not None:
            return order * mu_squared / 2
        epsilon = self.pure() or Fraction(0)
        return min(order * epsilon**2 / 2, epsilon)


class LaplacePrefixes(PrefixSums):
    """With Laplace noise: the shift of the noise, fixed at time j, is split among coordinates and
    rows of K, and costs most where it is not (`Laplace`)."""

    kind: Literal["laplace_prefixes"] = "laplace_prefixes"
    noise: Literal["laplace"] = "laplace"

    def renyi(self, order: int) -> Fraction:
        return laplace(self.pure() or Fraction(0), order)


class Recursive(ReleaseBase):
    """Choices t = 0, 1, ... by scores that are linear in a running sum d_t = kept_t d_(t-1) + h_t, h_t
    a function of batch t and of earlier choices. Batches are disjoint ranges of row *positions*.

    A record of batch k moves the difference of any two scores by at most sensitivities[k] in choice k,
    and by the product of kept[j]/2^32 over j = k+1..t times that in a later choice t, for what it did
    is only carried on; rounding adds at most `slack` to either. Choice t is made with probability
    proportional to exp(-score/scales[t]), so its privacy loss has range at most

        e(t, k) = (sensitivities[k] kept[k+1] ... kept[t]/2^(32(t-k)) + slack)/scales[t],   t >= k,

    and costs as `Exponential` says. The record is in one batch, and choices before its own do not
    depend on it: the cost is that of the costliest k, the sum over t >= k. The exact divergence of
    `Choice` would be another logarithm for every pair (t, k), half a million for a thousand choices,
    while squares add up in one pass: a record is charged up to 1.6 times the exact divergence of its
    own choice, where a e is about 8, and next to nothing more for later ones, whose e are small.
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
        return _costliest_batch(self)[0]

    def mu_squared(self) -> Fraction:
        """A choice of range e is sqrt(pi/8) e-GDP, and squares of mu add."""
        return min(Fraction(PI_ABOVE) / 8 * self.squares(), mu_squared_of_pure(self.pure()))

    def squares(self) -> Fraction:
        """max over k of the sum of e(t, k)^2."""
        return _costliest_batch(self)[1]

    def meter(self) -> Meter:
        return metering.RunningChoices(self.sensitivities, self.kept, self.scales, self.slack)


@lru_cache(maxsize=256)
def _costliest_batch(release: Recursive) -> tuple[Fraction, Fraction]:
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


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)
