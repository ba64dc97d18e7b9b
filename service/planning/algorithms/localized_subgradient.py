"""Localized noisy clipped subgradients: convex losses that need not be smooth, heavy tails.

**Problem.** min over a convex set of F(w) = E l(w; x, y) + (ridge/2) ||w||^2 + h(w), l convex, h a
regulariser with a proximal operator, if any, for rows drawn independently from a population; ridge may
be zero. Columns and labels may be unbounded. D as
in shared/acceleration.py. `moment_bound` is here the bound r on the moment 2k of the gradients'
length; where the clip is chosen all is planned in units of it.

**Schedule.** LR-HT algorithm 3 on 2: phases on disjoint ranges of rows, n_i of them, each half as
many as the one before. With lambda_i = lambda (4 * 2^p)^(i-1), p being `power`, phase i minimises the
mean loss of its rows plus (lambda_i/2)||w - c||^2, c the last phase's output, by T_i = T/2^(p (i-1))
steps (but no fewer than 16, or T) of size eta_i along noisy means of subgradients clipped at C_i =
r z_i^(1/k), z_i = sqrt(2 rho) n_i/sqrt(d log n); pull, ridge and h are solved exactly in the step. A
step reads a batch drawn from the phase's rows (Remark 17), 1/2^halvings of them. Where the loss has a
Lipschitz constant L, without an h, the phase also stays within 2 L/lambda_i of c. The output is the
mean of the last half of the iterates.

T, the halvings, lambda and the smoothness are those for which the bound is smallest or nearly so,
chosen as shared/subsampling.py says; the bound is that of the very schedule. A loss with a corner is
smoothed as in shared/acceleration.py, to a beta at a bias of price/beta. With m = lambda_i + ridge, a
the mean square distance to the phase's own minimiser, V the variance of a noisy mean, B the bias of
clipping (Lemma 8) and eta <= 1/beta, a step obeys

    (1 + eta m) a_(t+1) <= a_t + 2 eta^2 V + eta B^2/m

as pull and ridge are m-strongly convex and descent pays for the rest (Lemma 12 has 8 (r^2 +
lambda^2 D^2) eta/lambda besides, what a corner costs). So the mean of the last half is within

    E_i = (1 + eta m)^(-T_i/2) A_i + 2 eta V/m + B^2/m^2,    A_i = min(2 D, (H + ridge D)/m)^2,

which eta = 2 max(1, log(A m^2 T_i/(4 V)))/(m T_i) nearly minimises, and with E_0 = D^2

    E F(w_k) - F* <= sum_i [ (lambda_i/2) E_(i-1) + 4 r^2/(m n_i) ] + H sqrt(E_k) + bias

H being r and the largest subgradient of h, by Proposition 15 (stability) and the telescoping of the
theorem's proof. That is Theorem 10's rate, for sqrt(n) log n steps where l is smooth and n log n where
it has a corner, of batches in place of n^p passes; T is at most 2^12 by default. A ridge is part of m:
the smaller lambda may then be, and the bound falls faster than 1/sqrt(n) in one round, where Theorem
18 has log log n of them.

**Sensitivity.** Neighbours replace one record. Phase i releases T_i times the noisy sum over its
own rows (or over a fresh secret batch of them) of integer contributions, each of norm at most c_i
(its own lattice): replacing one of them moves a sum by at most 2 c_i, and replacing any other
leaves the phase's distribution given the past unchanged, as its centre, start and steps are
functions of earlier releases.

**Proof.** T_i of them on the same rows compose adaptively, phases are on disjoint ranges of
positions: the run costs its most expensive phase (and the choice of a private clip, which reads all
rows, before it). Every phase is calibrated to the whole budget. Pull and ridge are never clipped.

**Errata.** T_i as printed, 1/(lambda_i eta_i) log(...), leaves the square root of what
exp(-lambda_i eta_i T_i/2) should; it needs the 2. T_i and sigma_i define each other: here one bound
has both. Phases are half-open ranges.
"""

from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from math import ceil, floor, inf, isfinite, log, log2, sqrt
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Part, Prediction, Schedule, rounded
from service.planning.lattice import SumLattice, calibrate, target
from service.planning.needs import WITH_A_PROJECTION, WITH_THEIR_SETS, Needs
from service.planning.problem import problem
from service.planning.releases import Disjoint
from service.planning.shared.acceleration import Smoother, start_distance
from service.planning.shared.clip import Clipping, typical_length
from service.planning.shared.heavy_tails import (
    HeavyTails,
    clipping,
    rows_that_drown,
    tails,
)
from service.planning.shared.pace import Pace
from service.planning.shared.phases import PHASES_MAX, layout, require_rows
from service.planning.shared.reach import within
from service.planning.shared.subsampling import (
    Candidate,
    best_halvings,
    calibrate_sampled,
    drawing_variance,
    noise_variance,
    quickest,
    sampled,
)
from service.planning.spec import Facts, JobSpec

NAME = "localized-subgradient"
_STEPS = [2**k for k in range(4, 13)]
_STEPS_MIN = 16  # of a phase
_PULLS, _MORE_PULLS = range(-2, 12), range(-24, 12)  # doublings of r/(D sqrt(n)); with a ridge


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
        default=1.0, ge=0.5, le=3, description="p: a phase pulls 4 * 2^p times as hard as the last."
    )
    halvings: int | None = Field(
        default=None,
        ge=0,
        le=30,
        description="A step reads 1/2^halvings of its phase's rows; by default what suits `steps`.",
    )


@dataclass(frozen=True)
class _Bound:
    """What the bound depends on besides T, batches and pulls; in units of a chosen clip."""

    D: float
    r: float
    ridge: float
    power: float
    steepest: float  # H
    square: float  # of h

    def steps(self, T: int, phases: int) -> list[int]:
        """T_i of every phase."""
        return [max(min(T, _STEPS_MIN), ceil(T / 2 ** (self.power * i))) for i in range(phases)]

    def phases(
        self,
        rows: list[tuple[int, int]],
        noise: list[tuple[float, float]],
        steps: list[int],
        beta: float,
        first: float,
    ) -> tuple[float, list[tuple[float, float]]]:
        """The bound, and every phase's pull and step; `noise` has the variance of each phase's means
        and its bias."""
        error, distance, found = 0.0, self.D**2, []
        each = zip(rows, noise, steps, strict=True)
        for i, ((_, population), (V, B), T) in enumerate(each):
            pull = first * (4 * 2**self.power) ** i
            m = pull + self.ridge
            far = min(2 * self.D, (self.steepest + (self.ridge + self.square) * self.D) / m)
            logs = max(1.0, log(max(far**2 * m**2 * T / (4 * V), 1.0)))
            eta = min(2 * logs / (m * T), 1 / beta)
            error += pull / 2 * distance + 4 * self.r**2 / (m * population)
            left = far**2 * float((1 + eta * m) ** (-T / 2)) + 2 * eta * V / m + (B / m) ** 2
            distance = min(4 * self.D**2, left)
            found.append((pull, eta))
        return error + self.steepest * sqrt(distance), found


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal = problem(spec, facts), target(spec, facts)
    n, d, asked, h = p.n, p.d, parameters.halvings, spec.regulariser
    require_rows(asked, n)
    known = tails(NAME, parameters, p, facts)
    r, logarithm, pace = known.r, log(max(n, 3)), Pace.of(facts)
    L = known.bound if isfinite(known.bound) else None

    def z(rows: int) -> float:
        return rows_that_drown(goal, rows, d, logarithm)

    whole = clipping(known, parameters, p, facts, goal, z(n))
    budget, worth = whole.goal, typical_length(whole, facts) / whole.C
    plain = calibrate(budget, facts, p, whole.bound, times=1)
    D = start_distance(within(spec, facts, goal, p), r * worth, spec.ridge)
    bound = _Bound(
        *(D, r, spec.ridge / worth, parameters.power),
        steepest=r + h.steepest(d) / worth,
        square=h.square / worth,
    )
    smooth, base = Smoother.of(p, spec, facts), floor(log2(1 / sqrt(n)))
    betas = {
        smooth.beta or smooth.price / (r * worth * D) * 4.0**k for k in range(-1, 2 - base // 2)
    }

    def clips(rows: list[tuple[int, int]]) -> list[Clipping]:
        if whole.choice is not None:
            return [whole] * len(rows)
        return [clipping(known, parameters, p, facts, goal, z(m)) for _, m in rows]

    def noise(rows: list[tuple[int, int]], variances: list[float]) -> list[tuple[float, float]]:
        """From the variances of a coordinate of a batch's sum, for a clip of 1."""
        return [
            (d * one * (clip.C / batch) ** 2 + drawing_variance(r, batch, m), known.bias(clip.C))
            for one, (batch, m), clip in zip(variances, rows, clips(rows), strict=True)
        ]

    def glance(halvings: int, steps: int) -> float:
        return noise_variance(budget, plain, 1, 2**halvings, steps) / plain.clip**2

    found, tried = list[Candidate](), [parameters.steps] if parameters.steps else _STEPS
    if not goal.credits_draws:  # all rows, in as many steps as there is time for
        asked = asked or 0
    least_batch = 1 if asked is None else n >> asked
    tried = [steps for steps in tried if pace.affords(steps, least_batch, n)] or tried[:1]
    for steps in tried:
        halvings = asked
        if halvings is None:
            halvings = best_halvings(budget, plain, d, whole.C, -(-n // 2), steps, pace)
        rows = layout(n, PHASES_MAX, halvings)
        if found and len(rows) < len(layout(n, PHASES_MAX // 2, 0)):
            continue  # batches so small that they leave no rows for the last phases
        each, (batch, population) = bound.steps(steps, len(rows)), rows[0]
        noisy = noise(rows, [glance(halvings, one) for one in each])
        seconds = pace.seconds(steps, batch, population)
        for beta in sorted(betas):
            least = inf
            for power in _MORE_PULLS if spec.ridge > 0 else _PULLS:
                first = r / D * 2.0 ** (base + power)
                error, _ = bound.phases(rows, noisy, each, beta / worth + bound.square, first)
                error = worth * error + smooth.bias(beta)
                found.append(Candidate(error, seconds, steps, batch, beta, halvings, first))
                if power > 0 and error > least:
                    break
                least = min(least, error)
    best = quickest(found, few_do=False)  # the pull that few steps ask for shows
    rows = layout(n, PHASES_MAX, best.halvings)
    each = bound.steps(best.steps, len(rows))

    @cache
    def lattice_of(clip_bound: float, steps: int) -> SumLattice:
        return calibrate_sampled(budget, facts, p, clip_bound, 1, 2**best.halvings, steps)

    lattices = [lattice_of(c.bound, T) for c, T in zip(clips(rows), each, strict=True)]
    head, noisy = lattices[0], noise(rows, [one.variance / one.clip**2 for one in lattices])
    error, solved = bound.phases(
        rows, noisy, each, best.smoothness / worth + bound.square, best.pull
    )
    stops = accumulate(population for _, population in rows)
    phases = tuple(
        SubgradientPhase(
            start=stop - population,
            stop=stop,
            batch=batch,
            steps=steps,
            step_size=rounded(eta),
            pull=rounded(pull),
            reach=None if L is None or h.kind != "none" else rounded(2 * L / pull),
            lattice=lattice,
        )
        for stop, (batch, population), steps, (pull, eta), lattice in zip(
            stops, rows, each, solved, lattices, strict=True
        )
    )
    return Draft(
        dimension=p.d,
        schedule=LocalizedSubgradientSchedule(
            phases=phases, step_max=rounded(1 / (best.smoothness + h.square))
        ),
        smoothing=smooth.smoothing(best.smoothness),
        lattice=head,
        private_clip=whole.choice,
        release=whole.paid(
            Disjoint(
                parts=tuple(
                    sampled(f.lattice.release(), f.batch, f.stop - f.start, f.steps) for f in phases
                )
            )
        ),
        prediction=Prediction(
            theorem=whole.describe(
                f"LR-HT Theorem {18 if spec.ridge > 0 else 10}, as the sum of its schedule's terms"
            ),
            excess_risk=rounded(error * worth + smooth.bias(best.smoothness)),
            noise_squared=rounded(sum(f.steps * d * f.lattice.variance for f in phases)),
            # LR-HT algorithm 3: sigma = 2 C sqrt(T)/(eps n_1) with eps = sqrt(2 rho)
            paper_noise=(
                rounded(2 * head.clip * sqrt(best.steps / (2 * goal.rho)) / phases[0].stop)
                if goal.delta > 0
                else 0.0
            ),
            our_noise=rounded(sqrt(head.variance) / phases[0].batch),
        ),
        gradients=sum(f.steps * f.batch for f in phases),
    )


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
