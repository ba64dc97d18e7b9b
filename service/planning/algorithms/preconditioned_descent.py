"""Private Newton: see the rows in coordinates that two small releases tell, then take a few steps.

**Problem.** min over a ball, or all of R^d, of F(w) = (1/n) sum l(<w, x_i>, y_i) + (ridge/2)
||w||^2, l convex in the margin. Rows and labels have bounds, and column 0 of the rows is the
constant.

**Schedule.** Four kinds of releases, each of which lets the next see rows in better coordinates:

0. the sum of labels, for the constant: what noise in it costs does not fall with the columns, and is
   most where labels are rare or fill a small part of their range;
1. first moments: the mean c of x, that of y, and how far x and y are spread about them;
2. second moments of (x - c)/C, C a little more than the root mean square, and of y about its mean
   in 2.5 standard deviations: S about the covariance of x, b about that of x and y, v that of y.
   With `s` the spectral norm of their noise, eigenvalues of S below 0.7 s count as noise; what the
   trace has beyond the others is shared out among all. So S = V diag(e) V';
3. T sums of gradients over white rows A (x - c), A = diag(e + m)^-1/2 V', in units of a little more
   than sqrt(d_eff), behind a constant K. d_eff is the trace of A S A'; m is at least 0.3 s, and so
   large that d_eff is not beyond what the noise of the sums can bear: where that is large, rows are
   hardly whitened at all.

In these coordinates the Hessian is about k, the mean curvature of l, times the identity, so w - g/k
is by itself the minimiser plus noise. The mean of such proposals, weighted by their variances, gets
back what T steps divided. It is shrunk towards the constant model by a factor of James and Stein's
kind, or to it where the variance of its margins is no more than noise makes of nothing; the next
gradient is taken there. The intercept is weighed against what the mean of labels says of it, for a
loss of y m as if margins were about normal. So no radius and no step size is needed, and where data
cannot carry a model the constant comes out.

For a loss of the residual k is the share of residuals on its slope, if these are normal, and slopes
are clipped at about 2 standard deviations of the residual, as S, b and v tell it (unless a clip is
set). For a loss of y m, k is l'' averaged over margins as they are spread. A corner is replaced by
its Moreau envelope. T and how wide radii are follow from t = d/(n sqrt(2 rho)): 1.9 t^-0.4, and
0.89 t^-0.05 of what they are at t = 0.1. All these numbers, and shares of the budget, were fitted
by simulation.

A set is kept to by projecting the result; ridge is part of every step.

Before all of this, for a loss that only scales with labels and margins (squared, absolute, pinball),
an interval that most labels lie in is chosen where that is cheap, and labels are clipped to it and
stretched: shared/label_range.py. Plans of before version 8 have no sum of labels.

**Sensitivity.** Neighbours replace one record. Moments: shared/moments.py, which also says why sums
over derived rows have one that rests on `derived` facts alone. Such a sum has integer
contributions, each of norm at most c (`lattice`): replacing one record moves it by at most 2c, at a
point, over rows and with a worth of the clip that are functions of earlier releases.

**Proof.** A choice of a range, if there is one, a sum of labels, two releases of moments and T sums,
each of all rows: costs add. All else is post-processing.

**Errata.** None: the paper regularises second-order steps otherwise, and has no derived rows.
"""

from dataclasses import replace
from math import inf, sqrt
from statistics import NormalDist
from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import (
    Draft,
    LabelRange,
    Moreau,
    Part,
    Prediction,
    Schedule,
    rounded,
)
from service.planning.lattice import MomentLattice, SumLattice, Target, calibrate, target
from service.planning.loss import Scalar
from service.planning.needs import BALL_OR_ALL, Needs
from service.planning.problem import Problem, problem
from service.planning.releases import Repeat, Sequence
from service.planning.shared.clip import clip_bound
from service.planning.shared.label_range import label_range
from service.planning.shared.moments import (
    DERIVED_UNITS,
    Coordinates,
    calibrate_moments,
    derived,
    part_of,
)
from service.planning.spec import Facts, JobSpec, StepsAndClip

NAME = "preconditioned-descent"
SHARE, OF_MEANS = 0.37, 12 / 37  # of the budget, for moments; of that, for first moments
OF_LABELS = 0.4, 0.5, 0.12  # factor, power of t and most: of the budget, for the sum of labels
OF_RANGE, OFF = (0.05, 0.1, 0.2, 0.35), 7  # for a range of labels: label_range.py
STEPS, STEPS_POWER, STEPS_MAX = (
    1.9,
    -0.4,
    {True: 12, False: 16},
)  # for a loss of the residual, of y m
LOOSER = 0.89, 1e-4, -0.05  # radii are larger where there is much data
ROW_RADIUS, WHITE_RADIUS = 1.15, 1.05
EFFECTIVE = 0.35
CONSTANT = 0.3  # K, at least, in bounds of a row
SPREAD = 2.0  # residual standard deviations at which slopes are clipped
CLIPS = (0.01, 1.0)  # labels are within [-1, 1]
WIDTHS = {"residual": 0.05, "margin": 0.1}  # over which a corner is rounded


class ClipRule(Part):
    """Slopes are clipped at `spread` standard deviations of the residual, within [low, high]; the
    lattice is made for a clip of `unit`."""

    spread: PositiveFloat
    low: PositiveFloat
    high: PositiveFloat
    unit: PositiveFloat


class PreconditionedDescentSchedule(Schedule):
    """`steps` sums over white rows behind `constant`. `curvature` is the loss's largest, and `window`
    the length of the interval of residuals, or of y m, in which it is that; none for a curved loss of
    y m, and where that has no end. `tilt` is how far from 0, in deviations, a normal residual's mean
    is where the loss is least."""

    kind: Literal["preconditioned_descent"] = "preconditioned_descent"
    means: MomentLattice
    moments: MomentLattice
    constant: PositiveInt
    steps: PositiveInt
    residual: bool  # whether the loss is one of the residual; else of y m
    inflation: PositiveFloat  # of the variance of proposals
    growth: float  # later proposals weigh more, by this power of their number
    longest: PositiveFloat = 6.0  # of margins' deviation and of the intercept, for a loss of y m
    curvature: PositiveFloat
    window: PositiveFloat | None
    tilt: float
    coordinates: Coordinates
    clip: ClipRule | None
    labels: LabelRange | None = None
    label_sum: MomentLattice | None = Field(default=None, exclude_if=lambda value: value is None)

    def label_range(self) -> LabelRange | None:
        return self.labels

    def moment_lattices(self) -> tuple[MomentLattice, ...]:
        own = () if self.label_sum is None else (self.label_sum,)
        return *own, self.means, self.moments

    def derived_constant(self) -> int:
        return self.constant

    def settles_clip(self) -> bool:
        return self.clip is not None


class Parameters(StepsAndClip):
    clip: float | None = Field(
        default=None,
        ge=1e-9,
        le=1e9,
        description="Bound on one record's gradient norm. By default the loss's Lipschitz constant; "
        "of a loss of the residual, what the released moments say of residuals.",
    )
    share: float = Field(default=SHARE, ge=0.01, le=0.9, description="Of the budget, for moments.")


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal, loss = problem(spec, facts), target(spec, facts), spec.loss.scalar()
    residual, smoothing = loss.argument == "residual", None
    if not p.is_smooth:
        smoothing = Moreau(smoothness=1 / WIDTHS["residual" if residual else "margin"])
        loss = loss.smoothed(smoothing.smoothness)
    t = p.d / (p.n * sqrt(2 * goal.rho))
    steps = parameters.steps or min(max(round(STEPS * t**STEPS_POWER), 1), STEPS_MAX[residual])
    labels = _labels(spec, facts, parameters, goal)
    left = goal if labels is None else replace(goal, units=goal.units - goal.cost(labels.release()))
    label_sum = calibrate_moments(NAME, part_of(left, _share_of_labels(t)), facts, 0)
    left = replace(left, units=left.units - left.cost(label_sum.release()))
    rules = _rules(left, p, t, parameters.share, residual)
    constant = _constant(rules, p)
    means, moments, left = _moments(left, parameters.share, facts)
    rule, clip = _clip(parameters, p, facts, loss, SPREAD * _looser(t))
    lattice = calibrate(left, derived(facts, constant), p, clip, times=steps)
    schedule = PreconditionedDescentSchedule(
        means=means,
        moments=moments,
        constant=constant,
        steps=steps,
        residual=residual,
        curvature=loss.curvature,
        window=loss.jump / loss.curvature if loss.straight and loss.jump < inf else None,
        inflation=1.0 if residual else 1.1,
        growth=0.0 if residual else 1.5,
        tilt=rounded(_tilt(loss)) if residual else 0.0,
        coordinates=rules,
        clip=rule,
        labels=labels,
        label_sum=label_sum,
    )
    sums = Repeat(release=lattice.release(), times=steps)
    chosen = () if labels is None else (labels.release(),)
    return Draft(
        dimension=p.d,
        smoothing=smoothing,
        schedule=schedule,
        lattice=lattice,
        release=Sequence(
            parts=(*chosen, label_sum.release(), means.release(), moments.release(), sums)
        ),
        prediction=_prediction(p, schedule, lattice),
        gradients=(steps + 2) * p.n,
    )


def _share_of_labels(t: float) -> float:
    """Of the budget, for the sum of labels: what noise in the constant costs does not fall with d."""
    factor, power, most = OF_LABELS
    return float(min(factor * t**power, most))


def _labels(spec: JobSpec, facts: Facts, parameters: Parameters, goal: Target) -> LabelRange | None:
    """How a range of labels is chosen, for a loss that only scales with them and the margin."""
    scalar = spec.loss.scalar()
    scales = scalar.argument == "residual" and scalar.straight
    scales = scales and (scalar.jump == inf or not spec.loss.smooth)
    if not scales or facts.label != "numeric" or parameters.clip is not None or spec.ridge > 0:
        return None
    return label_range(goal, facts.rows, OF_RANGE, OFF)


def _moments(
    goal: Target, share: float, facts: Facts
) -> tuple[MomentLattice, MomentLattice, Target]:
    """The lattices of first and second moments, and what is left to pay for sums."""

    of_means, of_moments = (part_of(goal, share * of) for of in (OF_MEANS, 1 - OF_MEANS))
    means = calibrate_moments(NAME, of_means, facts, 1)
    moments = calibrate_moments(NAME, of_moments, facts, 2)
    paid = Sequence(parts=(means.release(), moments.release()))
    return means, moments, replace(goal, units=goal.units - goal.cost(paid))


def _tilt(loss: Scalar) -> float:
    """Of a slope between two bounds, as if it were a step: a quantile."""
    if loss.jump == inf:
        return 0.0
    return NormalDist().inv_cdf(-loss.low / loss.jump)


def _looser(t: float) -> float:
    factor, least, power = LOOSER
    return float(factor * max(t, least) ** power)


def _rules(goal: Target, p: Problem, t: float, share: float, residual: bool) -> Coordinates:
    slope = 2 * SPREAD if residual else 8.0  # 2 over l'' at 0, for a loss of y m
    effective = EFFECTIVE * sqrt((1 - share) * 2 * goal.rho) * p.n / slope
    return Coordinates(
        row_radius=rounded(ROW_RADIUS * _looser(t)),
        effective=rounded(effective),
        white_radius=rounded(WHITE_RADIUS * _looser(t)),
    )


def _constant(rules: Coordinates, p: Problem) -> int:
    """K: a weight of 1 for the constant, where white rows are few in dimensions; at least CONSTANT."""
    most = min(float(p.d), rules.effective)
    radius = rules.white_radius * sqrt(most + min(1.0, most))
    return round(DERIVED_UNITS * min(1.0, max(CONSTANT, 1 / radius)))


def _clip(
    parameters: Parameters, p: Problem, facts: Facts, loss: Scalar, spread: float
) -> tuple[ClipRule | None, float]:
    """How the run settles the clip, if it does, and the bound on slopes that the lattice is for."""
    if parameters.clip is not None or loss.argument != "residual":
        return None, clip_bound(parameters, p, facts)
    high = min(CLIPS[1], max(-loss.low, loss.high))
    low = min(CLIPS[0], high)
    return ClipRule(spread=rounded(spread), low=low, high=high, unit=high), high


def _prediction(
    p: Problem, schedule: PreconditionedDescentSchedule, lattice: SumLattice
) -> Prediction:
    """Of whitened rows of norm sqrt(d + 1): d times the variance of the mean of all proposals."""
    of_mean = lattice.variance * (p.d + 1) / p.n**2 / schedule.steps
    return Prediction(
        theorem="none: the variance of the mean of Newton steps, where they have converged",
        excess_risk=rounded(p.d * of_mean / (2 * schedule.curvature)),
        noise_squared=rounded(schedule.steps * p.d * lattice.variance),
        paper_noise=0.0,
        our_noise=rounded(sqrt(lattice.variance) / p.n),
    )


ALGORITHM = Algorithm(
    name=NAME,
    title="Newton steps on privately whitened rows",
    paper=papers.NEWTON,
    algorithm="none",
    theorem="none",
    problem="convex losses of one margin on bounded rows and labels, over a ball or all of R^d",
    cost="first and second moments once, and a few noisy sums over all rows; costs add",
    needs=Needs(
        sets=BALL_OR_ALL, margins="one", bounded_rows=True, bounded_labels=True, best_over_all=True
    ),
    parameters=Parameters,
    schedule=PreconditionedDescentSchedule,
    plan=plan,
    examples=({"loss": "logistic", "set": "all"}, {"loss": "hinge", "set": "all"}),
    places=(1, 2),
)
