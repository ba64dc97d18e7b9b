"""Proximally guided mirror descent: weakly convex losses, which need be neither convex nor smooth.

**Problem.** Near-stationary points of F(w) = E l(w; x, y) + (ridge/2) ||w||^2 over a convex set, for
l omega-weakly convex in w. Norms are l_2 over an l2 ball or all of R^d, and l_1 over an l1 ball or a
simplex, where pbar = 1 + 1/log d stands in for 1 (at most 2); kappa = 1/(pbar - 1). D is the set's
diameter (20 for all of R^d), L = clip X_q, q dual to pbar.

**Schedule.** BGM algorithm 6: R rounds on disjoint ranges of m = n/R rows. Round r minimises the mean
loss of its rows plus beta h(w), h(w) = (1/2)||w - w_r||_pbar^2, beta = 2 omega kappa, by T steps of
noisy mirror descent of size eta_t = 4/(beta (t + t_0)); w_(r+1) is the mean of the iterates with
weights t. The output is that of one of the last R/2 rounds, drawn without looking at data, or
`output: "last"`. A convex loss counts as weakly convex of constant L/D. How R and T are chosen: the
page below.

**Sensitivity.** Neighbours replace one record, which is in one round. That round releases T times
the noisy sum over its rows of integer contributions of l2 norm (l1 for Laplace noise) at most c
(`lattice`): replacing one moves a sum by at most 2c.

**Proof.** docs/proofs/proximally-guided-mirror-descent.md. No privacy rests on omega, `pull` or
accuracy.

**Errata.** Theorem 19 is for L0-Lipschitz losses, but F_r is L0 + beta D Lipschitz; here
beta h is no part of what is sampled, clipped or noised. At d = 1 kappa = log d is 0, and so would
be beta. R is rounded down, to 0 for small n. Its proof needs F_r's excess risk, for which the
solver must localize again; distances suffice, and for them plain descent does.
"""

from dataclasses import dataclass
from math import ceil, inf, isfinite, log, sqrt
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from service.errors import PlanRefused
from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Prediction, Schedule, rounded
from service.planning.lattice import calibrate, target
from service.planning.needs import Needs
from service.planning.problem import Problem, problem
from service.planning.releases import Disjoint, Repeat
from service.planning.shared.clip import clip_bound
from service.planning.spec import Facts, JobSpec, StepsAndClip

NAME = "proximally-guided-mirror-descent"
STEPS_BY_DEFAULT = 1000
_DIAMETER = 20.0  # stands in for that of R^d
_SMALL, _LARGE = 1e-12, 1e12


class ProximallyGuidedMirrorDescentSchedule(Schedule):
    """Round r, on the rows [r n // rounds, (r + 1) n // rounds): steps of mirror descent in the norm
    l_`norm` on the mean loss plus (pull/2)||w - c||^2, c where the last round ended (which no iterate
    is further from than `reach`, in l2), of sizes 4/(pull (t + offset))."""

    kind: Literal["proximally_guided_mirror_descent"] = "proximally_guided_mirror_descent"
    rounds: PositiveInt
    steps_each: PositiveInt
    pull: PositiveFloat
    offset: float = Field(ge=1)
    norm: float = Field(gt=1, le=2)
    reach: PositiveFloat | None
    start: Literal["zero", "random"]
    output: Literal["random", "last"]

    @property
    def steps(self) -> int:
        return self.rounds * self.steps_each


class Parameters(StepsAndClip):
    steps: PositiveInt | None = Field(
        default=None, le=10**6, description="Of each round; by default from the bound it obeys."
    )
    rounds: PositiveInt | None = Field(
        default=None, le=10**6, description="R, on disjoint rows; by default the bound's best."
    )
    pull: float | None = Field(
        default=None,
        ge=1e-9,
        le=1e9,
        description="beta: each round stays near where it began by (beta/2) times the square of the "
        "distance. Defaults to twice the loss's weak convexity (times log d for l1 sets); required "
        "where the loss is not convex and a column is unbounded. No privacy rests on it.",
    )
    start: Literal["zero", "random"] | None = Field(
        default=None, description="The first point: random for phase_retrieval, else zero."
    )
    output: Literal["random", "last"] = Field(
        default="random",
        description="The result of a random one of the last half of the rounds, or of the last.",
    )


@dataclass(frozen=True)
class Geometry:
    """The norm in which distances are measured, and the constants of a problem in it."""

    norm: float  # pbar
    D: float
    L: float
    omega: float  # 0 for a convex loss
    spread: float  # E||z||_q^2 of a vector of independent normals, at most

    @property
    def kappa(self) -> float:
        return 1 / (self.norm - 1)


def geometry(spec: JobSpec, facts: Facts, p: Problem, bound: float) -> Geometry:
    norm, X = 2.0, p.X2 if p.rowwise else 1.0
    spread = float(p.d)
    if spec.set.l1_norm is not None and p.d > 2:
        norm = min(2.0, 1 + 1 / log(p.d))
        q = norm / (norm - 1)
        X = X if facts.linf is None or not p.rowwise else min(X, facts.linf * p.d ** (1 / q))
        spread = min(spread, q * p.d ** (2 / q))
    D = 2 * p.W if isfinite(p.W) else _DIAMETER
    omega = p.weak_convexity * (X / p.X2) ** 2 if p.rowwise else p.weak_convexity
    return Geometry(norm, min(max(D, _SMALL), _LARGE), bound * X, omega, spread)


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal = problem(spec, facts), target(spec, facts)
    n, d = p.n, p.d
    bound = clip_bound(parameters, p, facts)
    shape = geometry(spec, facts, p, bound)
    D, L, kappa = shape.D, shape.L, shape.kappa
    pull = parameters.pull
    if pull is None:
        if facts.l2 is None and p.weak > 0:
            raise PlanRefused(
                "this dataset has unbounded columns, so the loss's weak convexity is unknown; set "
                "parameters.pull to twice what you take it to be."
            )
        pull = min(max(2 * kappa * (shape.omega or L / D), _SMALL), _LARGE)
    omega = pull / (2 * kappa)
    if parameters.rounds is not None and parameters.rounds > n:
        raise PlanRefused(
            f"{parameters.rounds} rounds need as many rows and there are {n}; "
            f"set parameters.rounds to at most {n}."
        )

    # sigma of a sum for one step, in gradient units: what T steps multiply
    clip = bound * (p.X2 if p.rowwise else 1.0)
    if goal.delta > 0:
        unit, growth = 2 * clip / sqrt(2 * goal.rho), 0.5
    else:
        unit, growth = sqrt(8 * d) * clip / sqrt(2 * goal.rho), 1.0

    smoothness = p.beta if p.is_smooth else 0.0
    offset = max(1.0, 4 * kappa * (smoothness + spec.ridge) / pull)  # t_0

    def steps_of(R: int) -> int:
        """What the gradients' own part of the bound asks for, or where noise would weigh more."""
        if parameters.steps is not None:
            return parameters.steps
        m = n // R
        wanted = min((1 + offset) * sqrt(m) if p.is_smooth else m, STEPS_BY_DEFAULT)
        drowned = float(min(L * m / (unit * sqrt(shape.spread)), 1e9) ** (1 / growth))
        return max(1, ceil(min(wanted, drowned)))

    def bound_of(R: int) -> float:
        m, T = n // R, steps_of(R)
        N = shape.spread * (unit * float(T**growth) / m) ** 2
        descent = ((1 + offset) / (T + offset)) ** 2 if p.is_smooth else 8 / T
        e = (8 * kappa / m + descent) * L**2 + 8 * N / T
        return 2 * L * D / (pull * R) + e / omega**2

    candidates = sorted({min(n, round(2 ** (k / 2))) for k in range(2 * n.bit_length())})
    R = parameters.rounds or min(candidates, key=bound_of)
    T = steps_of(R)
    lipschitz = L + (spec.ridge * D / 2 if isfinite(p.W) or spec.ridge == 0 else inf)
    reach = 2 * lipschitz / pull if shape.norm == 2 else inf
    lattice = calibrate(goal, facts, p, bound, times=T)
    start = parameters.start or ("random" if spec.loss.flat_at_zero else "zero")
    return Draft(
        dimension=p.d,
        schedule=ProximallyGuidedMirrorDescentSchedule(
            rounds=R,
            steps_each=T,
            pull=rounded(pull),
            offset=rounded(offset),
            norm=rounded(shape.norm),
            reach=rounded(reach) if 0 < reach < inf else None,
            start=start,
            output=parameters.output,
        ),
        lattice=lattice,
        release=Disjoint(parts=(Repeat(release=lattice.release(), times=T),), copies=R),
        prediction=Prediction(
            theorem="BGM Theorem 20: max(1, beta D) times the distance to the proximal point",
            excess_risk=rounded(max(1.0, pull * D) * sqrt(bound_of(R))),
            noise_squared=rounded(R * T * d * lattice.variance),
            paper_noise=0.0,
            our_noise=rounded(sqrt(lattice.variance) / (n // R)),
        ),
        gradients=T * n,
    )


ALGORITHM = Algorithm(
    name=NAME,
    title="Proximally guided mirror descent, one strongly convex problem after the other",
    paper=papers.BGM,
    algorithm="6",
    theorem="20",
    problem="near-stationary points of weakly convex losses, over a ball, R^d or a simplex",
    cost="one round of noisy sums: rounds read disjoint rows",
    needs=Needs(sets=("l2_ball", "all", "l1_ball", "simplex"), convexity="weakly convex"),
    parameters=Parameters,
    schedule=ProximallyGuidedMirrorDescentSchedule,
    plan=plan,
    examples=(
        {"loss": "sigmoid"},
        {"loss": "hinge", "set": "simplex"},
    ),
)
