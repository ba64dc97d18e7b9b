"""Private Newton: second moments once, and then a few noisy gradients that they precondition.

**Problem.** min over a ball, or over all of R^d, of F(w) = (1/n) sum l(<w, x_i>, y_i) + (ridge/2) ||w||^2,
l convex in the margin. Rows and labels have bounds.

**Schedule.** Release once the noisy sum M of z z', z the row with its label (shared/moments.py), for
`share` of the budget. Of M/n take S, about the mean of x x'; b, about that of x y; v, that of y^2. With
c about the mean curvature of l in its margin and m the `damping`,

    H = c (S + m I) + ridge I

is about the Hessian wherever S is known. m is (1 + DAMPING) times the noise's spectral norm, which keeps
H positive definite, plus what the noise of gradients calls for; should H not be so, m is doubled. The first
point is that of the quadratic model: (S + m I)^-1 b for a loss of the residual, and the step from 0 by
its gradient there, -s b with s the loss's slope at 0, for a loss of y m. Then T times release g, the sum of
all clipped gradients at w plus noise, and w <- P(w - eta H^-1 (g/n + ridge w)). The output is the mean of
the last iterates. If H is the Hessian and eta is 1, each of these is by itself the minimiser plus
H^-1 noise, so the mean gets back what T steps divided. P is the plain projection: onto a ball it is not
that in the norm of H, so the fixed point at the boundary is a point nearby.

A loss with a corner is replaced by its Moreau envelope. For a loss of the residual r the run settles

- c from the variance V of r, released with S: v - 2 w.b + w.S w at the first point w, plus what its
  noise may be. For normal r, the share of r on the slope between the loss's two bounds;
- the clip of slopes, unless one is set: SPREAD sqrt(V), within CLIPS and the loss's own bound.

T is 4 for the squared loss, whose first point is near, and 12 otherwise.

**Sensitivity.** Neighbours replace one record. M: `moments`, by shared/moments.py. A sum has integer
contributions, each of norm at most c (`lattice`): replacing one record moves it by at most 2c, at a
point that is a function of earlier releases, and whatever the clip is worth, which is one too.

**Proof.** One release of M and T sums, each of all rows: costs add. All else is post-processing.

**Errata.** None: the method is folklore; the sensitivity of M is often given as 2 R^2 and is sqrt(2) R^2.
"""

from dataclasses import replace
from math import sqrt
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from service.errors import PlanRefused
from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Moreau, Part, Prediction, Schedule, rounded
from service.planning.lattice import MomentLattice, SumLattice, Target, calibrate, target
from service.planning.loss import Scalar
from service.planning.needs import BALL_OR_ALL, Needs
from service.planning.problem import Problem, problem
from service.planning.releases import Repeat, Sequence
from service.planning.shared.clip import clip_bound
from service.planning.shared.moments import calibrate_moments, spectral_noise
from service.planning.spec import Facts, JobSpec, StepsAndClip

NAME = "preconditioned-descent"
SHARE = 0.2  # of the budget, for second moments
STEPS_QUADRATIC, STEPS = 4, 12
BURN_IN = 0.5  # of the iterates, not in the mean; none if the loss is a parabola
DAMPING = 1.0
REACH = 10.0  # how long w is expected to be, where the noise of gradients is weighed against it
SPREAD = 3.0  # residual standard deviations at which slopes are clipped
CLIPS = (1e-3, 2.0)  # labels are within [-1, 1]
WIDTHS = {"residual": 0.05, "margin": 0.5}  # over which a corner is rounded


class ClipRule(Part):
    """Slopes are clipped at `spread` standard deviations of the residual, from `low` to `high` times the
    lattice's clip, which is a slope of `unit`."""

    spread: PositiveFloat
    low: PositiveFloat
    high: PositiveFloat
    unit: PositiveFloat


class PreconditionedDescentSchedule(Schedule):
    """w <- P(w - step_size H^-1 (g/n + ridge w)), H = curvature (S + damping I) + ridge I; the mean of the
    last `averaged` iterates. Where a loss is of the residual, `curvature` is that of a parabola and the run
    takes the share of residuals that lie within `window` for it."""

    kind: Literal["preconditioned_descent"] = "preconditioned_descent"
    moments: MomentLattice
    steps: PositiveInt
    averaged: PositiveInt
    step_size: PositiveFloat
    damping: PositiveFloat
    curvature: PositiveFloat
    window: PositiveFloat | None = None
    residual: bool
    clip: ClipRule | None = None

    def settles_clip(self) -> bool:
        return self.clip is not None


class Parameters(StepsAndClip):
    clip: float | None = Field(
        default=None,
        ge=1e-9,
        le=1e9,
        description="Bound on one record's gradient norm. By default the loss's Lipschitz constant, or, "
        "of a loss of the residual, what the released moments say of residuals.",
    )
    share: float = Field(
        default=SHARE, ge=0.01, le=0.9, description="Of the budget, for the second moments."
    )


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal, loss = problem(spec, facts), target(spec, facts), spec.loss.scalar()
    residual, smoothing = loss.argument == "residual", None
    if not p.is_smooth:
        smoothing = Moreau(smoothness=1 / WIDTHS["residual" if residual else "margin"])
        loss = loss.smoothed(smoothing.smoothness)
    parabola = residual and loss.jump == float("inf")
    steps = parameters.steps or (STEPS_QUADRATIC if parabola else STEPS)

    moments = calibrate_moments(NAME, _shared(goal, parameters.share), facts)
    left = replace(goal, units=goal.units - goal.cost(moments.release()))
    rule, clip = _clip(parameters, p, facts, loss)
    lattice = calibrate(left, facts, p, clip, times=steps)
    schedule = PreconditionedDescentSchedule(
        moments=moments,
        steps=steps,
        averaged=steps if parabola else steps - int(BURN_IN * steps),
        step_size=1.0,
        damping=rounded(_damping(moments, lattice, p, steps)),
        curvature=loss.curvature,
        window=None if parabola or not residual else loss.jump / loss.curvature,
        residual=residual,
        clip=rule,
    )
    return Draft(
        dimension=p.d,
        smoothing=smoothing,
        schedule=schedule,
        lattice=lattice,
        release=Sequence(parts=(moments.release(), Repeat(release=lattice.release(), times=steps))),
        prediction=_prediction(p, loss, schedule, lattice),
        gradients=(steps + 1) * p.n,
    )


def _shared(goal: Target, share: float) -> Target:
    part = replace(goal, units=int(goal.units * share))
    if part.units == 0:
        raise PlanRefused(
            "privacy.epsilon is too small to pay for second moments and for sums; ask a larger epsilon."
        )
    return part


def _clip(
    parameters: Parameters, p: Problem, facts: Facts, loss: Scalar
) -> tuple[ClipRule | None, float]:
    """How the run settles the clip, if it does, and the bound on slopes that the lattice is made for."""
    if parameters.clip is not None or loss.argument != "residual":
        return None, clip_bound(parameters, p, facts)
    unit = min(1.0, loss.jump / 2)
    high = min(CLIPS[1], max(-loss.low, loss.high)) / unit
    return ClipRule(spread=SPREAD, low=min(CLIPS[0] / unit, high), high=high, unit=unit), unit


def _damping(moments: MomentLattice, lattice: SumLattice, p: Problem, steps: int) -> float:
    """Beyond it S is known; and so is a gradient, to a step of REACH."""
    of_gradients = sqrt(lattice.variance * p.d / steps) / p.n / REACH
    return (1 + DAMPING) * spectral_noise(moments, p.d, p.n) + of_gradients


def _prediction(
    p: Problem, loss: Scalar, schedule: PreconditionedDescentSchedule, lattice: SumLattice
) -> Prediction:
    """As if all directions were alike: the Hessian is beta/d, and w no longer than REACH."""
    curvature = loss.curvature * p.X2**2 / p.d + schedule.damping
    reach = min(p.W, REACH)
    noise = p.d * lattice.variance / p.n**2 / schedule.averaged
    return Prediction(
        theorem="none: the variance of the mean of Newton steps, and the damping's bias",
        excess_risk=rounded(noise / (2 * curvature) + schedule.damping * reach**2 / 2),
        noise_squared=rounded(schedule.steps * p.d * lattice.variance),
        paper_noise=0.0,
        our_noise=rounded(sqrt(lattice.variance) / p.n),
    )


ALGORITHM = Algorithm(
    name=NAME,
    title="Noisy gradient descent, preconditioned by noisy second moments",
    paper=papers.NEWTON,
    algorithm="none",
    theorem="none",
    problem="convex losses of one margin on bounded rows and labels, over a ball or all of R^d",
    cost="the second moments once, and a few noisy sums over all rows; costs add",
    needs=Needs(sets=BALL_OR_ALL, margins="one", bounded_rows=True, bounded_labels=True),
    parameters=Parameters,
    schedule=PreconditionedDescentSchedule,
    plan=plan,
    examples=({"loss": "logistic", "set": "all"}, {"loss": "hinge", "set": "all"}),
)
