"""Noisy stochastic Frank-Wolfe: a stationary point of a smooth loss over a bounded set, in one pass.

**Problem.** Find w in a convex set whose Frank-Wolfe gap, the maximum over v in it of <grad F(w), w -
v>, is small, for F(w) = E l(<w, x>, y) + (ridge/2) ||w||^2. l is smooth in its margin and need not be
convex; rows have enforced norms. Of the set a linear function's least point is asked for, and D, a
bound on ||v - w||_p: for a ball of ||w||_p, 1 < p <= 2, that p and twice its radius, for an l1 ball
and a simplex p = 1, for a box and a polytope p = 2. 1/p + 1/q = 1.

**Schedule.** BGM algorithm 5, its rounds and estimator as in rounds.py. Batch t releases one noisy
sum, of (1 - a) D_t + a g_t, a = 1/sqrt(t + 1), and d_t = (1 - a) d_(t-1) + that mean; then w <- w +
a (v - w) with a v of least <v, d_t> over the set: -W sign(d) |d|^(q-1)/||d||_q^(q-1) over a ball, a
corner elsewhere. A row's q-norm is at most Xq = X2^(2/q) Xinf^(1-2/q), so with A = D Xq a step moves
a margin by at most A a. To the descent's part the mean gap adds A sqrt(k sum of (p_tk C_k)^2/b_k), k
= min(q - 1, 2 log d), for the sampling (l_q is k-regular), and D times the q-norm of what d_t
carries of the noise: d^(1/q) min(sqrt(q), sqrt(2 log 2d)) standard deviations; among J vertices, no
more than sqrt(2 log J) of them. The number of rounds is the one with the least sum; Theorem 14
balances the same terms, for n^(-1/3) + (sqrt(d)/(n epsilon))^(2/5) up to logarithms.

**Sensitivity.** Neighbours replace one record, which is in one batch, by its position. That batch
releases a sum of q x, q integers within Q, x stored rows of enforced norm: replacing the record
moves it by at most 2 Q ||x||_2 (l1: 2 Q ||x||_1), whatever a unit of q is worth. It is worth C_t/Q
with C_t = (1 - a) min(L1 M, 2 L0) + a L0, where M = min(||w_t - w_(t-1)||_p Xq, ||w_t - w_(t-1)||_2
X2) is a function of earlier releases: so the noise, fixed in lattice units (`lattice` states them
for C = L0), shrinks with the step actually made, and for w_t = w_(t-1) only the part a g_t is left.
In gradients, the mean moves by at most (2/b_t) C_t X2.

**Proof.** Everything after the noise is post-processing, over whatever set; M is a bound for any p;
batches are disjoint: the job costs one release. Bounding ||.||_2 by d^(1/p-1/2) ||.||_q, as the paper
does, would give d^(1/p-1/2) Xq >= X2.

**Errata.** Algorithm 5 adds noise for L0/b where replacement moves a mean by 2 L0/b, and
for a change of a gradient by the size of the step to come, where it is as long as the step before.
Its proof omits the factor t + 1 of the batch's size, and releases D_t and g_t of the same batch
with the whole epsilon each: here they are one release. The smoothness of the loss is not trusted:
slopes are clipped.
"""

from math import inf, log, sqrt
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Prediction, Schedule, rounded
from service.planning.lattice import SumLattice, Target, calibrate, target
from service.planning.needs import WITH_A_LOWEST_POINT, Needs
from service.planning.problem import Problem, problem
from service.planning.releases import Disjoint
from service.planning.sets import FeasibleSet
from service.planning.shared.rounds import (
    ROUNDS_MAX,
    Round,
    carried,
    descent_bound,
    layouts,
    require_slope_bound,
    slope_bounds,
)
from service.planning.spec import Facts, JobSpec

NAME = "stochastic-frank-wolfe"


class StochasticFrankWolfeSchedule(Schedule):
    """Rounds on disjoint rows, one after the other; the output is drawn from the last one's iterates.
    Slopes are within `lipschitz` and change by at most `smoothness` times the margin; rows are within
    `row_norm` in the norm dual to the set's."""

    kind: Literal["stochastic_frank_wolfe"] = "stochastic_frank_wolfe"
    rounds: tuple[Round, ...] = Field(min_length=1)
    lipschitz: PositiveFloat
    smoothness: PositiveFloat
    row_norm: PositiveFloat

    @property
    def steps(self) -> int:
        return sum(one.steps for one in self.rounds)


class Parameters(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: PositiveInt | None = Field(
        default=None,
        le=ROUNDS_MAX,
        description="Rounds of 1, 2, 4, ... steps; by default those with the least predicted gap.",
    )


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal = problem(spec, facts), target(spec, facts)
    require_slope_bound(NAME, spec, p)
    spec.set.require_columns(facts.columns)
    Xq = row_norm(facts, spec.set.exponent)
    lattice = calibrate(goal, facts, p, p.lipschitz, times=1)
    candidates = [
        (_gap(layout[-1], lattice, spec, p, Xq), len(layout), layout)
        for layout in layouts(NAME, p.n, parameters.rounds)
    ]
    gap, _, layout = min(candidates)
    schedule = StochasticFrankWolfeSchedule(
        rounds=layout, lipschitz=p.lipschitz, smoothness=p.smoothness, row_norm=Xq
    )
    return Draft(
        dimension=p.d,
        schedule=schedule,
        lattice=lattice,
        release=Disjoint(parts=(lattice.release(),), copies=schedule.steps),
        prediction=Prediction(
            theorem="BGM Theorem 14, its proof's sum for the last round",
            excess_risk=rounded(gap),
            noise_squared=rounded(
                p.d
                * lattice.variance
                * sum(c**2 for one in layout for c in _bounds(one, spec, p, Xq))
                / p.lipschitz**2
            ),
            paper_noise=rounded(_paper(goal, layout[-1], p, spec.set, Xq)),
            our_noise=rounded(sqrt(lattice.variance) / layout[-1].rows),
        ),
        gradients=sum(2 * len(rows) for one in layout for rows in one.batches()),
    )


def row_norm(facts: Facts, p: float) -> float:
    """Xq of the docstring: Hoelder's interpolation of the two enforced norms."""
    share = 2 * (p - 1) / p  # 2/q
    linf, l2 = facts.linf or 0.0, facts.l2 or 0.0
    return float(l2**share * min(linf, l2) ** (1 - share))


def _bounds(one: Round, spec: JobSpec, p: Problem, Xq: float) -> list[float]:
    """C_t, where every step is as long as it may be."""
    return slope_bounds(p.lipschitz, p.smoothness * spec.set.diameter(p.d) * Xq, one.steps)


def _gap(one: Round, lattice: SumLattice, spec: JobSpec, p: Problem, Xq: float) -> float:
    """The docstring's bound on the mean gap of a last round."""
    T, D, P, corners = one.steps, spec.set.diameter(p.d), spec.set.exponent, spec.set.listed
    A, q, per_slope = D * Xq, P / (P - 1) if P > 1 else inf, sqrt(lattice.variance) / p.lipschitz
    regular = min(q - 1, max(1.0, 2 * log(p.d)))
    long = p.d ** (1 / q) * min(sqrt(q), sqrt(2 * log(2 * p.d)))
    long = long if corners is None else min(long, sqrt(2 * log(len(corners))))
    bounds, sizes = _bounds(one, spec, p, Xq), [len(rows) for rows in one.batches()]
    pairs = list(zip(bounds, sizes, strict=True))
    sampled = carried([c**2 / rows for c, rows in pairs])
    noise = carried([(per_slope * c / rows) ** 2 for c, rows in pairs])
    return float(
        descent_bound(
            p.lipschitz * A + 2 * spec.ridge * p.W**2,
            p.smoothness * A**2 + 4 * spec.ridge * p.W**2,
            T,
        )
        + (A * sqrt(regular) * sum(sampled) + D * long * sum(noise)) / T
    )


def _paper(goal: Target, last: Round, p: Problem, feasible: FeasibleSet, Xq: float) -> float:
    """BGM algorithm 5: sigma_(r,0) = 4 L0 d^(1/p - 1/2) sqrt(log(1/delta))/(b epsilon)."""
    if goal.delta == 0:
        return 0.0
    longer = p.d ** (1 / feasible.exponent - 0.5) * Xq
    return float(4 * p.lipschitz * longer * sqrt(-log(goal.delta)) / (last.rows * goal.epsilon))


ALGORITHM = Algorithm(
    name=NAME,
    title="Noisy stochastic Frank-Wolfe, one pass",
    paper=papers.BGM,
    algorithm="5",
    theorem="14",
    problem="stationary points of smooth losses, convex or not, over an l_p ball or another bounded "
    "set in which linear functions are minimised in closed form",
    cost="one noisy sum on disjoint batches: the price of a single release",
    needs=Needs(
        sets=WITH_A_LOWEST_POINT, margins="one", smooth=True, convexity="any", bounded_rows=True
    ),
    parameters=Parameters,
    schedule=StochasticFrankWolfeSchedule,
    plan=plan,
    examples=({"loss": "sigmoid", "set": {"kind": "lp_ball", "p": 1.5, "radius": 10.0}},),
)
