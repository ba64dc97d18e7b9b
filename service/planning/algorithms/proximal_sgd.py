"""Noisy proximal SGD: one pass, linear time, for losses with a regulariser that has corners.

**Problem.** min over a convex set of F(w) = E l(w; x, y) + (ridge/2) ||w||^2 + h(w), l smooth and
convex or not, h a regulariser with a proximal operator: l1, elastic net or group lasso. None of them
counts intercepts. Columns and labels may be unbounded. mu > 0 is the constant of the proximal
Polyak-Lojasiewicz inequality: the ridge (and the elastic net's) less the loss's weak convexity, and
what the analyst gives as `growth`; beta = smoothness + ridge, kappa = beta/mu.

**Schedule.** LR-HT algorithm 6 with the clipped mean oracle (its algorithm 1): T steps, each on its
own floor(n/T) rows, w <- prox_(eta h)(w - eta (g/b + ridge w)) with eta = 1/(2 beta); the output is
the last w. With epsilon^2 = 2 rho, Theorem 38 has C = r z^(1/k), z = sqrt(2 rho) n/(sqrt(d) T), and T
= 2 ceil(kappa log(Delta mu/(B^2 + Sigma^2))), Delta = r D bounding what the start is off by. C and
Sigma depend on T in turn: from T = kappa the two are computed in turn until they settle. T is at most
n/2 here, and such that the noise of one step stays below C.

A set is part of h, and an elastic net's square part of the gradient: regulariser.py.

*Not convex, and no mu.* Then F need not grow towards a minimiser, and a point is looked for at which G
= 2 beta (w - prox(w - grad/(2 beta))), the gradient mapping, is short. With e = g - grad and v the
step made, <g, v> + h(w + v) - h(w) <= -2 beta ||v||^2 (the operator), F's smoothness and -<e, v> <=
||e||^2/(2 beta) + (beta/2) ||v||^2 give beta ||v||^2 <= F(w) - F(w + v) + ||e||^2/(2 beta). The
mapping made of g, 2 beta ||v||, is within ||e|| of ||G||. Summed over the steps, from F(w_0) - min F
<= Delta,

    mean ||G||^2 <= 8 beta Delta/T + 6 E||e||^2,   E||e||^2 <= B^2 + Sigma^2,

whatever the clip's bias does. The output is the w of a step drawn uniformly; T, a power of two, is
that of the least bound, whose root falls like n^(-1/4): Sigma^2 holds r^2 T/n.

*Corners that are not convex, networks.* No theorem is known for these: the steps are fixed, of D/(C
sqrt(T)), or for a network of 10/C; T is 200, but no more than leave the noise of one step below a
quarter of the clip, and the output is the last w.

**Sensitivity.** Neighbours replace one record. Step t releases the sum over its batch of integer
contributions, each of norm at most c (`lattice`): replacing a record of that batch moves the sum by
at most 2c, and replacing any other leaves the step's distribution given the past unchanged.

**Proof.** Batches are disjoint ranges of positions, so the run costs one release (and the choice of
a private clip, which reads all rows, before it). The proximal operator acts on what was released, and
which w is put out depends on no row. Nothing of this asks for a convex or a smooth loss, or for one of
a linear model: integers are clamped whatever the gradient was.

**Errata.** Theorem 35 claims epsilon/2-zCDP; its proof gives epsilon^2/2.
"""

from collections.abc import Callable
from math import ceil, inf, log, sqrt
from typing import Literal, NamedTuple

from pydantic import Field, PositiveFloat, PositiveInt

from service.errors import PlanRefused
from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Prediction, Schedule, rounded
from service.planning.lattice import calibrate, target
from service.planning.needs import WITH_A_PROJECTION, WITH_THEIR_SETS, Needs
from service.planning.problem import Problem, is_convex, problem
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
from service.planning.shared.networks import NETWORK_STEP, NETWORK_STEPS
from service.planning.shared.reach import within
from service.planning.spec import Facts, JobSpec

NAME = "proximal-sgd"
_ROUNDS = 8  # of T and the noise that it implies
_QUIETER = 4  # than the clip, the noise of a step without a theorem
_THEOREMS = (
    "LR-HT Proposition 36 without its constants",
    "a short gradient mapping: ||G||^2 <= 8 beta Delta/T + 6 ||e||^2 on average",
)
_NO_THEOREM = "none for such a loss; the bound on a gradient, and its noise"


class ProximalSgdSchedule(Schedule):
    """w <- prox(w - eta (g/batch + ridge w)); batch t is the rows [t * batch, (t + 1) * batch). The
    last w, or that of a step drawn before."""

    kind: Literal["proximal_sgd"] = "proximal_sgd"
    steps: PositiveInt
    batch: PositiveInt
    step_size: PositiveFloat
    output: Literal["last", "drawn"] = Field(
        default="last", exclude_if=lambda value: value == "last"
    )
    step_per_clip: bool | None = Field(default=None, exclude_if=lambda value: value is None)


class Parameters(OnePass):
    growth: float | None = Field(
        default=None,
        ge=RIDGE_MIN,
        le=1e9,
        description="mu of the proximal Polyak-Lojasiewicz inequality, beyond what ridge gives.",
    )


class _Aim(NamedTuple):
    """What steps are chosen for: to come near a minimiser or, where no mu is known, to a short G."""

    mu: float | None
    beta: float
    Delta: float

    def bound(self, steps: float, error: float) -> float:
        """For an E||e||^2 of `error`."""
        if self.mu is None:
            return sqrt(8 * self.beta * self.Delta / steps + 6 * error)
        left = (1 - min(1.0, self.mu / (2 * self.beta))) ** steps
        return float(left * self.Delta + error / self.mu)

    def steps(self, error: Callable[[float], float], n: int, quiet: int) -> int:
        most = max(1, min(n // 2, quiet))
        if self.mu is None:
            tried = [1 << k for k in range(most.bit_length())]
            return min(tried, key=lambda steps: self.bound(steps, error(steps)))
        kappa = self.beta / self.mu
        wanted = max(1.0, min(kappa, n / 2))
        for _ in range(_ROUNDS):
            gain = max(2.0, self.Delta * self.mu / error(wanted))
            wanted = min(2 * ceil(kappa * log(gain)), most)
        return int(wanted)


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal = problem(spec, facts), target(spec, facts)
    mu, smooth = _growth(spec, facts, parameters, p), spec.ridge + spec.regulariser.square
    known = tails(NAME, parameters, p, facts)
    n, d, r, rho = p.n, p.d, known.r, goal.rho
    D = start_distance(within(spec, facts, goal, p), r, spec.ridge if p.weak == 0 else 0.0)
    aim = _Aim(mu, p.beta + smooth, r * D)

    def squared_error(steps: float) -> float:
        """B^2 + Sigma^2."""
        C, rows = known.clip(rows_that_drown(goal, n, d, steps**2)), n / steps
        return known.bias(C) ** 2 + 2 * d * C**2 / (rho * rows**2) + r**2 / rows

    steps, quiet = parameters.steps or 0, quiet_steps(n, d, rho)
    if not steps and p.is_smooth:
        steps = aim.steps(squared_error, n, quiet)
    steps = steps or max(1, min(NETWORK_STEPS, quiet // _QUIETER, n))
    steps, batch = steps_and_batch(parameters, steps, n)
    clip = clipping(known, parameters, p, facts, goal, rows_that_drown(goal, n, d, steps**2))
    lattice = calibrate(clip.goal, facts, p, clip.bound, times=1)
    error = known.bias(clip.C) ** 2 + d * lattice.variance / batch**2 + r**2 / batch
    eta, theorem, bound = 1 / (2 * aim.beta), _THEOREMS[mu is None], aim.bound(steps, error)
    if not p.is_smooth:
        eta = (D / sqrt(steps) if spec.model.kind == "linear" else NETWORK_STEP) / clip.C
        eta = min(eta, 1 / (2 * smooth)) if smooth > 0 else eta
        theorem, bound = _NO_THEOREM, clip.C + sqrt(d * lattice.variance) / batch
    return Draft(
        dimension=d,
        schedule=ProximalSgdSchedule(
            steps=steps,
            batch=batch,
            step_size=eta,
            output="drawn" if p.is_smooth and mu is None else "last",
            step_per_clip=(clip.choice is not None and not p.is_smooth) or None,
        ),
        lattice=lattice,
        private_clip=clip.choice,
        release=clip.paid(Disjoint(parts=(lattice.release(),), copies=steps)),
        prediction=Prediction(
            theorem=clip.describe(theorem),
            excess_risk=rounded(bound),
            noise_squared=rounded(steps * d * lattice.variance),
            # LR-HT proof of Theorem 38: sigma = 2 C T/(eps n) with eps = sqrt(2 rho)
            paper_noise=rounded(2 * clip.C / (sqrt(2 * rho) * batch)) if goal.delta > 0 else 0.0,
            our_noise=rounded(sqrt(lattice.variance) / batch),
        ),
        gradients=steps * batch,
    )


def _growth(spec: JobSpec, facts: Facts, parameters: Parameters, p: Problem) -> float | None:
    """mu, or None where the loss is not convex and none is known. The weak convexity of a loss is
    that on rows of bounded norm."""
    weak = inf if p.weak > 0 and facts.l2 is None else p.weak_convexity
    mu = max(0.0, spec.ridge + spec.regulariser.square - weak) + (parameters.growth or 0.0)
    if mu >= RIDGE_MIN:
        return mu
    if not is_convex(spec):
        return None
    if parameters.steps is None:
        raise PlanRefused(
            f"{NAME} needs to know how fast the objective grows: set ridge to at least {RIDGE_MIN} "
            "(for example 0.01), or use an elastic_net, or set parameters.growth or parameters.steps."
        )
    return RIDGE_MIN


ALGORITHM = Algorithm(
    name=NAME,
    title="Noisy proximal SGD, one pass",
    paper=papers.LR_HT,
    algorithm="6 with mean oracle 1",
    theorem="35",
    problem="smooth losses, convex or not, with an l1, elastic net or group lasso; ReLU networks and "
    "other corners without a theorem; rows may be unbounded",
    cost="one noisy sum on disjoint batches: the price of a single release",
    needs=Needs(
        sets=WITH_A_PROJECTION,
        smooth="if convex",
        convexity="any",
        models=("linear", "relu_network"),
        regularisers=WITH_THEIR_SETS,
    ),
    parameters=Parameters,
    schedule=ProximalSgdSchedule,
    plan=plan,
    either=True,
    examples=(
        {
            "loss": "logistic",
            "ridge": 0.01,
            "regulariser": {"kind": "l1", "strength": 0.001},
        },
    ),
)
