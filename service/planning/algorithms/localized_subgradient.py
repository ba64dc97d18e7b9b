"""Localized noisy clipped subgradients: convex losses that need not be smooth, heavy tails.

**Problem.** min over a convex set of F(w) = E l(w; x, y) + (ridge/2) ||w||^2 + h(w), l convex, h a
regulariser with a proximal operator, if any, for rows drawn independently from a population; ridge may
be zero. Columns and labels may be unbounded. D as
in shared/acceleration.py. `moment_bound` is here the bound r on the moment 2k of the gradients'
length.

**Schedule.** LR-HT algorithm 3 on 2: phases on disjoint ranges of rows, n_i = n/2^i of them. With
lambda_i = lambda (4 * 2^p)^(i-1), phase i minimises the mean loss of its rows plus (lambda_i/2)||w -
c||^2, c the last phase's output, by T_i steps of size eta_i = 1/(lambda_i q_i) along noisy means of
clipped subgradients; pull, ridge and h are solved exactly in the step. Its output is the mean of the
last half of its iterates, each of which obeys the bound on the last (Lemma 12) with half the steps.
epsilon^2 = 2 rho, and

    lambda = max(r/sqrt(n), L/n^(p/2), r/z^((k-1)/k))/D,    z = sqrt(2 rho) n/sqrt(d log n),
    C_i = r z_i^(1/k) with z_i the same for n_i rows,    q_i = n_i^p,
    T_i = 2 q_i log(D^2 lambda_i/(d sigma_i^2 eta_i)),    sigma_i^2 = 2 C_i^2 T_i/(rho n_i^2),

where L is the loss's Lipschitz constant if it has one; then, without an h, the phase also stays within
2 L/lambda_i of c. The last two lines define each other and are iterated until they settle. p is
`power`. T_i grows like n_i^p log n, out of reach soon, so that it is at most `steps` (1000 by default:
a pass over the phase's rows each), and eta_i is at least what is needed to come from c to the
minimiser in T_i steps; at most 1/(beta + lambda_i) where l is beta-smooth, and D_i/(C_i sqrt(T_i))
where it has a corner, D_i = min(D, 2 C_i/lambda_i) being how far the minimiser may be. A step may read
a batch drawn from the phase's rows (Remark 17): 1/2^halvings of them.

With ridge = mu > 0 all this is done in M = log2 log2 n rounds on disjoint rows, each twice as many as
the last (Theorem 18), from where the last round ended; round j + 1 starts within
sqrt(2 Delta_j/mu) of the minimiser, Delta_j the theorem's excess risk of round j.

**Sensitivity.** Neighbours replace one record. Phase i releases T_i times the noisy sum over its
own rows (or over a fresh secret batch of them) of integer contributions, each of norm at most c_i
(its own lattice): replacing one of them moves a sum by at most 2 c_i, and replacing any other
leaves the phase's distribution given the past unchanged, as its centre, start and steps are
functions of earlier releases.

**Proof.** T_i of them on the same rows compose adaptively, phases are on disjoint ranges of
positions: the run costs its most expensive phase (and the choice of a private clip, which reads all
rows, before it). Every phase is calibrated to the whole budget. Pull and ridge are never clipped.

**Errata.** "N_j = 2 N_(j+1)" in the proof of Theorem 18 is N_(j+1) = 2 N_j, as its definition
says. T_i as printed, 1/(lambda_i eta_i) log(...), leaves the square root of what exp(-lambda_i eta_i
T_i/2) should; it needs the 2. Phases are half-open ranges.
"""

from functools import cache
from math import ceil, isfinite, log, log2, sqrt
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from service.errors import PlanRefused
from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Part, Prediction, Schedule, rounded
from service.planning.lattice import SumLattice, calibrate, target
from service.planning.needs import WITH_A_PROJECTION, WITH_THEIR_SETS, Needs
from service.planning.problem import problem
from service.planning.releases import Disjoint
from service.planning.shared.acceleration import start_distance
from service.planning.shared.clip import typical_length
from service.planning.shared.heavy_tails import (
    HeavyTails,
    clipping,
    rows_that_drown,
    tails,
)
from service.planning.shared.phases import PHASES_MAX, layout
from service.planning.shared.reach import within
from service.planning.shared.subsampling import calibrate_sampled, sampled
from service.planning.spec import Facts, JobSpec

NAME = "localized-subgradient"
STEPS_BY_DEFAULT = 1000
_ROUNDS = 20  # of T_i and sigma_i


class SubgradientPhase(Part):
    """`steps` noisy subgradients of batches of the rows [start, stop), with (pull/2)||w - c||^2 added
    for c the last phase's output, within `reach` of c; the mean of the last half of the iterates.
    Steps are inversely proportional to a chosen clip, pulls proportional."""

    start: NonNegativeInt
    stop: PositiveInt
    batch: PositiveInt
    steps: PositiveInt
    step_size: PositiveFloat
    pull: PositiveFloat
    reach: PositiveFloat | None
    lattice: SumLattice


class LocalizedSubgradientSchedule(Schedule):
    """Phases on disjoint ranges of rows, one after the other; no step is longer than `step_max`."""

    kind: Literal["localized_subgradient"] = "localized_subgradient"
    phases: tuple[SubgradientPhase, ...] = Field(min_length=1)
    step_max: PositiveFloat | None

    @property
    def steps(self) -> int:
        return sum(phase.steps for phase in self.phases)


class Parameters(HeavyTails):
    power: float = Field(
        default=1.0, ge=0.5, le=3, description="p: a phase of m rows wants m^p log m steps."
    )
    halvings: int = Field(
        default=0, ge=0, le=30, description="A step reads 1/2^halvings of its phase's rows, drawn."
    )


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal = problem(spec, facts), target(spec, facts)
    n, d, halvings, h = p.n, p.d, parameters.halvings, spec.regulariser
    if n >> halvings == 0:
        raise PlanRefused(
            f"{halvings} halvings leave no row of {n}; "
            f"set parameters.halvings to at most {n.bit_length() - 1}."
        )
    known = tails(NAME, parameters, p, facts)
    r, power, logarithm = known.r, parameters.power, log(max(n, 3))
    L = known.bound if isfinite(known.bound) else None
    most = parameters.steps or STEPS_BY_DEFAULT

    def z(rows: int) -> float:
        return rows_that_drown(goal, rows, d, logarithm)

    def rate(rows: int) -> float:
        """Theorem 10's excess risk on so many rows, per unit of distance."""
        return r / sqrt(rows) + r * float(z(rows) ** -known.power)

    whole = clipping(known, parameters, p, facts, goal, z(n))
    budget = whole.goal

    @cache
    def lattice_of(steps: int, bound: float) -> SumLattice:
        if halvings == 0:
            return calibrate(budget, facts, p, bound, times=steps)
        return calibrate_sampled(budget, facts, p, bound, 1, 2**halvings, steps)

    D = distance = start_distance(within(spec, facts, goal, p), r, spec.ridge)
    phases: list[SubgradientPhase] = []
    start = 0
    for total in _rounds(n, halvings, spec.ridge):
        first = max(rate(total) / 2, (L or 0.0) / total ** (power / 2)) / distance
        for i, (batch, rows) in enumerate(layout(total, PHASES_MAX, halvings)):
            clip = whole
            if whole.choice is None:
                clip = clipping(known, parameters, p, facts, goal, z(rows))
            pull, q = first * (4 * 2**power) ** i, float(rows) ** power
            steps, logs = _settled(q, distance * pull * rows / clip.C, d, goal.rho)
            steps = min(steps, most)
            eta = 2 * logs / (pull * steps)
            if not p.is_smooth:
                eta = min(eta, min(distance, 2 * clip.C / pull) / (clip.C * sqrt(steps)))
            phases.append(
                SubgradientPhase(
                    start=start,
                    stop=start + rows,
                    batch=batch,
                    steps=steps,
                    step_size=rounded(eta),
                    pull=rounded(pull),
                    reach=None if L is None or h.kind != "none" else rounded(2 * L / pull),
                    lattice=lattice_of(steps, clip.bound),
                )
            )
            start += rows
        if spec.ridge > 0:
            distance = min(distance, sqrt(2 * rate(total) * distance / spec.ridge))
    curved = (p.beta if p.is_smooth else 0.0) + h.square
    head, risk = phases[0], rate(n) * typical_length(whole, facts) / whole.C
    return Draft(
        dimension=p.d,
        schedule=LocalizedSubgradientSchedule(
            phases=tuple(phases), step_max=1 / curved if curved > 0 else None
        ),
        lattice=head.lattice,
        private_clip=whole.choice,
        release=whole.paid(
            Disjoint(
                parts=tuple(
                    sampled(f.lattice.release(), f.batch, f.stop - f.start, f.steps) for f in phases
                )
            )
        ),
        prediction=Prediction(
            theorem=whole.describe(f"LR-HT Theorem {18 if spec.ridge > 0 else 10}"),
            excess_risk=rounded(
                min(risk * D, risk**2 / spec.ridge if spec.ridge > 0 else risk * D)
            ),
            noise_squared=rounded(sum(f.steps * d * f.lattice.variance for f in phases)),
            # LR-HT algorithm 3: sigma = 2 C sqrt(T)/(eps n_1) with eps = sqrt(2 rho)
            paper_noise=(
                rounded(2 * head.lattice.clip * sqrt(head.steps / (2 * goal.rho)) / head.stop)
                if goal.delta > 0
                else 0.0
            ),
            our_noise=rounded(sqrt(head.lattice.variance) / head.batch),
        ),
        gradients=sum(f.steps * f.batch for f in phases),
    )


def _rounds(n: int, halvings: int, ridge: float) -> list[int]:
    """The rows of each round: all of them, or twice as many each time where there is a ridge."""
    count = 1
    if ridge > 0:
        count = max(1, min(ceil(log2(max(2.0, log2(n)))), ((n >> halvings) + 1).bit_length() - 1))
    return [(n << j) // (2**count - 1) for j in range(count)]


def _settled(q: float, far: float, d: int, rho: float) -> tuple[int, float]:
    """T = 2 q log(D^2 lambda/(d sigma^2 eta)) with sigma^2 = 2 C^2 T/(rho m^2) and eta = 1/(lambda q),
    and the logarithm; `far` is D lambda m/C. The logarithm is at least 1."""
    logs = 1.0
    for _ in range(_ROUNDS):  # half-way each time: the map falls, by less than one for one
        logs = (logs + max(1.0, 2 * log(far) + log(rho / (4 * d * logs)))) / 2
    return ceil(2 * q * logs), logs


ALGORITHM = Algorithm(
    name=NAME,
    title="Localized clipped subgradients for population risk",
    paper=papers.LR_HT,
    algorithm="3 on 2",
    theorem="10, and 18 for ridge > 0",
    problem="population risk of convex losses, smooth or not; rows may be unbounded",
    cost="one phase of noisy sums: phases read disjoint rows",
    needs=Needs(sets=WITH_A_PROJECTION, regularisers=WITH_THEIR_SETS),
    parameters=Parameters,
    schedule=LocalizedSubgradientSchedule,
    plan=plan,
    examples=({"loss": "hinge"},),
)
