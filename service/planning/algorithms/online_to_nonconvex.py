"""Online-to-non-convex conversion: stationary points of losses that are neither smooth nor convex.

**Problem.** A point w near which F(w) = E f(w; x, y) + (ridge/2)||w||^2 has a small convex combination
of gradients: (a, b)-Goldstein stationary if one of norm at most b comes from within distance a of w.
f is any loss of one margin, of a linear model or of a ReLU network.

**Schedule.** KLT algorithm 2: x_t = x_{t-1} + Delta_t, z_t = x_{t-1} + s_t Delta_t with s_t uniform in
[0, 1], Delta_{t+1} = Delta_t - eta g_t shortened to length D; T steps in blocks of M with M D = a; the
output is the mean of the z_t of one block. g_t estimates the gradient by a sum over a period of N
steps: the gradient at the first of them (clipped to C1), then differences of gradients at z_t and
z_{t-1} (clipped to C2). Four oracles: first-order (algorithm 5) and zero-order (algorithm 3) in one
pass, over fresh rows, released as prefixes (prefixes.py); and both over all rows in every step
(section 6, algorithm 4). How T, N, M and C2 are chosen: the page below.

**Sensitivity.** Neighbours replace one record. One pass: each row position enters one sum of one
period, as an integer vector of norm at most c_1 (first of a period) or c_2 (`lattice`,
`schedule.later`): replacing it moves that sum by 2 c_1 or 2 c_2 at most. Many passes: T sums over
the same rows or over batches of them, T/N of sensitivity 2 c_1 and the others 2 c_2, costs add; a
batch is drawn uniformly, fresh and secret, and `SampledGaussian` (`Subsample`, for Laplace).

**Proof.** docs/proofs/online-to-nonconvex.md; `Prefixes` says what a period costs.

**Errata.** Lemmas 3.4 and 6.3 take L/B1 for the first sum and hide constants in the others;
under replacement it is 2 C1/B1, and clipping makes both certain, so that no failure probability is
added to delta. TREE(t mod N) and the missing nodes: prefixes.py. The listings draw from the sphere and
the ball alternately; zero order needs the sphere and first order the ball. With common directions at
z_t and z_{t-1} the theorem's m (d^2 B1^2 and more) is not needed: m = d, at most 128, is the default.
"""

from dataclasses import replace
from math import log, pi, sqrt
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from service.errors import PlanRefused
from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Ball, Draft, Prediction, Schedule, Smoothing, rounded
from service.planning.lattice import SumLattice, Target, target
from service.planning.needs import BALL_OR_ALL, Needs
from service.planning.problem import Problem, problem
from service.planning.releases import Disjoint, Release, Sequence
from service.planning.shared.clip import clipping, typical_length
from service.planning.shared.pace import Pace
from service.planning.shared.periods import Asked, Layout, Terms, bound_of, first_share, layouts
from service.planning.shared.prefixes import calibrate_prefixes
from service.planning.shared.reach import row_scale
from service.planning.shared.subsampling import (
    Batches,
    calibrate_sampled,
    sampled,
)
from service.planning.spec import Facts, JobSpec

NAME = "online-to-nonconvex"
DIRECTIONS_MAX = 128  # by default
TOLERANCE = 0.05  # a bound this much larger is as good, if it takes fewer steps


Oracle = Literal["first-order", "zero-order", "first-order-multi-pass", "zero-order-multi-pass"]


class OnlineToNonconvexSchedule(Schedule):
    """O2NC: steps no longer than `reach`, the mean of `block` of them. Each period is one whole
    gradient and then differences: over fresh rows, `first_batch` and then `batch` per step, released
    as prefixes by `mechanism`; or over all rows, each on its own. Sums of differences are made on
    `later`, whole gradients on the Plan's lattice."""

    kind: Literal["online_to_nonconvex"] = "online_to_nonconvex"
    oracle: Oracle
    steps: PositiveInt
    period: PositiveInt
    block: PositiveInt
    first_batch: PositiveInt
    batch: PositiveInt
    reach: PositiveFloat
    step_size: PositiveFloat
    radius: PositiveFloat
    directions: PositiveInt
    mechanism: Literal["root", "tree"] | None
    output: Literal["random", "last"]
    later: SumLattice
    step_per_clip: bool | None = Field(default=None, exclude_if=lambda value: value is None)

    def rows_of(self, first: bool) -> int:
        """A step reads so many: the first of a period, or a later one."""
        return self.first_batch if first else self.batch


class Parameters(Batches):
    oracle: Oracle = Field(default="first-order", description="How gradients are estimated.")
    radius: float | None = Field(
        default=None,
        ge=1e-9,
        le=1e9,
        description="a: how far from the output gradients may be taken. By default 1 over the bound "
        "on a row's norm.",
    )
    period: PositiveInt | None = Field(
        default=None, le=2**14, description="N: steps from one whole gradient to the next."
    )
    block: PositiveInt | None = Field(
        default=None, le=10**6, description="M: steps over which the output is averaged."
    )
    directions: PositiveInt | None = Field(
        default=None,
        le=10**4,
        description="m: points or directions per step; by default as many as weights, at most "
        f"{DIRECTIONS_MAX} (zero order), or 1. Linear models average in closed form at first order.",
    )
    mechanism: Literal["root", "tree"] | None = Field(
        default=None,
        description="How prefixes are released in one pass; root for Gaussian noise, tree for "
        "Laplace noise unless set.",
    )
    gap: float = Field(
        default=1.0, ge=1e-9, le=1e9, description="Phi: how far above its infimum F starts."
    )
    smoothness: float | None = Field(
        default=None,
        ge=1e-9,
        le=1e12,
        description="Of one record's loss, for the clip on differences: known from elsewhere, and no "
        "privacy rests on it.",
    )
    step_size: float | None = Field(
        default=None, ge=1e-12, le=1e12, description="eta; by default D/(G1 sqrt(M))."
    )
    output: Literal["random", "last"] = Field(
        default="random", description="Which block of steps is averaged."
    )


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal = problem(spec, facts), target(spec, facts)
    network, passes = spec.model.kind != "linear", parameters.oracle.endswith("multi-pass")
    zero_order = parameters.oracle.startswith("zero")
    clip = clipping(parameters, p, facts, goal)
    goal, alpha = clip.goal, parameters.radius or 1 / row_scale(facts)
    d, L = p.d, clip.C
    directions = parameters.directions or (min(d, DIRECTIONS_MAX) if zero_order else 1)
    if not network and not zero_order:
        directions = 1
    wider = sqrt(max(1.0, d / directions)) if zero_order else 1.0
    typical = typical_length(clip, facts)
    swing = L if spec.loss.one_sided else 2 * L
    turn = 2 * swing * (sqrt(d) / 2 if zero_order else sqrt((d + 2) / (2 * pi))) / alpha
    if network:
        turn = 2 * L * (1 + p.X2**2)
    elif p.is_smooth:
        turn = min(turn, 2 * p.beta * row_scale(facts) ** 2 / p.X2**2 * clip.C / typical)
    if parameters.smoothness is not None:
        turn = min(turn, 2 * parameters.smoothness) if not network else 2 * parameters.smoothness
    asked = parameters.batch_of(p.n)
    if asked is not None and not passes:
        raise PlanRefused(
            "in one pass every row is read once, and no batch is drawn; leave parameters.batch out, "
            f"or set parameters.oracle to {parameters.oracle}-multi-pass."
        )
    laplace = goal.delta == 0
    terms = Terms(
        n=p.n,
        d=d,
        alpha=alpha,
        gap=parameters.gap,
        first=L * wider,
        turn=turn * wider,
        most=swing * wider,
        spread=2.0 * (d if facts.l2 is not None else 1) if laplace else 1.0,
        rho=goal.rho,
        norm="l1" if laplace else "l2",
        mechanism=parameters.mechanism or ("tree" if laplace else "root"),
        passes=passes,
        batch=asked,
        draws=goal.credits_draws,
        pace=Pace.of(facts),
    )
    asked_for = Asked(parameters.steps, parameters.period, parameters.block)
    found = list(layouts(terms, asked_for))
    least = min((each.bound for each in found), default=0.0) * (1 + TOLERANCE)
    near = [each for each in found if each.bound <= least]
    if not near:
        raise PlanRefused(
            f"{parameters.steps or parameters.period} steps of one pass need at least as many rows "
            f"and the dataset has {p.n}; set parameters.steps and parameters.period to at most {p.n}."
        )
    if passes:
        chosen = min(near, key=lambda each: (each.rows_read, each.bound))
    else:
        chosen = min(near, key=lambda each: (each.steps, each.bound))
    smoothing: Smoothing | None = None
    if not (network or zero_order or p.is_smooth):
        smoothing = Ball(radius=alpha)
    # zero order sums vectors; first order sums multiples of rows
    of_sums = replace(p, rowwise=False, spread=sqrt(d)) if zero_order else p
    per = 1.0 if zero_order else p.X2
    clips = terms.first / per, chosen.difference / per
    first, later, release, variance = _released(goal, facts, of_sums, clips, chosen, terms)
    G1 = sqrt(terms.first**2 + variance * d)
    bound = chosen.bound
    if passes:  # as it was calibrated
        G0 = sqrt(variance * d + chosen.sampling)
        bound = bound_of(terms, chosen.steps, chosen.block, chosen.D, G0)
    both = 2 * max(terms.first / chosen.first_batch, chosen.difference / chosen.batch)
    return Draft(
        dimension=p.d,
        smoothing=smoothing,
        schedule=OnlineToNonconvexSchedule(
            oracle=parameters.oracle,
            steps=chosen.steps,
            period=chosen.period,
            block=chosen.block,
            first_batch=chosen.first_batch,
            batch=chosen.batch,
            reach=rounded(chosen.D),
            step_size=parameters.step_size or rounded(chosen.D / (G1 * sqrt(chosen.block))),
            radius=alpha,
            directions=directions,
            mechanism=None if passes else terms.mechanism,
            output=parameters.output,
            later=later,
            step_per_clip=(clip.choice is not None and parameters.step_size is None) or None,
        ),
        private_clip=clip.choice,
        lattice=first,
        release=clip.paid(release),
        prediction=Prediction(
            theorem=clip.describe(
                f"KLT Proposition{'s 2.6 and 5.1' if passes else ' 2.6'}: stationarity within "
                f"{2 * alpha:g}"
            ),
            excess_risk=rounded(bound),
            noise_squared=rounded(chosen.steps * d * variance),
            # KLT Proposition 2.5, for the sensitivities of the clips
            paper_noise=(
                rounded(
                    4 * both * sqrt(log(max(2, chosen.period)) * -log(goal.delta)) / goal.epsilon
                )
                if goal.delta > 0
                else 0.0
            ),
            our_noise=rounded(sqrt(variance)),
        ),
        gradients=chosen.rows_read * directions,
    )


def _released(
    goal: Target,
    facts: Facts,
    p: Problem,
    clips: tuple[float, float],
    chosen: Layout,
    terms: Terms,
) -> tuple[SumLattice, SumLattice, Release, float]:
    """The two lattices, the release, and the variance of the noise in one coordinate of a mean."""
    periods, period = chosen.periods, chosen.period
    if not terms.passes:
        batches = chosen.first_batch, chosen.batch
        made = calibrate_prefixes(goal, facts, p, clips, batches, terms.mechanism, period)
        release: Release = Disjoint(parts=(made.release,), copies=periods)
        return made.first, made.later, release, made.variance(terms.mechanism, period)
    n, first_batch, batch = facts.rows, chosen.first_batch, chosen.batch
    if period == 1:
        lattice = calibrate_sampled(goal, facts, p, clips[0], first_batch, n, periods)
        release = sampled(lattice.release(), first_batch, n, periods)
        return lattice, lattice, release, lattice.variance / first_batch**2
    units = max(1, int(goal.units * first_share(*clips, period, terms.norm)))
    of_first = replace(goal, units=units)
    first = calibrate_sampled(of_first, facts, p, clips[0], first_batch, n, periods)
    rest, times = replace(goal, units=max(1, goal.units - units)), periods * (period - 1)
    later = calibrate_sampled(rest, facts, p, clips[1], batch, n, times)
    release = Sequence(
        parts=(
            sampled(first.release(), first_batch, n, periods),
            sampled(later.release(), batch, n, times),
        )
    )
    variance = first.variance / first_batch**2 + (period - 1) / 2 * later.variance / batch**2
    return first, later, release, variance


ALGORITHM = Algorithm(
    name=NAME,
    title="Online-to-non-convex conversion, with gradients or with values alone",
    paper=papers.KLT,
    algorithm="2 on 3, 4 or 5",
    theorem="3.1, 4.1 and 6.1",
    problem="Goldstein-stationary points of any loss of one margin, of linear models and "
    "ReLU networks; rows may be unbounded",
    cost="prefix sums of a period on disjoint rows: about one release; or costs that add",
    needs=Needs(
        sets=BALL_OR_ALL, margins="one", convexity="any", models=("linear", "relu_network")
    ),
    parameters=Parameters,
    schedule=OnlineToNonconvexSchedule,
    plan=plan,
    examples=({"loss": "ramp"},),
)
