"""What the heavy-tailed algorithms share: moments, the clip that they call for, and a private clip.

**Moments.** LR-HT assumes E sup_w ||grad||^k <= r^k for some k >= 2, of the data's gradient alone. An
analyst who knows such a bound from elsewhere gives `moment` and `moment_bound`. Clipping at C has a
bias of at most B = r^k/((k-1) C^(k-1)) (its Lemma 8) and noise proportional to C, and the theorems
balance the two: C = r z^(1/k), z the number of rows that would drown the noise of a mean of them all
(each plan says which z). Where the loss and the rows bound gradients, C need not exceed that bound; it
is then the clip by default, without bias: k is infinite.

**Private clip.** An analyst who knows no moment can have the clip chosen from the data. At that C the
share of records that are clipped is, by Markov's inequality, at most (r/C)^k = 1/z: neither r nor k
occurs. So the clip wanted is the quantile 1 - 1/z of the lengths of the records' gradients, taken at
w = 0, where every run starts. It is chosen among the powers t_1 < t_2 < ... of 2^(1/4) from 2^-40 to
2^40 by the exponential mechanism: wanted is the first t_j that so many records do not exceed, so

    score(j) = max(rank - c_j, c_(j-1) - rank, 0),   c_j = #{i : length_i <= t_j},   c_0 = 0,

rank = the quantile times n, an integer. The clip wanted scores 0, however the lengths lie between the
candidates. (With |c_j - rank| all clips beyond the longest gradient would score alike, and where no
candidate comes near the rank, as when all gradients are of one length, one of those is the best.)

*Sensitivity.* A record's length is a function of that record alone, and adds 0 or 1 to each count,
whatever floats did. Replacing the record moves every count by at most 1, so every score by at most 1
in either direction, and the difference of two scores by at most 2. That is attained: between the old
length and the new one all counts move the same way, but scores fall above the rank and rise below it.
Scores are integers below 2^31. The choice is one release over all rows, of range 2/scale.

*Price.* A share of the budget (`clip_share`) sets the scale, what the choice really costs is taken
off, and the rest pays for the sums: `Sequence` of the two. The sums' lattice is made for a clip of 1
(of 1/l2 in the derivative, for rows of bounded norm). The chosen clip multiplies what a lattice unit
is worth and changes no integer, so the price is fixed before anything is chosen; a step size that
depends on the clip is post-processing of the choice.

*Quantile.* A choice is off by more than 20 scales in its count with probability below 321 exp(-20),
less than 1e-6, and a clip beyond the longest gradient is off by n - rank. So the tail left out is the
larger of 1/z and 20 scale/n, and at most one half. `clip_quantile` overrides it; one that leaves out
less than 20 scales, and less than one half, is refused.
"""

from dataclasses import dataclass
from math import ceil, exp, inf, log, sqrt
from typing import Literal

from pydantic import Field, PositiveInt

from service.errors import PlanRefused
from service.planning.lattice import Target
from service.planning.problem import Problem
from service.planning.shared.clip import Clipping, chosen_clip, clip_bound, no_clip_to_choose
from service.planning.spec import ClipOrPrivate, Facts, StepsAndClip

_CLIP_MIN, _CLIP_MAX = 1e-9, 1e9  # as for an analyst's own clip
RIDGE_MIN = 1e-9  # below it beta/mu has no meaning, and further down no float


class HeavyTails(ClipOrPrivate):
    """Parameters of the algorithms for heavy tails."""

    clip: float | Literal["private"] | None = Field(
        default=None,
        description='Bound on one record\'s gradient norm, from 1e-9 to 1e9; "private" chooses it '
        "from the data for a share of the budget. Defaults to what moment_bound calls for, or else "
        'to the loss\'s Lipschitz constant, and to "private" where it has none.',
    )
    moment: float = Field(default=2.0, ge=2, le=100, description="k, for moment_bound.")
    moment_bound: float | None = Field(
        default=None,
        ge=_CLIP_MIN,
        le=_CLIP_MAX,
        description="r: the k-th moment of a record's gradient norm, to the power 1/k, is at most r "
        "for every w of the set. Known from elsewhere: it is not checked, and no privacy rests on it.",
    )


class OnePass(HeavyTails):
    """Parameters of those that read each row once at most."""

    batch: PositiveInt | None = Field(
        default=None, le=2**30, description="Rows of a step; by default all rows, shared equally."
    )


@dataclass(frozen=True)
class Tails:
    """What is known of the gradients' lengths before T is chosen."""

    r: float
    k: float  # inf where r bounds every gradient
    asked: float | None  # the analyst's clip
    bound: float  # of the loss itself on these rows; inf if none
    private: bool

    @property
    def power(self) -> float:
        """(k-1)/k, the exponent of the private term of an excess risk."""
        return 1 - 1 / self.k

    def clip(self, z: float) -> float:
        """C, in gradient units; 1 where it will be chosen."""
        if self.private:
            return 1.0
        wanted = self.asked if self.asked is not None else self.r * float(z ** (1 / self.k))
        return min(max(wanted, _CLIP_MIN), _CLIP_MAX, max(self.bound, _CLIP_MIN))

    def bias(self, C: float) -> float:
        """B of Lemma 8."""
        if self.k == inf or self.bound <= C:
            return 0.0
        tail = (self.k - 1) * log(self.r / C)
        return self.r * min(1.0, exp(min(0.0, tail)) / (self.k - 1))


def tails(name: str, parameters: HeavyTails, p: Problem, facts: Facts) -> Tails:
    """From the parameters; a clip is chosen where nothing bounds a gradient or says how to clip it."""
    bounded = facts.l2 is not None or not p.rowwise
    usual = p.usual_slope if parameters.clip is None and parameters.moment_bound is None else inf
    bound = min(p.lipschitz, usual) * (p.X2 if p.rowwise else 1.0) if bounded else inf
    nothing = parameters.clip is None and parameters.moment_bound is None and bound == inf
    if parameters.clip == "private" or nothing:
        if not p.rowwise:
            raise no_clip_to_choose()
        return Tails(1.0, inf, None, inf, private=True)
    asked = parameters.clip
    if asked is not None and not _CLIP_MIN <= asked <= _CLIP_MAX:
        raise PlanRefused(
            f"parameters.clip of {name} is a number from {_CLIP_MIN:g} to {_CLIP_MAX:g}, or "
            '"private"; for example 1.'
        )
    if parameters.moment_bound is not None:
        return Tails(parameters.moment_bound, parameters.moment, asked, bound, private=False)
    return Tails(min(bound, asked or inf), inf, asked, bound, private=False)


def clipping(
    known: Tails, parameters: HeavyTails, p: Problem, facts: Facts, goal: Target, z: float
) -> Clipping:
    if known.private:
        return chosen_clip(parameters, facts, goal, z)
    C = known.clip(z)
    bound = clip_bound(StepsAndClip(clip=C), p, facts)
    return Clipping(bound * (p.X2 if p.rowwise else 1.0), bound, goal, None)


def rows_that_drown(goal: Target, n: int, d: int, steps: float) -> float:
    """epsilon n/sqrt(d T) of the theorems, with epsilon = sqrt(2 rho): their z."""
    return sqrt(2 * goal.rho) * n / sqrt(d * steps)


def quiet_steps(n: int, d: int, rho: float) -> int:
    """Steps on disjoint batches at which one step's noise is as long as the clip."""
    return ceil(n * sqrt(2 * rho) / (2 * sqrt(d)))


def steps_and_batch(parameters: OnePass, steps: int, n: int) -> tuple[int, int]:
    """How many disjoint batches of how many rows: those asked for, or else so many steps."""
    rows = parameters.batch or 1
    if rows > n:
        raise PlanRefused(
            f"a batch of {rows} rows is more than the dataset's {n}; "
            f"set parameters.batch to at most {n}."
        )
    if parameters.batch is not None:
        steps = min(steps, n // rows)
    steps = parameters.steps or steps
    if steps * rows > n:
        raise PlanRefused(
            f"{steps} steps need at least {steps * rows} rows and the dataset has {n}; "
            f"set parameters.steps to at most {n // rows}."
        )
    return steps, parameters.batch or n // steps
