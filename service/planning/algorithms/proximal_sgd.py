"""Noisy proximal SGD: one pass, linear time, for smooth losses with a regulariser that has corners.

**Problem.** min over a convex set of F(w) = E l(w; x, y) + (ridge/2) ||w||^2 + h(w), l smooth, h a
regulariser with a proximal operator: l1, elastic net or group lasso. None of them counts intercepts.
Columns and labels may be unbounded. mu > 0 is the constant of the proximal Polyak-Lojasiewicz
inequality: the ridge (and the elastic net's), or what the analyst gives as `growth`; beta =
smoothness + ridge, kappa = beta/mu.

**Schedule.** LR-HT algorithm 6 with the clipped mean oracle (its algorithm 1): T steps, each on its
own floor(n/T) rows, w <- prox_(eta h)(w - eta (g/b + ridge w)) with eta = 1/(2 beta); the output is
the last w. With epsilon^2 = 2 rho, Theorem 38 has C = r z^(1/k), z = sqrt(2 rho) n/(sqrt(d) T), and T
= 2 ceil(kappa log(Delta mu/(B^2 + Sigma^2))), Delta = r D bounding what the start is off by. C and
Sigma depend on T in turn: from T = kappa the two are computed in turn until they settle. T is at most
n/2 here, and such that the noise of one step stays below C.

A set is part of h, and an elastic net's square part of the gradient. Over an l2 ball the operator is
that of h followed by the projection, as the ball's multiplier only shrinks what a norm has shrunk
already: (1 + nu) w = prox(z). Over a box the same holds where h is a sum over entries.

**Sensitivity.** Neighbours replace one record. Step t releases the sum over its batch of integer
contributions, each of norm at most c (`lattice`): replacing a record of that batch moves the sum by
at most 2c, and replacing any other leaves the step's distribution given the past unchanged.

**Proof.** Batches are disjoint ranges of positions, so the run costs one release (and the choice of
a private clip, which reads all rows, before it). The proximal operator acts on what was released.

**Errata.** Theorem 35 claims epsilon/2-zCDP; its proof gives epsilon^2/2.
"""

from math import ceil, log, sqrt
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from service.errors import PlanRefused
from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Prediction, Schedule, rounded
from service.planning.lattice import calibrate, target
from service.planning.needs import WITH_A_PROJECTION, WITH_THEIR_SETS, Needs
from service.planning.problem import problem
from service.planning.releases import Disjoint
from service.planning.shared.acceleration import start_distance
from service.planning.shared.heavy_tails import (
    RIDGE_MIN,
    OnePass,
    clipping,
    quiet_steps,
    rows_that_drown,
    steps_and_batch,
    tails,
)
from service.planning.shared.reach import within
from service.planning.spec import Facts, JobSpec

NAME = "proximal-sgd"
_ROUNDS = 8  # of T and the noise that it implies


class ProximalSgdSchedule(Schedule):
    """w <- prox(w - eta (g/batch + ridge w)); batch t is the rows [t * batch, (t + 1) * batch)."""

    kind: Literal["proximal_sgd"] = "proximal_sgd"
    steps: PositiveInt
    batch: PositiveInt
    step_size: PositiveFloat


class Parameters(OnePass):
    growth: float | None = Field(
        default=None,
        ge=RIDGE_MIN,
        le=1e9,
        description="mu of the proximal Polyak-Lojasiewicz inequality, beyond what ridge gives.",
    )


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    h = spec.regulariser
    p, goal = problem(spec, facts), target(spec, facts)
    smooth = spec.ridge + h.square
    mu = smooth + (parameters.growth or 0.0)
    if mu < RIDGE_MIN and parameters.steps is None:
        raise PlanRefused(
            f"{NAME} needs to know how fast the objective grows: set ridge to at least {RIDGE_MIN} "
            "(for example 0.01), or use an elastic_net, or set parameters.growth or parameters.steps."
        )
    known = tails(NAME, parameters, p, facts)
    n, d, r, rho = p.n, p.d, known.r, goal.rho
    mu, beta = max(mu, RIDGE_MIN), p.beta + smooth
    D = start_distance(within(spec, facts, goal, p), r, spec.ridge)

    def squared_error(steps: float) -> float:
        """B^2 + Sigma^2."""
        C, rows = known.clip(rows_that_drown(goal, n, d, steps**2)), n / steps
        return known.bias(C) ** 2 + 2 * d * C**2 / (rho * rows**2) + r**2 / rows

    quiet = quiet_steps(n, d, rho)
    steps = parameters.steps or 0
    if not steps:
        wanted = max(1.0, min(beta / mu, n / 2))
        for _ in range(_ROUNDS):
            gain = max(2.0, r * D * mu / squared_error(wanted))
            wanted = max(1.0, min(2 * ceil(beta / mu * log(gain)), n // 2, quiet))
        steps = int(wanted)
    steps, batch = steps_and_batch(parameters, steps, n)
    clip = clipping(known, parameters, p, facts, goal, rows_that_drown(goal, n, d, steps**2))
    lattice = calibrate(clip.goal, facts, p, clip.bound, times=1)
    error = known.bias(clip.C) ** 2 + d * lattice.variance / batch**2 + r**2 / batch
    return Draft(
        dimension=p.d,
        schedule=ProximalSgdSchedule(steps=steps, batch=batch, step_size=1 / (2 * beta)),
        lattice=lattice,
        private_clip=clip.choice,
        release=clip.paid(Disjoint(parts=(lattice.release(),), copies=steps)),
        prediction=Prediction(
            theorem=clip.describe("LR-HT Proposition 36 without its constants"),
            excess_risk=rounded((1 - min(1.0, mu / (2 * beta))) ** steps * r * D + error / mu),
            noise_squared=rounded(steps * d * lattice.variance),
            # LR-HT proof of Theorem 38: sigma = 2 C T/(eps n) with eps = sqrt(2 rho)
            paper_noise=rounded(2 * clip.C / (sqrt(2 * rho) * batch)) if goal.delta > 0 else 0.0,
            our_noise=rounded(sqrt(lattice.variance) / batch),
        ),
        gradients=steps * batch,
    )


ALGORITHM = Algorithm(
    name=NAME,
    title="Noisy proximal SGD, one pass",
    paper=papers.LR_HT,
    algorithm="6 with mean oracle 1",
    theorem="35",
    problem="smooth losses with an l1, elastic net or group lasso; rows may be unbounded",
    cost="one noisy sum on disjoint batches: the price of a single release",
    needs=Needs(
        sets=WITH_A_PROJECTION,
        smooth=True,
        regularisers=WITH_THEIR_SETS,
    ),
    parameters=Parameters,
    schedule=ProximalSgdSchedule,
    plan=plan,
    examples=(
        {
            "loss": "logistic",
            "ridge": 0.01,
            "regulariser": {"kind": "l1", "strength": 0.001},
        },
    ),
)
