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

How many rounds: at a fixed depth all are played, and looked at once. Otherwise the rounds so far are
looked at now and then, each look with its share of alpha, so that all looks together are wrong with
probability at most alpha; a game ends at the first look that refutes the claim or passes the row's
gate, which says that the attack is a strong one. A gate is about the auditor, not about privacy: a
`doubt` larger than alpha will do for it.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.planning.algorithms.online_to_nonconvex import OnlineToNonconvexSchedule
from service.planning.algorithms.phased_sgd import PhasedSgdSchedule
from service.planning.lattice import ScoreLattice, SumLattice
from service.planning.plan import Plan
from service.planning.releases.metering import Running
from service.planning.shared.dual import PerturbedMinimumSchedule
from tests.audit.rates import clopper_pearson_upper, epsilon_of, mu_of
from workers.algorithms import RUNS
from workers.data import Data
from workers.gate import Ballot
from workers.prefixes import prefixes
from workers.progress import Progress
from workers.randomness import Randomness

FAMILY = 1e-6
SELECTION = 0.25  # of the rounds choose the threshold, the rest test it


@dataclass(frozen=True)
class Depth:
    looks: tuple[int, ...]  # rounds played in each world by then
    doubt: float | None = None  # that a gate may be passed wrongly; alpha, if none


# What `make test` plays. The first look is deep enough for every mutant of test_mutants.py.
QUICK = Depth(looks=(1500, 2000, 3000, 5000, 10000), doubt=5e-4)

Score = Callable[[float, float], float]  # (fpr, fnr) -> the privacy parameter that they refute

Rows = tuple[NDArray[np.generic], NDArray[np.float64]]


@dataclass(frozen=True)
class Round:
    """What one run let out: every noisy vector, in lattice units with its rows, and the weights."""

    sums: list[tuple[Sequence[int], NDArray[np.float64]]]
    weights: NDArray[np.float64]
    clip: int = 0  # the number of the chosen one
    ratio: float = 0.0  # the log-likelihood ratio of all of them, where a `Shadowed` run knows it


@dataclass(frozen=True)
class Game:
    plan: Plan
    worlds: tuple[Rows, Rows]
    position: int  # the canary's row
    direction: NDArray[
        np.float64
    ]  # of its gradient, a unit vector in the norm of the Plan's lattice

    def white(self, played: Round) -> float:
        """The log-likelihood ratio, up to a factor, if the canary moves every sum or point that
        depends on its row by +c or -c: no statistic of them tells more."""
        lattice = self.plan.lattice
        if self.shadowed:
            return played.ratio
        seen = [
            (
                total - self.start(played, number),
                self.weight(number) * self.canary_units * self.direction,
            )
            for number, (rows, total) in enumerate(played.sums)
            if self.position in rows
        ]
        if lattice.noise == "gaussian":
            return float(sum(canary @ total for total, canary in seen))
        return float(sum((np.abs(t + c) - np.abs(t - c)).sum() for t, c in seen))

    def weight(self, number: int) -> int:
        """How often release `number` has the canary: in prefix sums, the entry of its column."""
        return 1 if self.column is None else self.column[number]

    @property
    def shadowed(self) -> bool:
        """Whether what is released depends on the canary in ways that no one vector says."""
        return bool(self.plan.moments or self.plan.counted)

    @cached_property
    def column(self) -> list[int] | None:
        """Of the first sum of the first period, where the canary is."""
        schedule = self.plan.schedule
        if not isinstance(schedule, OnlineToNonconvexSchedule) or schedule.mechanism is None:
            return None
        sums = prefixes(schedule.mechanism, schedule.period, 1)
        rows = [sums.due(np.array([int(t == 0)])) for t in range(schedule.period)]
        return [int(row[0]) for due in rows for _, row in due]

    def start(self, played: Round, number: int) -> NDArray[np.float64] | float:
        """What release `number` would be about without the canary: a phase that sees zeros alone stays
        at its start, which was released before; anything else is about zero."""
        schedule = self.plan.schedule
        if not isinstance(schedule, PhasedSgdSchedule) or number == 0:
            return 0.0
        before, now = schedule.phases[number - 1], schedule.phases[number]
        point = played.sums[number - 1][1] * before.lattice_step
        return point * min(1.0, schedule.radius / float(np.linalg.norm(point))) / now.lattice_step

    @cached_property
    def digest(self) -> str:
        return self.plan.digest()

    @property
    def canary_units(self) -> float:
        lattice = self.plan.lattice
        if isinstance(lattice, SumLattice):
            points = getattr(self.plan.schedule, "points", 1)  # that a certificate adds up
            return points * lattice.contribution_units
        if isinstance(lattice, ScoreLattice):
            return 1.0  # what is seen is the end of an axis
        schedule = self.plan.schedule
        if isinstance(schedule, PerturbedMinimumSchedule):  # as far as the ridge alone holds it
            moved = schedule.term.sensitivity * schedule.term_step / schedule.strong_convexity
            return moved / 2 / schedule.lattice_step
        return (lattice.sensitivity_units - lattice.slack_units) / 2

    def black(self, played: Round) -> float:
        """All that an analyst gets."""
        return float(self.direction @ played.weights)

    def cancelling(self, played: Round) -> float:
        """A sum with the canary less one without it: their noise is independent, or it cancels."""
        if self.shadowed:  # releases are of different lengths, and none is without the canary
            return 0.0
        with_it = [total for rows, total in played.sums if self.position in rows]
        without = [total for rows, total in played.sums if self.position not in rows]
        return float(self.direction @ (with_it[0] - (without[0] if without else 0.0)))

    def clip(self, played: Round) -> float:
        """The clip, where it is chosen."""
        return float(played.clip)


class Spy(Data):
    """Data that also notes what it lets out."""

    def __init__(self, plan: Plan, rows: Rows, randomness: Randomness) -> None:
        super().__init__(plan, *rows, randomness, released=np.zeros(plan.weights_named))
        self.seen: list[tuple[Sequence[int], NDArray[np.float64]]] = []
        self.clip = 0

    def _vector(
        self, exact: NDArray[np.int64], step: float, rows: range, **how: Any
    ) -> NDArray[np.float64]:
        released = super()._vector(exact, step, rows, **how)
        self.seen.append((rows, in_units(released, step)))
        return released

    def _choice(
        self, ballot: Ballot, scale: int, rows: range, running: Running | None = None
    ) -> int:
        """Among the ends of the axes of an l1 ball, noted as such; or among clips."""
        chosen = super()._choice(ballot, scale, rows, running)
        if self._plan.private_clip is not None:
            self.clip = chosen
            return chosen
        axis = np.zeros(self._plan.dimension)
        axis[chosen % axis.size] = 1.0 if chosen < axis.size else -1.0
        self.seen.append((rows, axis))
        return chosen


def in_units(released: NDArray[np.float64], step: float) -> NDArray[np.float64]:
    """How many steps were let out. Where a whole number of them is that to the last bit, it is this
    number, although float64 may round the quotient of large ones otherwise."""
    quotient = released / step
    whole = np.rint(quotient)
    return np.where(whole * step == released, whole, quotient)


class Exact(Data):
    """What a world would let out, without noise, for the questions of a run in the other."""

    def _vector(
        self, exact: NDArray[np.int64], step: float, rows: range, **how: Any
    ) -> NDArray[np.float64]:
        self.exact = exact
        return np.zeros(exact.size)


def asked_of_both(name: str) -> Any:
    """A method that asks the other world first."""

    def ask(self: "Shadowed", *asked: Any) -> Any:
        getattr(self._other, name)(*asked)
        return getattr(Spy, name)(self, *asked)

    return ask


class Shadowed(Spy):
    """Asks the other world all that this one is asked, and so knows the likelihood ratio of what is
    let out, given what was before: no statistic tells more. In favour of world one."""

    def __init__(self, game: Game, world: int, randomness: Randomness) -> None:
        super().__init__(game.plan, game.worlds[world], randomness)
        self._sign, self.ratio = (-1.0, 1.0)[world], 0.0
        self._other = Exact(game.plan, *game.worlds[1 - world], randomness)

    def _vector(
        self, exact: NDArray[np.int64], step: float, rows: range, **how: Any
    ) -> NDArray[np.float64]:
        released = super()._vector(exact, step, rows, **how)
        lattice, seen, other = (
            how.get("lattice") or self._plan.lattice,
            in_units(released, step),
            self._other,
        )
        if lattice.noise == "gaussian":
            told = (exact - other.exact) @ (seen - (exact + other.exact) / 2) / 4.0**lattice.bits
        else:
            told = (np.abs(seen - other.exact) - np.abs(seen - exact)).sum() / 2.0**lattice.bits
        self.ratio += self._sign * float(told)
        return released

    noisy_label_sum = asked_of_both("noisy_label_sum")
    noisy_means = asked_of_both("noisy_means")
    noisy_moments = asked_of_both("noisy_moments")
    noisy_counts = asked_of_both("noisy_counts")
    derive = asked_of_both("derive")
    set_clip = asked_of_both("set_clip")
    noisy_sum = asked_of_both("noisy_sum")


def key(name: str, world: int, number: int) -> bytes:
    return hashlib.sha256(f"audit {name} {world} {number}".encode()).digest()


def play(game: Game, world: int, noise_key: bytes, spy: type[Spy] = Spy) -> Round:
    plan, randomness = game.plan, Randomness(noise_key, game.digest)
    if game.shadowed:
        shadowed = (spy if issubclass(spy, Shadowed) else Shadowed)(game, world, randomness)
        weights = RUNS[plan.algorithm](plan, shadowed, Progress())
        return Round(sums=shadowed.seen, weights=weights, ratio=shadowed.ratio)
    sums = spy(plan, game.worlds[world], randomness)
    weights = RUNS[plan.algorithm](plan, sums, Progress())
    return Round(sums=sums.seen, weights=weights, clip=sums.clip)


@dataclass(frozen=True)
class Finding:
    """Lower bounds on what each statistic achieved, and whether all sums were on the lattice."""

    white: float
    black: float
    cancelling: float
    clip: float = 0.0
    on_lattice: bool = False

    @property
    def worst(self) -> float:
        return max(self.white, self.black, self.cancelling, self.clip)


Gate = Callable[[Finding, int], bool]  # what was found by how many rounds -> a strong attack?


class Match:
    """A game under way: the statistics of the rounds so far, in either world."""

    def __init__(self, game: Game, name: str, spy: type[Spy] = Spy) -> None:
        self._game, self._name, self._spy = game, name, spy
        self._statistics = [game.white, game.black, game.cancelling]
        if game.plan.private_clip is not None:
            self._statistics.append(game.clip)
        self._seen: tuple[list[list[float]], list[list[float]]] = ([], [])
        self._on_lattice = True

    def play_to(self, rounds: int) -> None:
        for world, seen in enumerate(self._seen):
            for number in range(len(seen), rounds):
                played = play(self._game, world, key(self._name, world, number), self._spy)
                seen.append([statistic(played) for statistic in self._statistics])
                self._on_lattice = self._on_lattice and on_lattice(played)

    def finding(self, alpha: float) -> Finding:
        """Bounds on mu (Gaussian noise) or epsilon (Laplace noise), all true with probability at least
        1 - alpha."""
        zero, one = (np.array(seen).T for seen in self._seen)
        share, score = alpha / len(self._statistics), score_of(self._game.plan)
        bounds = [lower_bound(a, b, share, score) for a, b in zip(zero, one, strict=True)]
        return Finding(*bounds, on_lattice=self._on_lattice)


def attack(game: Game, name: str, rounds: int, alpha: float, spy: type[Spy] = Spy) -> Finding:
    """Play the game for so many rounds in both worlds."""
    match = Match(game, name, spy)
    match.play_to(rounds)
    return match.finding(alpha)


def audit(
    game: Game, name: str, depth: Depth, alpha: float, gate: Gate, spy: type[Spy] = Spy
) -> tuple[Finding, bool]:
    """Play the game until it is decided: what was found, and whether the gate was passed."""
    match, looks = Match(game, name, spy), len(depth.looks)
    for rounds in depth.looks:
        match.play_to(rounds)
        found = match.finding(alpha / looks)
        strong = found if depth.doubt is None else match.finding(depth.doubt / looks)
        passed = gate(strong, rounds)
        if passed or found.worst > claim(game.plan) or not found.on_lattice:
            break
    print(
        f"{name}: paid {claim(game.plan):.3f}, {rounds} rounds, white box {found.white:.3f} "
        f"(likely {strong.white:.3f}), black box {found.black:.3f}, clip {found.clip:.3f}"
    )
    return found, passed


def on_lattice(played: Round) -> bool:
    """Whether every sum is a vector of integers, exactly. Noise off the lattice betrays the data by
    its last bits, which no trade-off curve of these statistics would show."""
    return all(bool((s == np.rint(s)).all()) for _, s in played.sums)


def score_of(plan: Plan) -> Score:
    if _mu_squared(plan) is not None:
        return mu_of
    return lambda fpr, fnr: epsilon_of(fpr, fnr, plan.guarantee.delta)


def lower_bound(
    zero: NDArray[np.float64], one: NDArray[np.float64], alpha: float, score: Score
) -> float:
    """What the test "world one iff the statistic exceeds a threshold" proves, wrongly with probability
    at most alpha. Threshold and orientation are chosen on the selection part."""
    cut = int(len(zero) * SELECTION)
    sign = 1.0 if np.median(one[:cut]) >= np.median(zero[:cut]) else -1.0
    zero, one = sign * zero, sign * one
    tests = len(zero) - cut
    chosen = np.concatenate([zero[:cut], one[:cut]])

    def proved(a: NDArray[np.float64], b: NDArray[np.float64], threshold: float) -> float:
        # the selection part is scored as if it had as many rounds as the test part
        counts = (round(tests * float(np.mean(hit))) for hit in (a > threshold, b <= threshold))
        return score(*(clopper_pearson_upper(count, tests, alpha / 2) for count in counts))

    # the best test between two Gaussians is near the middle; between two Laplaces it may be far out
    edge = 0.3 if score is mu_of else 0.03
    candidates = np.quantile(chosen, np.linspace(edge, 1 - edge, 99))
    threshold = max(candidates, key=lambda t: proved(zero[:cut], one[:cut], t))
    return proved(zero[cut:], one[cut:], threshold)


def claim(plan: Plan) -> float:
    """What was paid for: mu for Gaussian noise on sums, points and objectives, else the epsilon at the
    Plan's delta."""
    mu_squared = _mu_squared(plan)
    if mu_squared is not None:
        return sqrt(mu_squared)
    if plan.guarantee.delta > 0:
        return plan.guarantee.epsilon_alone
    epsilon = plan.release.pure()
    assert epsilon is not None
    return float(epsilon)


def _mu_squared(plan: Plan) -> Fraction | None:
    tilted = isinstance(plan.schedule, PerturbedMinimumSchedule)
    return plan.release.mu_squared() if tilted and plan.guarantee.delta else plan.release.gaussian()
