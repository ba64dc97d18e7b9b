"""Accelerated stochastic descent on the smoothed loss: few passes where n is large.

**Problem.** min over a convex set of (1/n) sum l(w; x_i, y_i) + (mu/2) ||w||^2 + h(w), l convex, with
mu = ridge, which may be zero, and h a regulariser with a proximal operator, if any. W and D as in
shared/acceleration.py.

**Schedule.** KLL algorithm 4: AC-SA (its algorithm 3) with noisy gradients of batches, on a smooth
loss, in up to four stages; a loss with a corner is smoothed: shared/acceleration.py has the steps, the
bound that they obey and the smoothing.

T is a power of two up to 2^14, and a batch is n halved some times such that T B is at most 512 n and
the run takes at most six seconds or as long as 32 passes, by the constants of shared/pace.py. By
default a batch is the one that takes the least time while it adds hardly any variance to that of the
noise, and of the T whose bound, at the noise calibrated for both, is within a tenth of the smallest
the one is taken that needs the least time; but one up to 512 where its bound is within 2.5 times the
smallest. Where B = n nothing is drawn.

**Sensitivity.** Neighbours replace one record. Step t draws B of n positions uniformly without
replacement, fresh and secret, independent of the data, and releases the sum over them of integer
contributions, each of norm at most c (`lattice`), plus noise. Given the batch and the past,
replacing a record of the batch moves the sum by at most 2c, and replacing another moves nothing.
That is `SampledGaussian` of sensitivity 2c (`Subsample`, for Laplace).

**Proof.** T of them compose adaptively, since the point of evaluation is a function of earlier
releases: the cost is T times one. Everything else is post-processing.

**Errata.** Theorem 3.1 takes sensitivity G; under replacement it is 2G, and its constants are
replaced by the accountant. Algorithm 3 prints a = 2/(t+2), which never forgets the start, and
proximal terms without 1/2. Algorithm 4 prints r = D/(T d^(1/4)), smaller by sqrt(d) than its proof.
Lemma 4.10's u ||w||^2 is 2u-strongly convex.
"""

from math import log, sqrt
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Prediction, Schedule, rounded
from service.planning.lattice import calibrate, target
from service.planning.needs import WITH_A_PROJECTION, WITH_THEIR_SETS, Needs
from service.planning.problem import problem
from service.planning.shared.acceleration import (
    STEPS,
    Smoother,
    Stage,
    per_clip,
    staged,
    start_distance,
)
from service.planning.shared.clip import clipping, typical_length
from service.planning.shared.pace import Pace
from service.planning.shared.reach import Metric, within
from service.planning.shared.subsampling import (
    Batches,
    Candidate,
    best_halvings,
    calibrate_sampled,
    drawing_variance,
    noise_variance,
    quickest,
    sampled,
)
from service.planning.spec import Facts, JobSpec

NAME = "accelerated-sgd"
Parameters = Batches


class AcceleratedSgdSchedule(Schedule):
    """AC-SA over secret batches of all rows (over all rows where the batch is all of them)."""

    kind: Literal["accelerated_sgd"] = "accelerated_sgd"
    batch: PositiveInt
    smoothness: PositiveFloat
    stages: tuple[Stage, ...] = Field(min_length=1)
    intercept: PositiveFloat | None = Field(default=None, exclude_if=lambda value: value is None)

    @property
    def steps(self) -> int:
        return sum(stage.steps for stage in self.stages)


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal = problem(spec, facts), target(spec, facts)
    n, d, mu, h = p.n, p.d, spec.ridge, spec.regulariser
    asked = parameters.batch_of(n)
    clip = clipping(parameters, p, facts, goal)
    goal, metric = clip.goal, Metric.of(spec, facts, p)
    C, wide = typical_length(clip, facts), metric.wide(d)
    D = start_distance(within(spec, facts, goal, p), C, mu)
    plain = calibrate(goal, facts, p, clip.bound, times=1)
    smooth = Smoother.of(p, spec, facts).steeper(metric.steeper)
    candidates, pace = [], Pace.of(facts)
    for steps in steps_to_try(parameters.steps, asked, n, pace):
        batch = asked
        if batch is None:
            batch = n >> best_halvings(goal, plain, wide, clip.C, n, steps, pace)
        noise = noise_variance(goal, plain, batch, n, steps)
        V = wide * noise * (C / clip.C) ** 2 / batch**2 + drawing_variance(C, batch, n)
        for beta in smooth.choices(steps, D, mu):
            error, _ = staged(steps, beta + h.square, mu, D, V)
            bound, seconds = error + smooth.bias(beta), pace.seconds(steps, batch, n)
            candidates.append(Candidate(bound, seconds, steps, batch, beta))
    best = quickest(candidates)
    steps, batch, beta = best.steps, best.batch, best.smoothness

    lattice = calibrate_sampled(goal, facts, p, clip.bound, batch, n, steps)
    V = wide * lattice.variance * (C / clip.C) ** 2 / batch**2 + drawing_variance(C, batch, n)
    error, stages = staged(steps, beta + h.square, mu, D, V)
    if clip.choice is not None:
        stages = per_clip(stages, C, facts)
    # KLL Theorem 3.1 with its constant c2 = 1, per mean
    paper = C * sqrt(steps * -log(goal.delta)) / (goal.epsilon * n) if goal.delta > 0 else 0.0
    return Draft(
        dimension=p.d,
        smoothing=smooth.smoothing(beta),
        schedule=AcceleratedSgdSchedule(
            batch=batch,
            smoothness=rounded(beta + h.square),
            stages=stages,
            intercept=metric.stored,
        ),
        lattice=lattice,
        private_clip=clip.choice,
        release=clip.paid(sampled(lattice.release(), batch, n, steps)),
        prediction=Prediction(
            theorem=clip.describe(
                "AC-SA with known variance (Ghadimi and Lan 2012) and KLL Lemma 4.7, as bounds"
            ),
            excess_risk=rounded(error + smooth.bias(beta)),
            noise_squared=rounded(steps * d * lattice.variance),
            paper_noise=rounded(paper),
            our_noise=rounded(sqrt(lattice.variance) / batch),
        ),
        gradients=steps * batch,
    )


def steps_to_try(asked: int | None, batch: int | None, rows: int, pace: Pace) -> list[int]:
    if asked is not None:
        return [asked]
    return [steps for steps in STEPS if pace.affords(steps, batch or 1, rows)] or [1]


ALGORITHM = Algorithm(
    name=NAME,
    title="Accelerated SGD on the smoothed loss, over secret batches",
    paper=papers.KLL,
    algorithm="4 on 3",
    theorem="4.9 and 4.11",
    problem="convex losses, smooth or not, over any set with a projection",
    cost="one noisy sum over a random batch per step, amplified by sampling; costs add",
    needs=Needs(sets=WITH_A_PROJECTION, regularisers=WITH_THEIR_SETS, best_over_all=True),
    parameters=Parameters,
    schedule=AcceleratedSgdSchedule,
    plan=plan,
    examples=({"loss": "hinge"},),
)
