"""Phased SGD: one pass over the rows, near-linear time, one noisy point per phase.

**Problem.** min over an l2 ball of radius W (D = 2W), or over all of R^d, of E l(<w, x>, y) +
(ridge/2) ||w||^2, with l convex in its margin and rows of enforced norm X2.

**Schedule.** BGM algorithm 2. Phase k = 1..K, K = floor(log2 n), runs T_k = floor(n/2^k) projected
SGD steps of size eta_k = eta/4^k over its own range of rows, in their order, from the last phase's
released point (the first from 0). It releases the mean of the iterates after its steps plus noise,
projected on the ball. A loss less smooth than beta = sqrt(n) L0/(X2 D) is replaced by its Moreau
envelope of that smoothness.

**Sensitivity.** Neighbours replace one record, which is in one phase; later phases are functions of
what this one releases. A phase's computed mean moves by at most S, e the error of a computed step (b
the slope's Lipschitz constant, h = d/8 + 12 the roundings of a sum of d products, u = 2^-53):

    e = 2u ((eta b X2^2 (h + 4) + h/2 + 11) W + 20 eta L0 X2),   S = 2 eta L0 X2 + (T + 2) e.

S is never taken above the ball's diameter nor below what the lattice can resolve (`finest`).

**Proof.** docs/proofs/phased-sgd.md: steps are contractions, since eta_1 (b X2^2 + ridge) <= 2, which
the plan sees to; then rounding.

**Errata.** The ranges z_s..z_{s+T_k} share a row between phases, which would cost two
releases. The oracle of algorithm 1 is approximate and so not non-expansive; as printed it does not
find the proximal point either (no beta/2, the bracket moves to the wrong side); closed forms
replace it. Its noise 4 L0 R eta comes from a proof with 3 L0 R, and the envelope is L0-Lipschitz,
not 2 L0: 2 L0 R eta is right and attained. Theorem 6's beta lacks D, so that eta <= 2/(beta R^2)
fails for large D.
"""

from itertools import accumulate
from math import isfinite, log, sqrt
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from service.errors import PlanRefused
from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Moreau, Part, Prediction, Schedule, rounded
from service.planning.lattice import Target, calibrate_point, target
from service.planning.needs import BALL_OR_ALL, Needs
from service.planning.problem import problem
from service.planning.releases import Disjoint
from service.planning.shared.minimiser import U
from service.planning.shared.point import (
    noise_per_sensitivity,
)
from service.planning.spec import Facts, JobSpec

NAME = "phased-sgd"
_RADIUS_MIN, _NORM_MAX = 1e-12, 1e12  # far from where floats end
_BELOW_TWO = 2 * (1 - 2.0**-20)  # so that no rounding of eta breaks the contraction
_STAND_IN = 10.0
_BLOCK_ENTRIES = 2**24  # between two looks at whether to stop


class SgdPhase(Part):
    """`rows` steps of this size over the rows after the last phase's. One record moves the mean of the
    iterates by at most `sensitivity`; it is released on multiples of `lattice_step`."""

    rows: PositiveInt
    step_size: PositiveFloat
    sensitivity: PositiveFloat
    lattice_step: PositiveFloat


class PhasedSgdSchedule(Schedule):
    """Phases on disjoint rows, each from what the last one released; all within `radius` of 0."""

    kind: Literal["phased_sgd"] = "phased_sgd"
    phases: tuple[SgdPhase, ...] = Field(min_length=1)
    radius: PositiveFloat
    slope_bound: PositiveFloat
    block: PositiveInt  # rows per step of progress

    @property
    def steps(self) -> int:
        return sum(-(-phase.rows // self.block) for phase in self.phases)

    def released_points(self, rows: int) -> tuple[tuple[range, float], ...]:
        stops = list(accumulate(phase.rows for phase in self.phases))
        return tuple(
            (range(stop - phase.rows, stop), phase.sensitivity)
            for phase, stop in zip(self.phases, stops, strict=True)
        )


class Parameters(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: PositiveInt | None = Field(
        default=None,
        description="Over all of R^d: a public bound on the dimensions that the rows span. Only the "
        "step size depends on it. Defaults to the number of features or rows.",
    )


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal, shape = problem(spec, facts), target(spec, facts), spec.loss.scalar()
    X2 = p.X2
    n, d, L0, L = p.n, p.d, p.lipschitz, p.G
    bounded = isfinite(p.W)
    if n < 2:
        raise PlanRefused(
            f"{NAME} needs at least 2 rows and the dataset has 1; use an algorithm without phases."
        )
    if p.W < _RADIUS_MIN or not _RADIUS_MIN <= X2 <= _NORM_MAX:
        raise PlanRefused(
            f"{NAME} needs a set of radius at least {_RADIUS_MIN} and rows whose norm bound is "
            f"within [{_RADIUS_MIN}, {_NORM_MAX}]."
        )
    if bounded and parameters.rank is not None:
        raise PlanRefused(
            "parameters.rank matters over all of R^d only; leave it out or use the set all."
        )

    W = p.W if bounded else _STAND_IN
    G = L + spec.ridge * W
    spread = noise_per_sensitivity(goal, d) ** 2  # v
    felt = spread if bounded else spread * min(n, d, parameters.rank or d) / d
    beta = sqrt(n) * L0 / (X2 * 2 * W)
    b = shape.smoothed(beta).curvature
    smoothing = Moreau(smoothness=beta) if b < shape.curvature else None
    eta = min(
        2 * W / sqrt(n * G**2 / 6 + 16 * felt * L**2), 4 * _BELOW_TWO / (b * X2**2 + spec.ridge)
    )
    radius = W if bounded else eta * L * (n / 7 + 32 / 3 * sqrt(spread))

    lattice = calibrate_point(goal, d, radius, 1.01 * radius)
    finest = lattice.finest(1.01 * radius, d)
    phases = []
    for k in range(1, n.bit_length()):
        T, step = n >> k, eta / 4**k
        S = max(finest, min(2.01 * radius, sensitivity(d, T, step, b, X2, L0, radius)))
        phases.append(
            SgdPhase(rows=T, step_size=step, sensitivity=S, lattice_step=lattice.step(S, d))
        )
    schedule = PhasedSgdSchedule(
        phases=tuple(phases),
        radius=radius,
        slope_bound=L0,
        block=max(1, _BLOCK_ENTRIES // d),
    )
    bias = L0**2 / (2 * beta) if smoothing else 0.0
    first = phases[0]
    return Draft(
        dimension=p.d,
        smoothing=smoothing,
        schedule=schedule,
        lattice=lattice,
        release=Disjoint(parts=(lattice.release(),), copies=len(phases)),
        prediction=Prediction(
            theorem="BGM Theorem " + ("6" if bounded else "7") + ", its proof's sum over phases",
            excess_risk=rounded(_excess(schedule, W, G, felt) + bias),
            noise_squared=rounded(spread * sum(phase.sensitivity**2 for phase in phases)),
            paper_noise=rounded(_paper(goal, L * first.step_size)),
            our_noise=rounded(sqrt(lattice.variance_of(first.lattice_step))),
        ),
        gradients=sum(phase.rows for phase in phases),
    )


def sensitivity(
    d: int, steps: int, eta: float, curvature: float, X2: float, L0: float, radius: float
) -> float:
    """S of the docstring: how far a replaced record moves the mean of a phase's computed iterates."""
    e = step_error(d, eta, curvature, X2, L0, radius)
    return (2 * eta * L0 * X2 + (steps + 2) * e) * (1 + 2.0**-40)


def step_error(d: int, eta: float, curvature: float, X2: float, L0: float, radius: float) -> float:
    """e of the docstring: the error of one computed step, and its share of the mean's."""
    h = d / 8 + 12
    relative = eta * curvature * X2**2 * (h + 4) + h / 2 + 11
    return 2 * U * (relative * radius + 20 * eta * L0 * X2)


def _excess(schedule: PhasedSgdSchedule, W: float, G: float, v: float) -> float:
    """The proof's sum; a phase whose steps are small against its start's noise just stays near it."""
    total, noise = 0.0, W  # the start's root mean square distance
    for phase in schedule.phases:
        path = phase.step_size * phase.rows
        total += min(noise**2 / (2 * path) + phase.step_size * G**2 / 2, G * (noise + path * G))
        noise = sqrt(v) * phase.sensitivity
    return total + G * noise


def _paper(goal: Target, reach: float) -> float:
    """BGM algorithm 2: sigma_k = 4 L0 R eta_k/rho with rho = epsilon/(2 sqrt(log(1/delta)))."""
    return 8 * reach * sqrt(-log(goal.delta)) / goal.epsilon if goal.delta > 0 else 0.0


ALGORITHM = Algorithm(
    name=NAME,
    title="Phased SGD: one pass, a noisy point per phase",
    paper=papers.BGM,
    algorithm="2 on 1",
    theorem="6 and 7",
    problem="population risk of convex losses of one margin, over an l2 ball or all of R^d",
    cost="one noisy point per phase on disjoint rows: the price of a single release",
    needs=Needs(
        sets=BALL_OR_ALL, margins="one", lipschitz=True, bounded_rows=True, bounded_labels=True
    ),
    parameters=Parameters,
    schedule=PhasedSgdSchedule,
    plan=plan,
    examples=({"loss": "hinge"},),
)
