"""An empirical auditor: it plays the distinguishing game against the code that really runs.

A game is a Plan and two neighbouring datasets. Each round runs the job with a fresh key on one of
them and reads a statistic: white box, the noisy sums projected on the canary's direction; black box,
the released weights projected on it. From many rounds follows a *lower* bound on how well anyone can
tell the two apart, and so on the privacy that the code really has:

- a threshold is chosen on one part of the rounds and tested on the other, so choosing costs nothing;
- false positive and false negative rates are bounded by Clopper and Pearson at confidence `alpha`;
- for Gaussian releases the pair of rates is turned into mu by the trade-off curve
  mu = Phi^-1(1 - fpr) - Phi^-1(fnr); for pure ones into epsilon = log((1 - fnr)/fpr).

With all rows' alphas adding up to FAMILY, a bound above the claim is a finding, not bad luck. Keys are
fixed, so a run repeats exactly.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm

from service.planning.plan import Plan
from workers.data import NoisySums
from workers.execute import RUNS
from workers.progress import Progress
from workers.randomness import Randomness

FAMILY = 1e-6
SELECTION = 0.25  # of the rounds choose the threshold, the rest test it

Rows = tuple[NDArray[np.generic], NDArray[np.float64]]
Statistic = Callable[["Round"], float]


@dataclass(frozen=True)
class Round:
    """What one run let out: every noisy sum in lattice units, and the weights."""

    sums: list[NDArray[np.float64]]
    weights: NDArray[np.float64]


@dataclass(frozen=True)
class Game:
    plan: Plan
    worlds: tuple[Rows, Rows]
    direction: NDArray[np.float64]  # of the canary, a unit vector

    def white(self, played: Round) -> float:
        """The optimal statistic for a canary that adds +c or -c to every sum."""
        return float(sum(self.direction @ total for total in played.sums))

    def black(self, played: Round) -> float:
        return float(self.direction @ played.weights)


class Spy(NoisySums):
    """Noisy sums that also note what they let out."""

    def __init__(self, plan: Plan, rows: Rows, randomness: Randomness) -> None:
        super().__init__(plan, *rows, randomness)
        self.seen: list[NDArray[np.float64]] = []

    def __call__(self, weights: NDArray[np.float64], start: int, stop: int) -> NDArray[np.float64]:
        released = super().__call__(weights, start, stop)
        self.seen.append(released / self._plan.lattice.step)
        return released


def key(name: str, world: int, number: int) -> bytes:
    return hashlib.sha256(f"audit {name} {world} {number}".encode()).digest()


def play(game: Game, world: int, noise_key: bytes, spy: type[Spy] = Spy) -> Round:
    plan = game.plan
    sums = spy(plan, game.worlds[world], Randomness(noise_key, plan.digest()))
    weights = RUNS[plan.algorithm](plan, sums, Progress())
    return Round(sums=sums.seen, weights=weights)


def statistics(
    game: Game, statistic: Statistic, name: str, rounds: int, spy: type[Spy] = Spy
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The statistic over `rounds` runs in each world."""
    zero, one = (
        np.array([statistic(play(game, world, key(name, world, i), spy)) for i in range(rounds)])
        for world in (0, 1)
    )
    return zero, one


def rates(zero: NDArray[np.float64], one: NDArray[np.float64], alpha: float) -> tuple[float, float]:
    """Upper confidence bounds (fpr, fnr), both valid with probability at least 1 - alpha, of the
    test "world one iff the statistic exceeds a threshold"; oriented by the selection part."""
    cut = int(len(zero) * SELECTION)
    sign = 1.0 if np.median(one[:cut]) >= np.median(zero[:cut]) else -1.0
    zero, one = sign * zero, sign * one
    candidates = np.quantile(np.concatenate([zero[:cut], one[:cut]]), np.linspace(0.02, 0.98, 97))
    tests = len(zero) - cut

    def bounds(a: NDArray[np.float64], b: NDArray[np.float64], threshold: float, count: int):
        false_positives, false_negatives = int((a > threshold).sum()), int((b <= threshold).sum())
        return (
            clopper_pearson_upper(false_positives, count, alpha / 2),
            clopper_pearson_upper(false_negatives, count, alpha / 2),
        )

    # the selection part scores a threshold as if it had as many rounds as the test part will have
    scale = tests / cut
    best = max(
        candidates,
        key=lambda t: mu_of(
            *(
                clopper_pearson_upper(round(scale * k), tests, alpha / 2)
                for k in ((zero[:cut] > t).sum(), (one[:cut] <= t).sum())
            )
        ),
    )
    return bounds(zero[cut:], one[cut:], float(best), tests)


def clopper_pearson_upper(successes: int, trials: int, alpha: float) -> float:
    if successes >= trials:
        return 1.0
    return float(beta.ppf(1 - alpha, successes + 1, trials - successes))


def mu_of(fpr: float, fnr: float) -> float:
    """The mu of the Gaussian trade-off curve through the point (fpr, fnr); 0 if it tells nothing."""
    if fpr >= 1 or fnr >= 1:
        return 0.0
    return max(0.0, float(norm.isf(fpr) - norm.ppf(fnr)))


def epsilon_of(fpr: float, fnr: float) -> float:
    """The pure epsilon that the rates refute anything below of."""
    candidates = [
        log((1 - fnr) / fpr) if fpr > 0 else 0.0,
        log((1 - fpr) / fnr) if fnr > 0 else 0.0,
    ]
    return max(0.0, *candidates)


def claimed_mu(plan: Plan) -> float:
    mu_squared = plan.release.gaussian()
    assert mu_squared is not None
    return sqrt(mu_squared)


def claimed_epsilon(plan: Plan) -> float:
    epsilon = plan.release.pure()
    assert epsilon is not None
    return float(epsilon)
