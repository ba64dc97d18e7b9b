"""Noisy clipped SGD: one pass, linear time, for smooth strongly convex losses.

**Problem.** min over a convex set of F(w) = E l(w; x, y) + (ridge/2) ||w||^2 with ridge > 0 and l
smooth: mu = ridge, beta = smoothness + ridge, kappa = beta/mu. Columns and labels may be unbounded.

**Schedule.** LR-HT algorithm 5 with the clipped mean oracle (its algorithm 1): T + 1 steps, each on
its own floor(n/(T+1)) rows; w <- P(w - eta_t (g/b + ridge w)); the weighted mean of the iterates,
steps and weights from `sgd_weights` (Stich 2019, Lemma 3, with a = mu/2, g = beta, b = 2). With
epsilon^2 = 2 rho, Theorem 33 has T = 4 kappa log(mu beta D^2/r^2 (n + (2 rho n^2/d)^((k-1)/k))) and
C = r z^(1/k), z = sqrt(2 rho) n/sqrt(d T); here T is at most n/2 - 1 and such that the noise of one
step stays below C, if n allows any; and n/batch, where `batch` is asked for. Moments, and a clip that
is chosen: heavy_tails.py.

**Sensitivity.** Neighbours replace one record. Step t releases the sum over its batch of integer
contributions, each of norm at most c (`lattice`): replacing a record of that batch moves the sum by
at most 2c, and replacing any other leaves the step's distribution given the past unchanged.

**Proof.** Batches are disjoint ranges of positions, so the run costs one release (and the choice of
a private clip, which reads all rows, before it). The regulariser is never clipped: it is a function
of w alone.

**Errata.** The listing runs T + 1 steps on n/T rows each, more rows than there are; here
n/(T+1). Rows left over by the division are not used.
"""

from collections.abc import Iterator
from math import ceil, exp, log, sqrt
from typing import Literal

from pydantic import PositiveInt

from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Prediction, Schedule, rounded
from service.planning.lattice import calibrate, target
from service.planning.needs import WITH_A_PROJECTION, Needs
from service.planning.problem import problem
from service.planning.releases import Disjoint
from service.planning.shared.heavy_tails import (
    RIDGE_MIN,
    OnePass,
    clipping,
    quiet_steps,
    rows_that_drown,
    steps_and_batch,
    tails,
)
from service.planning.spec import Facts, JobSpec

NAME = "clipped-sgd"
Parameters = OnePass


class ClippedSgdSchedule(Schedule):
    """Batch t is the rows [t * batch, (t + 1) * batch); steps and weights in `sgd_weights`."""

    kind: Literal["clipped_sgd"] = "clipped_sgd"
    steps: PositiveInt
    batch: PositiveInt
    strong_convexity: float
    smoothness: float


def plan(spec: JobSpec, facts: Facts, parameters: OnePass) -> Draft:
    p, goal = problem(spec, facts), target(spec, facts)
    n, d, rho = p.n, p.d, goal.rho
    known = tails(NAME, parameters, p, facts)
    mu, beta = spec.ridge, p.beta + spec.ridge
    D = 2 * min(p.W, known.r / mu)  # no minimiser lies further out
    growth = mu * beta * (D / known.r) ** 2 * (n + (2 * rho * n**2 / d) ** known.power)
    wanted = ceil(4 * beta / mu * log(max(3.0, growth)))
    quiet = quiet_steps(n, d, rho)
    steps, batch = steps_and_batch(parameters, max(2, min(wanted, n // 2, quiet)), n)
    clip = clipping(known, parameters, p, facts, goal, rows_that_drown(goal, n, d, steps))
    C, goal_of_sums = clip.C, clip.goal
    lattice = calibrate(goal_of_sums, facts, p, clip.bound, times=1)
    variance = d * lattice.variance / batch**2 + known.r**2 / batch
    return Draft(
        dimension=p.d,
        schedule=ClippedSgdSchedule(steps=steps, batch=batch, strong_convexity=mu, smoothness=beta),
        lattice=lattice,
        private_clip=clip.choice,
        release=clip.paid(Disjoint(parts=(lattice.release(),), copies=steps)),
        prediction=Prediction(
            theorem=clip.describe("LR-HT Proposition 31 without its constants"),
            excess_risk=rounded(
                beta * D**2 * exp(-steps * mu / (4 * beta))
                + variance / (mu * steps)
                + known.bias(C) ** 2 / mu
            ),
            noise_squared=rounded(steps * d * lattice.variance),
            # LR-HT proof of Theorem 33: sigma = 2 C T/(eps n) with eps = sqrt(2 rho)
            paper_noise=rounded(2 * C / (sqrt(2 * rho) * batch)) if goal.delta > 0 else 0.0,
            our_noise=rounded(sqrt(lattice.variance) / batch),
        ),
        gradients=steps * batch,
    )


def sgd_weights(schedule: ClippedSgdSchedule) -> Iterator[tuple[float, float]]:
    """(step size, averaging weight) of each step: a constant first half that forgets the start,
    then steps that fall like 1/t with weights that grow like t^2 (Stich 2019, Lemma 3)."""
    a, g, T = schedule.strong_convexity / 2, schedule.smoothness, schedule.steps
    if g / a >= T:
        for t in range(T):
            yield 1 / g, (1 - a / g) ** -(t + 1)
        return
    half, kappa = -(-T // 2), 2 * g / a
    for t in range(T):
        if t < half:
            yield 1 / g, 0.0
        else:
            yield 2 / (a * (kappa + t - half)), (kappa + t - half) ** 2


ALGORITHM = Algorithm(
    name=NAME,
    title="Noisy clipped SGD, one pass",
    paper=papers.LR_HT,
    algorithm="5 with mean oracle 1",
    theorem="30",
    problem="smooth strongly convex losses, over any set with a projection; any rows",
    cost="one noisy sum on disjoint batches: the price of a single release",
    needs=Needs(sets=WITH_A_PROJECTION, smooth=True, ridge_min=RIDGE_MIN),
    parameters=Parameters,
    schedule=ClippedSgdSchedule,
    plan=plan,
    examples=({"loss": "logistic", "ridge": 0.01},),
)
