"""Polyhedral stochastic Frank-Wolfe: a stationary point of a smooth loss over a polytope, in one pass.

**Problem.** Find w in a polytope whose Frank-Wolfe gap, the maximum over v in it of <grad F(w), w -
v>, is small, for F(w) = E l(<w, x>, y) + (ridge/2) ||w||^2. l is smooth in its margin and need not
be convex; rows have enforced norms. The polytope is an l1 ball (J = 2d vertices), a simplex (d), or
given by its J vertices: the dimension enters the error by log J alone.

**Schedule.** BGM algorithm 4, its rounds and estimator as in rounds.py: step t of a round chooses a
vertex v by its score <v, d_t> with the exponential mechanism and sets w <- w + (v - w)/sqrt(t + 1).
A bounds |<v - v', x>| over vertices and rows, so batch k is clipped at the slope C_k = (1 - a_k)
min(L1 A/sqrt(k), 2 L0) + a_k L0, a_k = 1/sqrt(k + 1), and C_0 = L0. To the descent's part the mean
gap adds 2 A sqrt(log J sum of (p_tk C_k)^2/b_k), p_tk the product of 1 - a_j over j = k+1..t, and
scale log J for each choice. The number of rounds is the one with the least sum of these.

**Sensitivity.** Neighbours replace one record, which is in batch k of one round. It moves the
difference of two scores by at most S_k = 2 Q P gains_k/2^32 in choice k, by what is kept of that in
later ones, and by nothing before: what `Recursive` prices. Q bounds a slope, P |<v - v', x>|, both in
whole units; rounding moves two scores apart by at most 3, `slack`.

**Proof.** docs/proofs/polyhedral-stochastic-frank-wolfe.md: P for each kind of set, and the rounding.

**Errata.** Algorithm 4 takes a batch's sensitivity as L0/b and the score's from a vertex
norm of at most D: here the 2 of replacement, and vertex pairs. It bounds the change of a gradient
by the size of the step to come; w_t - w_(t-1) is as long as the step before it, a_(t-1) > a_t. Its
advanced composition lacks a factor sqrt(2), and charges every step as the worst: here the sum that
a record really meets. The smoothness of the loss is not trusted: slopes are clipped. The logarithm
in R is to base 2.
"""

from math import log, pi, sqrt
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from service.errors import PlanRefused
from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.conversion import UNITS
from service.planning.draft import Draft, Prediction, Schedule, rounded
from service.planning.lattice import DERIVATIVE_UNITS, SCALE_MAX, ScoreLattice, Target, target
from service.planning.needs import WITH_VERTICES, Needs
from service.planning.problem import Problem, problem
from service.planning.releases import Disjoint, Recursive
from service.planning.shared.rounds import (
    ROUNDS_MAX,
    Round,
    carried,
    descent_bound,
    layouts,
    require_slope_bound,
    slope_bounds,
    step_size,
)
from service.planning.shared.vertices import SLACK, Shape, shape
from service.planning.spec import Facts, JobSpec

NAME = "polyhedral-stochastic-frank-wolfe"
ONE = Recursive.KEPT_ONE
_SCORE_MAX = 2**62


class ChoiceRound(Round):
    """A round whose batch t enters the running sum of its release as gains[t]/2^32 times the exact sum
    over the batch; a unit of the running sum is worth `unit` of a mean gradient."""

    unit: PositiveFloat
    gains: tuple[PositiveInt, ...]


class PolyhedralStochasticFrankWolfeSchedule(Schedule):
    """Rounds on disjoint rows, one after the other, each with its part of the release; the output is
    drawn from the last one's iterates. Slopes are within `lipschitz` and change by at most
    `smoothness` times the margin, a margin by at most `width` times the step size. A unit of a vertex
    is worth `unit`."""

    kind: Literal["polyhedral_stochastic_frank_wolfe"] = "polyhedral_stochastic_frank_wolfe"
    rounds: tuple[ChoiceRound, ...] = Field(min_length=1)
    lipschitz: PositiveFloat
    smoothness: PositiveFloat
    width: PositiveFloat
    unit: PositiveFloat

    @property
    def steps(self) -> int:
        return sum(one.steps for one in self.rounds)

    def vertex_unit(self) -> float:
        return self.unit


class Parameters(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: PositiveInt | None = Field(
        default=None,
        le=ROUNDS_MAX,
        description="Rounds of 1, 2, 4, ... steps; by default those with the least predicted gap.",
    )


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    loss = spec.loss.scalar()
    p, goal = problem(spec, facts), target(spec, facts)
    require_slope_bound(NAME, spec, p)
    s, margin = shape(spec, facts)
    L0 = loss.lipschitz(margin, facts.label_bound)

    gaps = []
    possible = layouts(NAME, p.n, parameters.rounds)
    for layout in possible:
        one, release = _round(layout[-1], goal, facts, s, L0, p.smoothness)
        gaps.append(_gap(one, release, spec, p, s, L0))
    gap = min(gaps)
    layout = possible[gaps.index(gap)]
    made = [_round(one, goal, facts, s, L0, p.smoothness) for one in layout]
    rounds, releases = zip(*made, strict=True)
    if max(max(release.scales) for release in releases) > SCALE_MAX:
        raise PlanRefused(
            f"privacy.epsilon is too small for {len(rounds)} rounds: the scale of a choice would "
            f"exceed {SCALE_MAX} units. Ask fewer rounds or a larger epsilon."
        )
    last, choices = rounds[-1], releases[-1]
    return Draft(
        dimension=p.d,
        schedule=PolyhedralStochasticFrankWolfeSchedule(
            rounds=rounds, lipschitz=L0, smoothness=p.smoothness, width=s.width, unit=s.unit
        ),
        lattice=ScoreLattice(
            derivative_units=DERIVATIVE_UNITS,
            step=L0 / DERIVATIVE_UNITS * (facts.feature_step or 0.0),
            sensitivity_units=choices.sensitivities[0] + SLACK,
            scale=choices.scales[0],
        ),
        release=Disjoint(parts=releases),
        prediction=Prediction(
            theorem="BGM Theorem 11, its proof's sum for the last round",
            excess_risk=rounded(gap),
            noise_squared=0.0,
            paper_noise=rounded(_paper(goal, last, L0 * s.width, p.smoothness * s.width**2)),
            our_noise=rounded(sum(choices.scales) / last.steps * last.unit * s.unit),
        ),
        gradients=sum(2 * len(rows) for one in rounds for rows in one.batches()),
    )


def _round(
    layout: Round, goal: Target, facts: Facts, s: Shape, L0: float, L1: float
) -> tuple[ChoiceRound, Recursive]:
    """A round whose choices cost what was asked, and its release."""
    batches = [len(rows) for rows in layout.batches()]
    bounds = slope_bounds(L0, L1 * s.width, layout.steps)
    kept = tuple(round(ONE * (1 - step_size(t))) for t in range(layout.steps))
    gains = tuple(
        max(1, round(ONE * (bound / L0) * (batches[0] / rows)))
        for bound, rows in zip(bounds, batches, strict=True)
    )
    moved = tuple(-(-2 * DERIVATIVE_UNITS * s.pairs * gain // ONE) for gain in gains)
    even = _even(moved, kept, squares=goal.delta > 0)
    trial = Recursive(sensitivities=moved, kept=kept, scales=even, slack=SLACK)
    factor = _factor(trial, goal) * (1 + 2.0**-40)  # far more than these floats err
    scales = tuple(int(scale * factor) + 1 for scale in even)
    unit = L0 * (facts.feature_step or 0.0) / (DERIVATIVE_UNITS * batches[0])
    if max_score(batches, kept, gains, s.pairs) >= _SCORE_MAX:
        raise PlanRefused(
            f"scores of {layout.steps} steps would leave 64 bits; ask fewer rounds or a smaller set."
        )
    return (
        ChoiceRound(**dict(layout), unit=unit, gains=gains),
        Recursive(sensitivities=moved, kept=kept, scales=scales, slack=SLACK),
    )


def _factor(trial: Recursive, goal: Target) -> float:
    """By what to multiply the scales, so that they cost what `goal` has at all of its terms."""
    amount, squares, epsilon = goal.units / UNITS, trial.squares(), float(trial.pure())
    if goal.delta == 0:
        return epsilon / amount
    if not goal.orders:
        return sqrt(pi / 16 * squares / amount)
    return min(sqrt(squares / 8 / amount), epsilon / (min(goal.orders) * amount))


def _even(moved: tuple[int, ...], kept: tuple[int, ...], *, squares: bool) -> tuple[int, ...]:
    """Scales in proportion to what a record of each batch moves, in all choices together."""
    scales, total = [], 0.0
    for move, keep in zip(reversed(moved), reversed((*kept[1:], 0)), strict=True):
        share = keep / ONE
        total = 1 + (share**2 if squares else share) * total
        scales.append(int(move * (sqrt(total) if squares else total)) + 1)
    return tuple(reversed(scales))


def max_score(batches: list[int], kept: tuple[int, ...], gains: tuple[int, ...], pairs: int) -> int:
    """No score is larger, whatever the rows."""
    largest = total = 0
    for rows, keep, gain in zip(batches, kept, gains, strict=True):
        total = (keep * total + gain * rows * DERIVATIVE_UNITS * pairs) // ONE + 1
        largest = max(largest, total)
    return largest


def _gap(
    one: ChoiceRound, release: Recursive, spec: JobSpec, p: Problem, s: Shape, L0: float
) -> float:
    """The docstring's bound on the mean gap of a last round."""
    T, A = one.steps, s.width
    bounds = slope_bounds(L0, p.smoothness * A, T)
    sampled = carried([c**2 / len(rows) for c, rows in zip(bounds, one.batches(), strict=True)])
    chosen = sum(release.scales) * one.unit * s.unit
    return (
        descent_bound(
            L0 * A + 2 * spec.ridge * p.W**2, p.smoothness * A**2 + 4 * spec.ridge * p.W**2, T
        )
        + (2 * A * sqrt(log(s.vertices)) * sum(sampled) + chosen * log(s.vertices)) / T
    )


def _paper(goal: Target, last: Round, L0A: float, L1A2: float) -> float:
    """BGM algorithm 4: s_r = 2 D (L0 + L1 D) 2^r sqrt(log(1/delta))/(b epsilon)."""
    if goal.delta == 0:
        return 0.0
    return 2 * (L0A + L1A2) * last.steps * sqrt(-log(goal.delta)) / (last.rows * goal.epsilon)


ALGORITHM = Algorithm(
    name=NAME,
    title="Stochastic Frank-Wolfe with privately chosen vertices, one pass",
    paper=papers.BGM,
    algorithm="4",
    theorem="11",
    problem="stationary points of smooth losses, convex or not, over an l1 ball, simplex or "
    "polytope",
    cost="the choices that a record's batch still influences; rounds read disjoint rows",
    needs=Needs(sets=WITH_VERTICES, margins="one", smooth=True, convexity="any", bounded_rows=True),
    parameters=Parameters,
    schedule=PolyhedralStochasticFrankWolfeSchedule,
    plan=plan,
    examples=({"loss": "sigmoid", "set": {"kind": "l1_ball", "radius": 10.0}},),
)
