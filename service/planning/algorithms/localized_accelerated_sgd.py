"""Localized accelerated descent: population risk, in phases on disjoint rows.

**Problem.** min over a convex set of F(w) = E l(w; x, y) + (ridge/2) ||w||^2 + h(w), l convex, h a
regulariser with a proximal operator, if any, for rows drawn independently from a population; ridge may
be zero. W and D as in shared/acceleration.py.

**Schedule.** KLL algorithm 5: k phases on disjoint ranges of row positions, each half as long as
the one before. Phase i adds (p_i/2) ||w - w_(i-1)||^2, which pulls towards the last phase's output
w_(i-1), and minimises the whole over its own rows from there by AC-SA: T steps with restarts, the
pull, the ridge and h solved exactly in the proximal step. p_i = 8 p_(i-1): the paper's 1/(eta_i n_i)
with eta_i = eta/4^i as in Feldman, Koren and Talwar 2020, since no phase gets a smaller budget.
With E_i bounding E ||w_i - w*_i||^2, the distance to the phase's own minimiser, and G bounding
gradients,

    E F(w_k) - F* <= sum_i [ (p_i/2) E_(i-1) + 4 G^2/(mu_i n_i) ] + H sqrt(E_k),   mu_i = p_i + ridge,

H = G and the largest subgradient of h, E_0 = D^2, and E_i = 2/mu_i times the bound of AC-SA plus the
bias of the smoothing, for a start within min(2 D, (H + ridge D)/mu_i). T, the batches' share of their
phase (1/2^j), the smoothness and k are those for which the whole is smallest or nearly so, chosen as
shared/subsampling.py says. p_1 is the root of (8 G^2/n_1 + 32 V/T)/D^2, where (p/2) D^2 + (4 G^2/n_1 +
16 V/T)/p is smallest, what the first phase adds for batches of variance V. With a ridge other p_1 are
tried too, G/D times powers of 2: smaller ones do, down to none in effect, as a ridge keeps minimisers
near each other by itself. Then the sum is 4 G^2/(ridge n) and less, the rate of Lemma 5.5 without its
repetitions. k is 1 + log4 sqrt(d/rho), for which the last term is below the others, or 2 or 4 more, as
rows allow, which a corner's bias asks for.

**Sensitivity.** Neighbours replace one record. Phase i releases T times the noisy sum over a fresh
secret batch of its own rows [start, stop), of sensitivity 2c, for contributions of norm at most c
(`lattice`); its pull and its start are functions of earlier phases' releases.

**Proof.** The record sits in one range, and given what came before only that phase's releases
change in distribution, so each phase may spend the whole budget and the run costs one phase
(`Disjoint`). All phases draw the same share of their rows.

**Errata.** Sensitivity 2G, not G. The printed slices [N - N/2^(i-1), N - N/2^i] are closed,
so neighbouring phases share a row, which would cost two phases; here they are half-open. "N_i samples
with replacement" would let a record occur in several phases and several times in one, for which this
price does not hold. The paper divides its budget over the phases (eps/2^i), which disjoint rows make
needless. (1/(eta n)) ||w - w'||^2 is 2/(eta n)-strongly convex.
"""

from dataclasses import dataclass
from itertools import accumulate
from math import ceil, floor, inf, log, log2, sqrt
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Part, Prediction, Schedule, rounded
from service.planning.lattice import calibrate, target
from service.planning.needs import WITH_A_PROJECTION, WITH_THEIR_SETS, Needs
from service.planning.problem import problem
from service.planning.releases import Disjoint
from service.planning.shared.acceleration import (
    STEPS,
    Smoother,
    Stage,
    per_clip,
    staged,
    start_distance,
    unit_of,
)
from service.planning.shared.clip import clipping, typical_length
from service.planning.shared.pace import Pace
from service.planning.shared.phases import layout, require_rows
from service.planning.shared.reach import Metric, within
from service.planning.shared.subsampling import (
    Candidate,
    best_halvings,
    calibrate_sampled,
    drawing_variance,
    noise_variance,
    quickest,
    sampled,
)
from service.planning.spec import ClipOrPrivate, Facts, JobSpec

NAME = "localized-accelerated-sgd"
_MORE, _LESS = (
    8,
    20,
)  # doublings of the balanced first pull that are tried, and with a ridge halvings


class Phase(Part):
    """AC-SA on the rows [start, stop), with (pull/2)||w - the last phase's output||^2 added."""

    start: NonNegativeInt
    stop: PositiveInt
    batch: PositiveInt
    pull: PositiveFloat
    stages: tuple[Stage, ...] = Field(min_length=1)


class LocalizedAcceleratedSgdSchedule(Schedule):
    """Phases on disjoint ranges of rows, one after the other."""

    kind: Literal["localized_accelerated_sgd"] = "localized_accelerated_sgd"
    smoothness: PositiveFloat
    phases: tuple[Phase, ...] = Field(min_length=1)

    @property
    def steps(self) -> int:
        return sum(stage.steps for phase in self.phases for stage in phase.stages)


class Parameters(ClipOrPrivate):
    halvings: int | None = Field(
        default=None,
        ge=0,
        le=30,
        description="A step reads 1/2^halvings of its phase's rows; by default what suits `steps`.",
    )


@dataclass(frozen=True)
class _Bound:
    """What the bound depends on besides steps, batches, smoothness and pulls."""

    D: float
    G: float
    ridge: float
    smooth: Smoother
    steepest: float  # H
    square: float  # of h

    def total(
        self, rows: list[tuple[int, int]], steps: int, variance: float, beta: float, first: float
    ) -> tuple[float, list[tuple[float, tuple[Stage, ...]]]]:
        """The bound above; `variance` is that of the noise in the sum over a batch."""
        error, distance, phases = 0.0, self.D**2, []
        for i, (batch, population) in enumerate(rows):
            pull = first * 8.0**i
            mu = pull + self.ridge
            V = variance / batch**2 + drawing_variance(self.G, batch, population)
            reach = min(2 * self.D, (self.steepest + (self.ridge + self.square) * self.D) / mu)
            solved, stages = staged(steps, beta + self.square, mu, reach, V)
            error += pull / 2 * distance + 4 * self.G**2 / (mu * population)
            distance = min(4 * self.D**2, 2 / mu * (solved + self.smooth.bias(beta)))
            phases.append((pull, stages))
        return error + self.steepest * sqrt(distance), phases


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal = problem(spec, facts), target(spec, facts)
    n, d, h = p.n, p.d, spec.regulariser
    require_rows(parameters.halvings, n)
    clip = clipping(parameters, p, facts, goal)
    goal, G = clip.goal, typical_length(clip, facts)
    worth = G / clip.C  # of what is planned for a clip of 1
    D = start_distance(within(spec, facts, goal, p), G, spec.ridge)
    plain = calibrate(goal, facts, p, clip.bound, times=1)
    smooth = Smoother.of(p, spec, facts).steeper(Metric.of(spec, facts, p, longer=False).steeper)
    wanted, steepest = 1 + max(0, ceil(log2(d / goal.rho) / 4)), G + h.steepest(d)

    bound = _Bound(D, G, spec.ridge, smooth, steepest, h.square)
    found, pace = list[Candidate](), Pace.of(facts)
    asked, tried = parameters.halvings, [parameters.steps] if parameters.steps else STEPS[4:]
    if not goal.credits_draws:  # all rows, in as many steps as there is time for
        asked = asked or 0
        tried = [steps for steps in tried if pace.affords(steps, n >> asked, n)] or tried[:1]
    for steps in tried:
        halvings = asked
        if halvings is None:
            halvings = best_halvings(goal, plain, d, clip.C, -(-n // 2), steps, pace)
        variance = d * worth**2 * noise_variance(goal, plain, 1, 2**halvings, steps)
        if found and len(layout(n, wanted, halvings)) < len(layout(n, wanted, 0)):
            continue  # batches so small that they leave no rows for the last phases
        for count in (wanted, wanted + 2, wanted + 4):
            rows = layout(n, count, halvings)
            batch, population = rows[0]
            V = variance / batch**2 + drawing_variance(G, batch, population)
            balanced = sqrt(8 / population + 32 * V / G**2 / steps)
            seconds = pace.seconds(steps, batch, population)
            for beta in smooth.choices(steps, D, balanced)[:3]:
                least = inf
                for first in (G / D * pull for pull in _pulls(balanced, spec.ridge)):
                    error, _ = bound.total(rows, steps, variance, beta, first)
                    found.append(
                        Candidate(error, seconds, steps, batch, beta, halvings, first, count)
                    )
                    if first > balanced and error > least:
                        break
                    least = min(least, error)
    best = quickest(found)
    steps, halvings, beta, first = best.steps, best.halvings, best.smoothness, best.pull

    rows = layout(n, best.phases, halvings)
    lattice = calibrate_sampled(goal, facts, p, clip.bound, 1, 2**halvings, steps)
    error, solved = bound.total(rows, steps, d * worth**2 * lattice.variance, beta, first)
    if clip.choice is not None:
        solved = [(pull / unit_of(G, facts), per_clip(each, G, facts)) for pull, each in solved]
    # KLL Theorem 3.1 per mean of the first phase, with its constant c2 = 1 and half the budget
    paper = 0.0
    if goal.delta > 0:
        paper = 2 * G * sqrt(steps * (log(2) - log(goal.delta))) / (goal.epsilon * rows[0][1])
    return Draft(
        dimension=p.d,
        smoothing=smooth.smoothing(beta),
        schedule=LocalizedAcceleratedSgdSchedule(
            smoothness=rounded(beta + h.square), phases=_phases(rows, solved)
        ),
        lattice=lattice,
        private_clip=clip.choice,
        release=clip.paid(
            Disjoint(parts=tuple(sampled(lattice.release(), *phase, steps) for phase in rows))
        ),
        prediction=Prediction(
            theorem=clip.describe("KLL Theorem 5.1, as the sum of its terms"),
            excess_risk=rounded(error),
            noise_squared=rounded(len(rows) * steps * d * lattice.variance),
            paper_noise=rounded(paper),
            our_noise=rounded(sqrt(lattice.variance) / rows[0][0]),
        ),
        gradients=steps * sum(batch for batch, _ in rows),
    )


def _pulls(balanced: float, ridge: float) -> list[float]:
    """The first pulls that are tried; with a ridge up to where the bound rises."""
    if ridge == 0:
        return [balanced]
    least = floor(log2(balanced))
    return [2.0**power for power in (least - _LESS, *range(least - 2, least + _MORE))]


def _phases(
    rows: list[tuple[int, int]], solved: list[tuple[float, tuple[Stage, ...]]]
) -> tuple[Phase, ...]:
    stops = list(accumulate(population for _, population in rows))
    return tuple(
        Phase(start=stop - population, stop=stop, batch=batch, pull=rounded(pull), stages=stages)
        for stop, (batch, population), (pull, stages) in zip(stops, rows, solved, strict=True)
    )


ALGORITHM = Algorithm(
    name=NAME,
    title="Localized accelerated SGD for population risk",
    paper=papers.KLL,
    algorithm="5 on 4",
    theorem="5.6",
    problem="population risk of convex losses, smooth or not, over any set with a projection",
    cost="one phase of noisy sums over random batches: phases read disjoint rows",
    needs=Needs(sets=WITH_A_PROJECTION, regularisers=WITH_THEIR_SETS),
    parameters=Parameters,
    schedule=LocalizedAcceleratedSgdSchedule,
    plan=plan,
    examples=({"loss": "hinge"},),
)
