"""Accelerated SGD with clipped gradients: one pass, linear time, for smooth convex losses.

**Problem.** min over a convex set of F(w) = E l(w; x, y) + (ridge/2) ||w||^2, l convex and
beta-smooth; ridge may be zero. Columns and labels may be unbounded. D as in shared/acceleration.py.

**Schedule.** LR-HT algorithm 4 with the clipped mean oracle (its algorithm 1): AC-SA as in
shared/acceleration.py, one stage of T steps, step t on its own floor(n/T) rows. With epsilon^2 = 2
rho, z = sqrt(2 rho) n/sqrt(d T) and C = r z^(1/k), Theorem 29 has

    T = min((beta D/r)^(2k/(5k-1)) (sqrt(2 rho) n/sqrt(d))^((2k-2)/(5k-1)), (beta D/r)^(1/2) n^(1/4)),

at most n here, and such that the noise of one step stays below C. The damping s = sqrt(V T m)/D is
that of shared/acceleration.py (m the mean of t^2), which improves on the constant of Proposition
28, for V = d sigma^2 + r^2 T/n + B^2; where the clip is chosen, V is in its square and s is
multiplied by it. Moments, and a clip that is chosen: heavy_tails.py.

**Sensitivity.** Neighbours replace one record. Step t releases the sum over its batch of integer
contributions, each of norm at most c (`lattice`), at a point that is a function of earlier
releases: replacing a record of that batch moves the sum by at most 2c, and replacing any other
leaves the step's distribution given the past unchanged.

**Proof.** Batches are disjoint ranges of positions, so the run costs one release (and the choice of
a private clip, which reads all rows, before it). The ridge is solved exactly in the proximal step:
it has no noise and is not clipped.

**Errata.** Proposition 28 defines Gamma_t by itself; it is (1 - alpha_t) Gamma_(t-1), which
for alpha_t = 2/(t+1) is 2/(t (t+1)), and eta_t/Gamma_t is then constant as the proof needs.
"""

from math import ceil, sqrt
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Prediction, Schedule, rounded
from service.planning.lattice import calibrate, target
from service.planning.needs import WITH_A_PROJECTION, Needs
from service.planning.problem import problem
from service.planning.releases import Disjoint
from service.planning.shared.acceleration import start_distance
from service.planning.shared.clip import typical_length
from service.planning.shared.heavy_tails import (
    OnePass,
    clipping,
    quiet_steps,
    rows_that_drown,
    steps_and_batch,
    tails,
)
from service.planning.shared.reach import within
from service.planning.spec import Facts, JobSpec

NAME = "accelerated-clipped-sgd"
Parameters = OnePass


class AcceleratedClippedSgdSchedule(Schedule):
    """AC-SA; batch t is the rows [t * batch, (t + 1) * batch). `damping` is its s, per unit of a
    chosen clip."""

    kind: Literal["accelerated_clipped_sgd"] = "accelerated_clipped_sgd"
    steps: PositiveInt
    batch: PositiveInt
    smoothness: PositiveFloat
    damping: float = Field(ge=0)


def plan(spec: JobSpec, facts: Facts, parameters: OnePass) -> Draft:
    p, goal = problem(spec, facts), target(spec, facts)
    known = tails(NAME, parameters, p, facts)
    n, d, r, mu = p.n, p.d, known.r, spec.ridge
    D = start_distance(within(spec, facts, goal, p), r, mu)
    curved, share = p.beta * D / r, 1 / (5 - 1 / known.k)  # k/(5k - 1)
    private = curved ** (2 * share) * (sqrt(2 * goal.rho / d) * n) ** (2 * share * known.power)
    wanted = ceil(min(private, sqrt(curved) * n**0.25))
    quiet = quiet_steps(n, d, goal.rho)
    steps, batch = steps_and_batch(parameters, max(1, min(wanted, n, quiet)), n)
    clip = clipping(known, parameters, p, facts, goal, rows_that_drown(goal, n, d, steps))
    lattice = calibrate(clip.goal, facts, p, clip.bound, times=1)
    V = d * lattice.variance / batch**2 + r**2 / batch + known.bias(clip.C) ** 2
    damping = sqrt(V * steps * (steps + 1) * (2 * steps + 1) / 6) / D
    typical = typical_length(clip, facts) / clip.C
    smooth = p.beta * D**2 / steps**2
    return Draft(
        dimension=p.d,
        schedule=AcceleratedClippedSgdSchedule(
            steps=steps, batch=batch, smoothness=p.beta, damping=rounded(damping)
        ),
        lattice=lattice,
        private_clip=clip.choice,
        release=clip.paid(Disjoint(parts=(lattice.release(),), copies=steps)),
        prediction=Prediction(
            theorem=clip.describe("LR-HT Proposition 28 without its constants"),
            excess_risk=rounded(smooth + D * (typical * sqrt(V / steps) + known.bias(clip.C))),
            noise_squared=rounded(steps * d * lattice.variance),
            # LR-HT proof of Theorem 29: sigma = 2 C T/(eps n) with eps = sqrt(2 rho)
            paper_noise=(
                rounded(2 * clip.C / (sqrt(2 * goal.rho) * batch)) if goal.delta > 0 else 0.0
            ),
            our_noise=rounded(sqrt(lattice.variance) / batch),
        ),
        gradients=steps * batch,
    )


ALGORITHM = Algorithm(
    name=NAME,
    title="Accelerated SGD with clipped gradients, one pass",
    paper=papers.LR_HT,
    algorithm="4 with mean oracle 1",
    theorem="29",
    problem="smooth convex losses over any set with a projection; rows may be unbounded",
    cost="one noisy sum on disjoint batches: the price of a single release",
    needs=Needs(sets=WITH_A_PROJECTION, smooth=True),
    parameters=Parameters,
    schedule=AcceleratedClippedSgdSchedule,
    plan=plan,
    examples=({"loss": "logistic"},),
)
