"""Noisy gradient descent: the baseline that every other algorithm is compared with.

**Problem.** min over a convex set of (1/n) sum l(w; x_i, y_i) + (ridge/2) ||w||^2 + h(w), l convex, h
a regulariser with a proximal operator, if any. W is the set's l2 radius (what reach.py expects stands
in for it in the schedule where the set is all of R^d).

**Schedule.** KLL algorithm 2: T times, release the sum of B records' clipped gradients plus noise,
then w <- P(prox_(eta h)(w - eta (g/B + ridge w))) with eta = 1/(beta + ridge), which is the proximal
gradient step of h on the set, for the sets that the plan admits (regulariser.py); an elastic net's
square goes with gradient and smoothness. By default B = n: nothing is drawn.
The output is the mean of the last half of the iterates ("some function of the iterates"). T balances
the descent error beta W^2/T against the noise d T 2 L^2/(rho n^2 beta) unless it is set:
T = beta W n sqrt(rho/(2 d))/L, kept within [10, 500]. A loss with a corner is replaced by its Moreau
envelope, whose bias L^2/(2 beta) equals the descent error at beta = L sqrt(T/2)/W; then
T = rho n^2/(2 d), kept within the same bounds.

A network is taken too, as noisy gradient descent is elsewhere, with no bound on its risk: its
gradients are clipped (by default to the slope's bound). Unless set, T is 200, a step is of size 10
over the clip, and B is n halved up to five times, but not below 1000 nor to where a mean has twice
the noise of that of all rows: with as many weights as a network has, the draw adds little to it. The
output is the mean of the last tenth of the iterates.

**Sensitivity.** Neighbours replace one record. Step t releases s = sum of integer contributions,
each of norm at most c (`lattice`), so replacing one record moves s by at most 2c; w_t is a function
of earlier releases, so given those both neighbours evaluate the same function. Where B < n, s is
over B positions drawn uniformly without replacement, fresh and secret, which is `SampledGaussian`
of that sensitivity (`Subsample`, for Laplace).

**Proof.** T such releases compose adaptively: the cost is T times one. The regulariser, the step
and the average are post-processing.

**Errata.** KLL Theorem 3.1 takes sensitivity G; under replacement it is 2G.
"""

from dataclasses import replace
from math import ceil, log, sqrt
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from service.errors import PlanRefused
from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Moreau, Prediction, Schedule, rounded
from service.planning.lattice import SumLattice, Target, target
from service.planning.needs import WITH_A_PROJECTION, WITH_THEIR_SETS, Needs
from service.planning.problem import Problem, problem
from service.planning.shared.clip import Clipping, clipping, typical_length
from service.planning.shared.networks import NETWORK_STEP, NETWORK_STEPS
from service.planning.shared.reach import Metric, within
from service.planning.shared.subsampling import (
    Batches,
    calibrate_sampled,
    drawing_variance,
    largest_ratio,
    sampled,
)
from service.planning.spec import Facts, JobSpec

NAME = "gradient-descent"
SMOOTHNESS_MAX = 1e12  # beyond it an envelope is the loss itself, to a float's eye
STEPS_MIN = 2
NETWORK_BATCH, NETWORK_HALVINGS = 1000, 5
NETWORK_NOISE = 4.0  # variance of a batch's mean noise over that of all rows', at most


class GradientDescentSchedule(Schedule):
    """w <- P(w - eta (g + ridge w)), g the mean over a secret batch of so many rows (of all, where it
    is all of them or none is named); the mean of the last `averaged` iterates."""

    kind: Literal["gradient_descent"] = "gradient_descent"
    steps: PositiveInt
    step_size: float
    averaged: PositiveInt
    batch: PositiveInt | None = None
    intercept: PositiveFloat | None = Field(default=None, exclude_if=lambda value: value is None)
    step_per_clip: bool | None = Field(default=None, exclude_if=lambda value: value is None)

    def step_from_zero(self, rows: int) -> float:
        """How far one unit of a noisy sum moves a weight that is 0."""
        return self.step_size / (self.batch or rows)


class Parameters(Batches):
    step_size: float | None = Field(
        default=None, ge=1e-9, le=1e9, description="Of every step; by default from the smoothness."
    )


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal, h = problem(spec, facts), target(spec, facts), spec.regulariser
    if spec.model.kind != "linear":
        return _network(spec, facts, parameters, p, goal)
    clip, batch = clipping(parameters, p, facts, goal), parameters.batch_of(p.n) or p.n
    goal, metric, n = clip.goal, Metric.of(spec, facts, p), p.n
    W, wide, L = reach(spec, facts, goal, p), metric.wide(p.d), typical_length(clip, facts)
    X2 = sqrt(metric.steeper) * (p.X2 if p.rowwise else 1.0)  # of a row, in that metric
    if p.is_smooth:
        balanced = (p.smoothness * X2**2 + h.square) * W * n * sqrt(goal.rho / (2 * wide)) / L
    else:
        balanced = goal.rho * n**2 / (2 * wide)
    steps = parameters.steps or min(500, max(STEPS_MIN, ceil(balanced)))
    short = min(1.0, balanced / STEPS_MIN)  # where even few steps would go too far for the noise
    smoothing, bias = None, 0.0
    if not p.is_smooth:
        smoothness = min(p.lipschitz * sqrt(steps / 2) / (W * X2), SMOOTHNESS_MAX)
        p, smoothing = replace(p, smoothness=smoothness), Moreau(smoothness=smoothness)
        bias = p.lipschitz**2 / (2 * smoothness)

    beta = p.smoothness * X2**2 + h.square
    lattice = calibrate_sampled(goal, facts, p, clip.bound, batch, n, steps)
    noise = wide * lattice.variance * (L / clip.C) ** 2
    variance = noise / batch**2 + drawing_variance(L, batch, n)
    schedule = GradientDescentSchedule(
        steps=steps,
        step_size=parameters.step_size or short / (beta + spec.ridge * metric.factor**2),
        averaged=(steps + 1) // 2,
        batch=batch,
        intercept=metric.stored,
    )
    theorem = "smooth projected descent with noise: beta W^2/T + d sigma^2/beta"
    risk = beta * W**2 / steps + variance / beta + bias
    return _assembled(
        spec,
        facts,
        goal,
        p,
        schedule,
        lattice,
        L=clip.C,
        clip=clip,
        theorem=theorem,
        risk=risk,
        smoothing=smoothing,
    )


def _network(
    spec: JobSpec, facts: Facts, parameters: Parameters, p: Problem, goal: Target
) -> Draft:
    clip = clipping(parameters, p, facts, goal)
    goal, L, steps = clip.goal, clip.C, parameters.steps or NETWORK_STEPS
    batch = parameters.batch_of(p.n) or _network_batch(p, goal, steps)
    lattice = calibrate_sampled(goal, facts, p, clip.bound, batch, p.n, steps)
    schedule = GradientDescentSchedule(
        steps=steps,
        step_size=parameters.step_size or NETWORK_STEP / L,
        averaged=(steps + 9) // 10,
        batch=batch,
        step_per_clip=(clip.choice is not None and parameters.step_size is None) or None,
    )
    theorem = "none for a network; the bound on a gradient, and its noise"
    risk = L + sqrt(p.d * lattice.variance) / batch
    return _assembled(
        spec, facts, goal, p, schedule, lattice, L=L, clip=clip, theorem=theorem, risk=risk
    )


def _network_batch(p: Problem, goal: Target, steps: int) -> int:
    """By the ratios that fit, for at a glance some epsilons look noisier by a seventh."""

    def noise(batch: int) -> float:
        """The variance of the mean's, in units that are the same for all batches."""
        return (batch * largest_ratio(goal, batch, p.n, steps)) ** -2

    best, most = p.n, NETWORK_NOISE * noise(p.n)
    for halvings in range(1, NETWORK_HALVINGS + 1):
        batch = p.n >> halvings
        if batch < NETWORK_BATCH or noise(batch) > most:
            break
        best = batch
    return best


def _assembled(
    spec: JobSpec,
    facts: Facts,
    goal: Target,
    p: Problem,
    schedule: GradientDescentSchedule,
    lattice: SumLattice,
    *,
    L: float,
    clip: Clipping,
    theorem: str,
    risk: float,
    smoothing: Moreau | None = None,
) -> Draft:
    _require_steps_that_stay(spec, schedule)
    steps, batch = schedule.steps, schedule.batch or p.n
    return Draft(
        dimension=p.d,
        smoothing=smoothing,
        schedule=schedule,
        lattice=lattice,
        private_clip=clip.choice,
        release=clip.paid(sampled(lattice.release(), batch, p.n, steps)),
        prediction=Prediction(
            theorem=clip.describe(theorem),
            excess_risk=rounded(risk),
            noise_squared=rounded(steps * p.d * lattice.variance),
            paper_noise=_paper_noise(L, steps, goal, p.n),
            our_noise=rounded(sqrt(lattice.variance) / batch),
        ),
        gradients=steps * batch,
    )


def _require_steps_that_stay(spec: JobSpec, schedule: GradientDescentSchedule) -> None:
    """A step takes w to (1 - step_size ridge) w and something bounded (less, for an elastic net),
    where the intercept's steps are longer. Where that factor is below -1 and no set holds w, it would
    soon leave the floats, and the job would fail after its charge."""
    step, longer = schedule.step_size, (schedule.intercept or 1.0) ** 2
    pulled = max(spec.ridge * longer, spec.ridge + spec.regulariser.square)
    if not spec.set.bounded and step * pulled > 2:
        raise PlanRefused(
            f"over all of R^d steps of {step:g} diverge with ridge {spec.ridge:g}; set "
            f"parameters.step_size to {1 / pulled:g}, or use the set l2_ball."
        )


def _paper_noise(L: float, steps: int, goal: Target, n: int) -> float:
    """KLL Theorem 3.1 with its constant c2 = 1, per mean."""
    if goal.delta == 0:
        return 0.0
    return rounded(L * sqrt(steps * -log(goal.delta)) / (goal.epsilon * n))


def reach(spec: JobSpec, facts: Facts, goal: Target, p: Problem) -> float:
    """How far from 0 the schedule expects the minimiser: within the set, or as reach.py says; and a
    centre of the rows is no longer than they are."""
    if not p.rowwise and facts.l2 is not None:
        return min(p.W, facts.l2)
    return within(spec, facts, goal, p)


ALGORITHM = Algorithm(
    name=NAME,
    title="Noisy gradient descent (baseline)",
    paper=papers.KLL,
    algorithm="2",
    theorem="3.1",
    problem="convex losses over any set with a projection, and ReLU networks (without a "
    "theorem); rows may be unbounded",
    cost="one noisy sum per step, over all rows or over a random batch; costs add",
    needs=Needs(
        sets=WITH_A_PROJECTION,
        models=("linear", "relu_network"),
        regularisers=WITH_THEIR_SETS,
        best_over_all=True,
    ),
    parameters=Parameters,
    schedule=GradientDescentSchedule,
    plan=plan,
    examples=(
        {"loss": "logistic"},
        {"loss": "softmax"},
        {"loss": "geometric_median"},
    ),
)
