"""Noisy gradient descent: the baseline that every other algorithm is compared with.

**Problem.** min over a convex set of (1/n) sum l(w; x_i, y_i) + (ridge/2) ||w||^2, l convex. W is the
set's l2 radius (10 stands in for it in the schedule where the set is all of R^d).

**Schedule.** KLL algorithm 2: T times, release the sum of B records' clipped gradients plus noise,
then w <- P(w - eta (g/B + ridge w)) with eta = 1/(beta + ridge). By default B = n: nothing is drawn.
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
from math import ceil, isfinite, log, sqrt
from typing import Literal

from pydantic import Field, PositiveInt

from service.errors import PlanRefused
from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Moreau, Prediction, Schedule, rounded
from service.planning.lattice import SumLattice, Target, calibrate, target
from service.planning.needs import WITH_A_PROJECTION, Needs
from service.planning.problem import Problem, problem
from service.planning.shared.clip import clip_bound
from service.planning.shared.subsampling import (
    Batches,
    calibrate_sampled,
    drawing_variance,
    noise_variance,
    sampled,
)
from service.planning.spec import Facts, JobSpec

NAME = "gradient-descent"
SMOOTHNESS_MAX = 1e12  # beyond it an envelope is the loss itself, to a float's eye
NETWORK_STEPS = 200
NETWORK_BATCH, NETWORK_HALVINGS = 1000, 5
NETWORK_NOISE = 4.0  # variance of a batch's mean noise over that of all rows', at most
NETWORK_STEP = 10.0  # how far a gradient at its clip moves the weights


class GradientDescentSchedule(Schedule):
    """w <- P(w - eta (g + ridge w)), g the mean over a secret batch of so many rows (of all, where it
    is all of them or none is named); the mean of the last `averaged` iterates."""

    kind: Literal["gradient_descent"] = "gradient_descent"
    steps: PositiveInt
    step_size: float
    averaged: PositiveInt
    batch: PositiveInt | None = None

    def step_from_zero(self, rows: int) -> float:
        """How far one unit of a noisy sum moves a weight that is 0."""
        return self.step_size / (self.batch or rows)


class Parameters(Batches):
    step_size: float | None = Field(
        default=None, ge=1e-9, le=1e9, description="Of every step; by default from the smoothness."
    )


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal = problem(spec, facts), target(spec, facts)
    if spec.model.kind != "linear":
        return _network(spec, facts, parameters, p, goal)
    n, d, W = p.n, p.d, reach(p, facts)
    clip, batch = clip_bound(parameters, p, facts), parameters.batch_of(n) or n
    L = clip * (p.X2 if p.rowwise else 1.0)
    if p.is_smooth:
        balanced = p.beta * W * n * sqrt(goal.rho / (2 * d)) / L
    else:
        balanced = goal.rho * n**2 / (2 * d)
    steps = parameters.steps or min(500, max(10, ceil(balanced)))
    smoothing, bias = None, 0.0
    if not p.is_smooth:
        smoothness = p.lipschitz * sqrt(steps / 2) / (W * (p.X2 if p.rowwise else 1.0))
        smoothness = min(smoothness, SMOOTHNESS_MAX)
        p, smoothing = replace(p, smoothness=smoothness), Moreau(smoothness=smoothness)
        bias = p.lipschitz**2 / (2 * smoothness)

    lattice = calibrate_sampled(goal, facts, p, clip, batch, n, steps)
    variance = d * lattice.variance / batch**2 + drawing_variance(L, batch, n)
    schedule = GradientDescentSchedule(
        steps=steps,
        step_size=parameters.step_size or 1 / (p.beta + spec.ridge),
        averaged=(steps + 1) // 2,
        batch=batch,
    )
    theorem = "smooth projected descent with noise: beta W^2/T + d sigma^2/beta"
    risk = p.beta * W**2 / steps + variance / p.beta + bias
    return _assembled(
        spec,
        facts,
        goal,
        p,
        schedule,
        lattice,
        L=L,
        theorem=theorem,
        risk=risk,
        smoothing=smoothing,
    )


def _network(
    spec: JobSpec, facts: Facts, parameters: Parameters, p: Problem, goal: Target
) -> Draft:
    clip = clip_bound(parameters, p, facts)
    L, steps = clip * p.X2, parameters.steps or NETWORK_STEPS
    batch = parameters.batch_of(p.n) or _network_batch(facts, p, goal, clip, steps)
    lattice = calibrate_sampled(goal, facts, p, clip, batch, p.n, steps)
    schedule = GradientDescentSchedule(
        steps=steps,
        step_size=parameters.step_size or NETWORK_STEP / L,
        averaged=(steps + 9) // 10,
        batch=batch,
    )
    theorem = "none for a network; the bound on a gradient, and its noise"
    risk = L + sqrt(p.d * lattice.variance) / batch
    return _assembled(spec, facts, goal, p, schedule, lattice, L=L, theorem=theorem, risk=risk)


def _network_batch(facts: Facts, p: Problem, goal: Target, clip: float, steps: int) -> int:
    plain = calibrate(goal, facts, p, clip, times=1)

    def noise(batch: int) -> float:
        return noise_variance(goal, plain, batch, p.n, steps) / batch**2

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
    theorem: str,
    risk: float,
    smoothing: Moreau | None = None,
) -> Draft:
    _require_steps_that_stay(spec, schedule.step_size)
    steps, batch = schedule.steps, schedule.batch or p.n
    return Draft(
        dimension=p.d,
        smoothing=smoothing,
        schedule=schedule,
        lattice=lattice,
        release=sampled(lattice.release(), batch, p.n, steps),
        prediction=Prediction(
            theorem=theorem,
            excess_risk=rounded(risk),
            noise_squared=rounded(steps * p.d * lattice.variance),
            paper_noise=_paper_noise(L, steps, goal, p.n),
            our_noise=rounded(sqrt(lattice.variance) / batch),
        ),
        gradients=steps * batch,
    )


def _require_steps_that_stay(spec: JobSpec, step_size: float) -> None:
    """A step takes w to (1 - step_size ridge) w and something bounded: where that factor is below -1
    and no set holds w, it would soon leave the floats, and the job would fail after its charge."""
    if not spec.set.bounded and step_size * spec.ridge > 2:
        raise PlanRefused(
            f"over all of R^d steps of {step_size:g} diverge with ridge {spec.ridge:g}; set "
            f"parameters.step_size to {1 / spec.ridge:g}, or use the set l2_ball."
        )


def _paper_noise(L: float, steps: int, goal: Target, n: int) -> float:
    """KLL Theorem 3.1 with its constant c2 = 1, per mean."""
    if goal.delta == 0:
        return 0.0
    return rounded(L * sqrt(steps * -log(goal.delta)) / (goal.epsilon * n))


def reach(p: Problem, facts: Facts) -> float:
    """How far from 0 the schedule expects the minimiser: within the set, or 10; and a centre of the
    rows is no longer than they are."""
    if not p.rowwise and facts.l2 is not None:
        return min(p.W, facts.l2)
    return p.W if isfinite(p.W) else 10.0


ALGORITHM = Algorithm(
    name=NAME,
    title="Noisy gradient descent (baseline)",
    paper=papers.KLL,
    algorithm="2",
    theorem="3.1",
    problem="convex losses over any set with a projection, and ReLU networks (without a "
    "theorem); rows may be unbounded",
    cost="one noisy sum per step, over all rows or over a random batch; costs add",
    needs=Needs(sets=WITH_A_PROJECTION, models=("linear", "relu_network")),
    parameters=Parameters,
    schedule=GradientDescentSchedule,
    plan=plan,
    examples=(
        {"loss": "logistic"},
        {"loss": "softmax"},
        {"loss": "geometric_median"},
    ),
)
