"""Averaged SGD: the minimiser that needs a few passes, whatever the curvature, and no accuracy.

**Problem.** As in minimiser.py, f a mean of n records' losses, each convex, L-Lipschitz and
beta-smooth in w; two records' gradients differ by at most C at any w.

**Schedule.** `passes` passes over blocks of `block` rows that lie together, in one order that is
drawn before and is the same in every pass. A block's step is w <- P(w - eta ((1/block) sum of its
gradients + lambda w)), eta <= 2/(beta + 2 lambda). The point is the mean of the iterates after the
steps of the last `averaged` passes.

**Sensitivity.** With m = ceil(n/block), q = 1 - eta lambda and e the error of a computed step, for
every pair of neighbours and every order that no row enters

    C/(lambda block m) (1 - mean of q^(j m) over the averaged passes j) + 2e/(eta lambda) + the mean's.

**Proof.** A step on a block that both data sets have shrinks the distance of two runs by q, and the
exchanged record's block adds eta C/block (docs/proofs/minimiser.md). So s steps after a visit q^s
of that is left. Over a whole pass every s from 0 to m - 1 comes once for the last visit, then s + m
for the one before, and so on: in pass j the mean distance is at most (eta C/(block m)) (1 + q + ...
+ q^(jm - 1)). The record in the first block attains it. So the mean moves no further than the exact
minimiser would, C/(lambda n), however large the step is; the last iterate moves eta lambda m/(1 -
q^m) times as far.

**Choice.** In expectation, for rows drawn with replacement, the mean of M passes from a distance D
is within D^2/(2 eta M m) + eta L^2/2 of the minimum. Rows that all come once in a pass do better:
the steps of M passes add up to the way between their ends, so at the mean the gradient is that over
eta M m, but for what gradients change between the mean and the iterates. Of that, their common
Hessian adds nothing, and what single Hessians differ from it averages out in a random order: to
first order, for rows in general position,

    2 lambda (R/(eta lambda M m))^2 q^(2 (K - M) m) + (eta L^2/2) (beta/lambda)^2/m

is left, which is less where beta is a small multiple of lambda. Of eta, passes, averaged passes and
block those are taken that make this plus what noise and smoothing cost least, or nearly, for the
fewest gradients. This is a prediction: no privacy rests on it."""

from dataclasses import dataclass, replace
from math import ceil, exp, expm1, log1p
from typing import Final

from service.planning.shared.minimiser import GROUP, Averaging, Objective, Solution, U, smoothed_to

PASSES = (1, 2, 3, 4, 6, 8, 12, 16, 20)
BLOCKS = (1, 16, 256)
_ENOUGH = 64  # blocks of several rows: the last one may be short, which adds to lambda
_ALONE = 3  # a row in a block of its own takes about so many times as long
NEARLY = 1 + 1 / 16  # times the least risk is as good, in fewer gradients
_PACES = tuple(2.0**j for j in range(-12, 11))
_STEEPEST = 1 / 4  # share of the start that a step forgets
_BELOW_TWO: Final = 2 * (1 - 2.0**-20)  # so that no rounding of eta breaks the contraction


@dataclass(frozen=True)
class Pace:
    """A schedule, and what is known of it before the loss is smoothed to suit it."""

    rows: int
    strong: float  # lambda
    passes: int
    averaged: int
    block: int
    step_size: float

    @property
    def visits(self) -> int:
        """Steps in a pass."""
        return -(-self.rows // self.block)

    @property
    def smoothness(self) -> float:
        """The largest beta at which its steps contract."""
        return _BELOW_TWO / self.step_size - 2 * self.strong

    @property
    def rate(self) -> float:
        """-log(q^m)."""
        return -self.visits * log1p(-self.step_size * self.strong)

    @property
    def gone(self) -> float:
        """1 - mean of q^(j m) over the averaged passes j = K - M + 1 .. K, rounded up."""
        first = exp(-(self.passes - self.averaged + 1) * self.rate)
        mean = first * expm1(-self.averaged * self.rate) / expm1(-self.rate) / self.averaged
        return min(1.0, 1 - mean + 2.0**-40)

    def exact(self, change: float) -> float:
        return change * self.rows / (self.block * self.visits) / self.strong * self.gone

    def rounding(self, step_error: float, radius: float) -> float:
        """Of both runs' steps, and of the mean, which is summed over groups first."""
        groups = self.averaged * (self.visits / GROUP + 2)
        mean = 4 * U * (GROUP + groups + 8) * radius
        return 2 * step_error / (self.step_size * self.strong) * self.gone + mean

    def risk(self, o: Objective, beta: float) -> float:
        """What is left to do, as said above."""
        before, noise = self.passes - self.averaged, self.step_size * o.lipschitz**2
        kept = exp(-2 * before * self.rate)
        start = o.radius**2
        if before:
            start = min(start, start * kept + noise / (2 * self.strong))
        steps = self.averaged * self.visits
        convex = start / (2 * self.step_size * steps) + noise / 2
        ends = 2 * self.strong * (o.radius / (self.rate * self.averaged)) ** 2 * kept
        smooth = ends + noise / 2 * (beta / self.strong) ** 2 / self.visits
        return min(convex, smooth, o.lipschitz * o.radius)


def pace(
    o: Objective, steps: int | None, k: float, price: float, blocks: tuple[int, ...] = BLOCKS
) -> Pace:
    """The best for noise of k times the sensitivity. `o` has its corners rounded off as far as can be;
    a step asks for no more of that than it needs, at a bias of price/beta."""
    found = []
    for passes in (steps,) if steps else PASSES:
        for averaged in {1, ceil(passes / 2), passes}:
            for block in (one for one in blocks if one == 1 or one * _ENOUGH <= o.rows):
                for share in _PACES:
                    eta = share * block / (o.strong * o.rows)
                    one = Pace(o.rows, o.strong, passes, averaged, block, eta)
                    if eta * o.strong <= _STEEPEST and one.smoothness >= o.smoothness:
                        work = passes * (_ALONE if block == 1 else 1)
                        found.append((_cost(o, one, k, price), work, one))
    if not found:  # so curved that a step forgets little: the largest that contracts
        eta = _BELOW_TWO / (o.smoothness + 2 * o.strong)
        return Pace(o.rows, o.strong, steps or PASSES[-1], 1, 1, eta)
    least = min(cost for cost, _, _ in found)
    fine = [(work, cost, one) for cost, work, one in found if cost <= NEARLY * least]
    return min(fine, key=lambda choice: choice[:2])[2]


def _cost(o: Objective, one: Pace, k: float, price: float) -> float:
    """In risk: noise, corners and what is left to do."""
    about = 8 * U * (o.columns + 32) * o.radius  # of a step's error
    noise = k * (one.exact(o.change) + one.rounding(about, o.radius))
    beta = min(smoothed_to(o.lipschitz, noise), one.smoothness) if price else o.smoothness
    noisy = min(o.lipschitz * noise, (beta + o.strong) / 2 * noise**2)
    return one.risk(o, beta) + noisy + price / beta


def averaged_sgd(o: Objective, one: Pace) -> Solution:
    """`o.error` is of the mean gradient of a block. The step is never beyond what contracts."""
    eta = min(one.step_size, _BELOW_TWO / (o.smoothness + 2 * o.strong))
    one = replace(one, step_size=eta)
    return Solution(
        steps=one.passes,
        step_size=eta,
        exact=one.exact(o.change),
        slack=0.0,
        rounding=one.rounding(o.step_error(eta), o.radius),
        left=0.0,
        reach=o.lipschitz / o.strong,
        risk=one.risk(o, o.smoothness),
        averaging=Averaging(block=one.block, passes=one.averaged),
    )
