"""Private Frank-Wolfe: every step moves towards one vertex of the set, chosen by its score.

**Problem.** min over a polytope of (1/n) sum l(<w, x_i>, y_i) + (ridge/2) ||w||^2, l convex in its
margin, rows of enforced norms. The polytope is an l1 ball (2d vertices), a simplex (d), or given by
its J vertices. Its dimension enters the error by log J alone.

**Schedule.** BGM algorithm 3: T times choose a vertex v by its score <v, sum of gradients> with the
exponential mechanism and set w <- (1 - m) w + m v, m = min(1, 3/(t + 2)). The first w is the centre
(or the mean of the vertices); the output is the last w. Let A bound |<v - v', x>| over vertices and
rows. The descent leaves at most 2.25 beta A^2/T, the choices cost 2 L0 A log(J)/(n e), e = sqrt(8
rho/T) (for delta = 0 it is epsilon/T), and smoothing to beta costs L0^2/(2 beta), so beta = L0
sqrt(T/4.5)/A (a loss that is smoother stays itself). Then T = 3 n sqrt(rho)/log J or, for delta =
0, (sqrt(4.5) n epsilon/(4 log J))^(2/3): Theorem 9 in shape. For a smooth loss T^(3/2) = 4.5 beta A
n sqrt(2 rho)/(L0 log J), or T^2 = 1.125 beta A n epsilon/(L0 log J), if that is less. By default T
is at most 10,000: a step is a pass over all rows, and the error falls like its square root.

For rows drawn from a population, what they show of it adds at most 2 L0 M sqrt(2 log(J)/n), M the
largest |<v, x>|: losses of w differ from their mean by at most twice their Rademacher average, L0
times that of margins (contraction), which over a polytope is that of its vertices (Massart).

**Sensitivity.** Neighbours replace one record. A step's scores are functions of s = sum of q
x, |q| <= Q integers, x stored rows, and of w, itself a function of earlier choices. Replacing a
record moves s by q x - q' x', hence the difference of two vertices' scores, <v - v', s>, by at most
2 Q max |<v - v', x>| over *pairs* of vertices and rows:

- l1 ball, in units of its radius: v - v' has entries 2, or 1 and 1 up to sign, so |<v - v', x>| is
  at most 2 |x_j| or |x_j| + |x_k|, both at most 2 min(linf, l2). Scores are +s_j and -s_j, exact
  integers.
- simplex: |x_j - x_k| <= min(2 linf, sqrt(2) l2). Scores are s_j, exact integers.
- vertices: the least of ||v - v'||_1 linf and ||v - v'||_2 l2, the largest over pairs; where there
  are too many pairs, twice the largest distance from the middle. Vertices count relative to the
  first one, in a power of two that makes Q times this R between 2^30 and 2^31. A score is a sum of
  d products in float64, in any order, of factors off by u = 2^-53 each, rounded to an integer: it
  errs by at most 1/2 + 2 (d + 1) u n R. Four such errors, two scores in two worlds, add 2 + 8 (d +
  1) u n R.

**Proof.** The ridge adds n ridge <v, w> in the same units, rounded by itself: a public integer, the
same for neighbours. A choice with probability proportional to exp(-score/scale) has a privacy loss
of range e = sensitivity/scale, so it is e-DP and costs e^2/8; T choices on the same rows compose
adaptively.

**Errata.** Algorithm 3 takes the scores' sensitivity from a vertex norm of at most D and
the gradient's from one record: here vertex *pairs*, and the 2 of replacement. Its approximate
oracle is replaced by closed forms. Report-noisy-max costs e^2/2, the exponential mechanism e^2/8.
It loops T times but outputs w_T, wasting a choice; here the last one counts.
"""

from math import ceil, inf, log, sqrt
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Moreau, Prediction, Schedule, rounded
from service.planning.lattice import Target, calibrate_choice, target
from service.planning.needs import WITH_VERTICES, Needs
from service.planning.problem import problem
from service.planning.releases import Repeat
from service.planning.shared import vertices
from service.planning.spec import Facts, JobSpec

NAME = "frank-wolfe"
_STEPS_BY_DEFAULT = 10_000


class FrankWolfeSchedule(Schedule):
    """w <- (1 - m) w + m v with m = min(1, 3/(t + 2)), v a vertex chosen by its score: the integer
    nearest to <v, sum of gradients> in units of `unit` times the lattice's step."""

    kind: Literal["frank_wolfe"] = "frank_wolfe"
    steps: PositiveInt
    unit: PositiveFloat

    def vertex_unit(self) -> float:
        return self.unit


class Parameters(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: PositiveInt | None = Field(
        default=None, le=10**6, description="Iterations; by default from the theorem's formula."
    )


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    shape = spec.loss.scalar()
    p, goal = problem(spec, facts), target(spec, facts)
    n, feature_step = p.n, facts.feature_step or 0.0
    s = vertices.scores(spec, facts)
    J, A, L0 = s.candidates, s.pairs * s.unit * feature_step, shape.lipschitz(s.margin)

    steps = parameters.steps or _default_steps(goal, n, log(J), L0, p.smoothness * A)
    beta = L0 * sqrt(steps / 4.5) / A if A > 0 else inf
    b = shape.smoothed(beta).curvature
    smoothing = Moreau(smoothness=beta) if b < shape.curvature else None
    lattice = calibrate_choice(goal, facts, L0, s.sensitivity, steps)
    release = Repeat(release=lattice.release(), times=steps)
    noise = s.unit * lattice.step * lattice.scale / n  # of the race, in <v, mean gradient>
    return Draft(
        dimension=p.d,
        smoothing=smoothing,
        schedule=FrankWolfeSchedule(steps=steps, unit=s.unit),
        lattice=lattice,
        release=release,
        prediction=Prediction(
            theorem="BGM Theorem 9, its proof's sum and the rows' own, for a population",
            excess_risk=rounded(
                2.25 * (b * A + spec.ridge * p.W) * A / steps
                + noise * log(J)
                + (L0**2 / (2 * beta) if smoothing else 0.0)
                + 2 * L0 * s.margin * sqrt(2 * log(J) / n)
            ),
            noise_squared=0.0,
            paper_noise=rounded(_paper(goal, n, L0 * A, steps)),
            our_noise=rounded(noise),
        ),
        gradients=steps * n,
    )


def _default_steps(goal: Target, n: int, choices: float, L0: float, curved: float) -> int:
    """`choices` is log J and `curved` the loss's smoothness times A."""
    if goal.delta > 0:
        sharp = 3 * n * sqrt(goal.rho) / choices
        smooth = (4.5 * curved * n * sqrt(2 * goal.rho) / (L0 * choices)) ** (2 / 3)
    else:
        sharp = (sqrt(4.5) * n * goal.epsilon / (4 * choices)) ** (2 / 3)
        smooth = sqrt(1.125 * curved * n * goal.epsilon / (L0 * choices))
    return max(1, ceil(float(min(sharp, smooth, n, _STEPS_BY_DEFAULT))))


def _paper(goal: Target, n: int, reach: float, steps: int) -> float:
    """BGM algorithm 3: Laplace noise of scale 3 L0 R D sqrt(8 T log(1/delta))/(n epsilon)."""
    if goal.delta == 0:
        return 0.0
    return 3 * reach * sqrt(8 * steps * -log(goal.delta)) / (n * goal.epsilon)


ALGORITHM = Algorithm(
    name=NAME,
    title="Frank-Wolfe with privately chosen vertices",
    paper=papers.BGM,
    algorithm="3 on 1",
    theorem="9",
    problem="convex losses of one margin over an l1 ball, a simplex or a polytope",
    cost="one choice of a vertex over all rows per step; costs add",
    needs=Needs(sets=WITH_VERTICES, margins="one", bounded_rows=True, bounded_labels=True),
    parameters=Parameters,
    schedule=FrankWolfeSchedule,
    plan=plan,
    examples=({"loss": "logistic", "set": {"kind": "l1_ball", "radius": 10.0}},),
)
