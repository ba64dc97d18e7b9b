"""Objective perturbation: add a random linear term to the objective, and release its minimiser.

**Problem.** min over an l2 ball or all of R^d of (1/n) sum l(<w, x_i>, y_i) + (ridge/2) ||w||^2, l
convex and smooth in its margin, its slope clamped to [-L0, L0] (`clip`; a clamped slope is still
that of a convex loss), rows of enforced norm X2.

**Schedule.** Draw b, with independent normal entries (Laplace ones for delta = 0). Minimise

    sum l(<w, x_i>, y_i) + (Lambda/2) ||w||^2 + <b, w>,    Lambda >= n ridge,

by dual coordinate ascent (shared/dual.py) until the gradient that is left is proved to be at most
`residual`, and release that point plus a second, much smaller noise. b itself never leaves.

**Sensitivity.** Neighbours replace one record. At any w the gradient of the sum moves by at most 2
L0 X2 in l2; and the Jacobian's determinant by a factor within (1 + c)^(+-1), c = curvature
X2^2/Lambda. The computed point is within (residual + half of b's lattice's diagonal)/Lambda of the
minimiser for the unrounded b, whatever the rows: twice that is the second noise's sensitivity.

**Proof.** docs/proofs/perturbed-minimum.md, of the theorem in minima.py: the exact minimiser
costs `PerturbedMinimum`; given it, the point's distance from it depends on the rows (and on b), and
its norm is at most half the sensitivity: a Gaussian (Laplace) release after the first. Their sum is
what leaves.

**Choice of Lambda.** The price has a part that noise buys and C = log(1 + c), which a larger
Lambda makes smaller for more bias. C gets the share f of the price at which 1/(1 - f) + g/(f A) is
least: A is what the price has to give to C, and g, 0.02 epsilon and less in many dimensions, what
more regularisation costs. Beyond some 10^7 rows it is the rounding of their sum that the second
noise has to cover, and Lambda is made larger until that is at most half of the predicted risk. For the
second noise a 64th of the budget is kept: the noise of the first is then less than 1 % larger.

**Errata.** The papers of 2011 and 2012 are about the exact minimiser, which no computer has. The shift
of b depends on the minimiser, and so on b itself: what is known of a normal under a fixed shift does
not apply as it stands.
"""

from dataclasses import replace
from math import inf, isfinite, log, sqrt

from pydantic import Field

from service.errors import PlanRefused
from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Part, Prediction, rounded
from service.planning.lattice import Target, calibrate_point, target
from service.planning.needs import BALL_OR_ALL, Needs
from service.planning.problem import Problem, problem
from service.planning.releases import Sequence
from service.planning.shared import dual
from service.planning.shared.dual import PerturbedMinimumSchedule, Tilted
from service.planning.shared.point import require_scale
from service.planning.spec import Facts, JobSpec

NAME = "objective-perturbation"
CLIP = 0.5  # of a slope without a bound: labels are within [-1, 1]
BEND_MAX = 0.2
_POINT_SHARE = 64  # the second noise has one of so many parts
_MORE = 12  # times a Lambda may be made four times as large
_EASE = 0.1  # how much smaller than the first noise's effect the second's should be
_MARGIN = 10.0  # of models that the predicted risk is compared with, where nothing bounds them


class Parameters(Part):
    clip: float | None = Field(
        default=None,
        ge=1e-9,
        le=1e9,
        description="Bound on one record's gradient norm. Defaults to the loss's Lipschitz constant; "
        "for the squared loss to half the bound on labels, times that on rows.",
    )


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    """With a larger Lambda where what floats leave of the sum of many rows outweighs all else."""
    draft, blurred = _plan(spec, facts, parameters, 1.0)
    for power in range(1, _MORE):
        if blurred < draft.prediction.excess_risk / 2:
            break
        draft, blurred = _plan(spec, facts, parameters, 4.0**power)
    return draft


def _plan(
    spec: JobSpec, facts: Facts, parameters: Parameters, factor: float
) -> tuple[Draft, float]:
    """For `factor` times the Lambda that its price asks for; and what the second noise adds."""
    p, goal = problem(spec, facts), target(spec, facts)
    require_scale(NAME, p.W, p.X2, spec.ridge)
    unbounded = spec.loss.scalar().high == inf and not spec.loss.one_sided
    clip = parameters.clip or (CLIP * p.X2 if unbounded else inf)
    L0 = min(p.lipschitz, clip / p.X2)
    n, d, bent = p.n, p.d, p.smoothness * p.X2**2
    of_point = replace(goal, units=goal.units // _POINT_SHARE)
    of_term = replace(goal, units=goal.units - of_point.units)
    if of_point.units == 0:
        raise PlanRefused(
            "privacy.epsilon is too small for the ledger's smallest unit; use 0.0001."
        )

    strong = factor * max(n * spec.ridge, bent / bend_for(of_term, d))
    term = dual.calibrate_term(of_term, bent / strong, 1 if spec.loss.one_sided else 2)
    spread = sqrt(d) if term.noise == "laplace" else 1.0
    term_step = 2 * L0 * p.X2 * spread / term.sensitivity * (1 + 2.0**-40)
    first = term_step * term.scale * (1.0 if term.noise == "gaussian" else sqrt(2.0))

    o = Tilted(n, d, p.X2, L0, p.smoothness, strong, term_step)
    reach = min(p.W, o.reach(8 * first * sqrt(d)))
    lattice = calibrate_point(of_point, d, 1.0, 0.0)
    each = sqrt(lattice.variance_of(lattice.step(1.0, d)))  # the second noise, per sensitivity
    least = max(
        o.sensitivity(8 * o.error(reach, reach, 8 * first * sqrt(d))), lattice.finest(reach, d)
    )
    wanted = _EASE * first * d / (n * bent + d * strong) / each
    sensitivity = max(rounded(max(wanted, 1.01 * least)), 1.01 * least)
    residual = o.residual(sensitivity)
    lattice = calibrate_point(of_point, d, sensitivity, reach)
    second = each * sensitivity
    prediction, blurred = _prediction(spec, p, goal, o, first, second)
    draft = Draft(
        dimension=d,
        schedule=PerturbedMinimumSchedule(
            steps=o.passes(residual),
            block=o.block,
            strong_convexity=strong,
            curvature=p.smoothness,
            slope_bound=L0,
            radius=p.W if isfinite(p.W) else None,
            term=term,
            term_step=term_step,
            residual=residual,
            sensitivity=sensitivity,
            lattice_step=lattice.step(sensitivity, d),
        ),
        lattice=lattice,
        release=Sequence(parts=(term, lattice.release())),
        prediction=prediction,
        gradients=o.passes(residual) * n,
    )
    return draft, blurred


def bend_for(goal: Target, dimension: int) -> float:
    """c, as said above: before the user's ridge, which may make it smaller."""
    ease = 0.02 * goal.epsilon * min(1.0, 10 / sqrt(dimension))
    if goal.orders:
        room = min(goal.orders) * goal.rho
    else:  # mu, of which C takes 2.5 times itself, or epsilon: noise grows with their squares
        room = goal.epsilon if goal.delta == 0 else sqrt(2 * goal.rho) / 2.5
        ease /= 2
    odds = sqrt(ease / room)
    return rounded(min(BEND_MAX, odds / (1 + odds) * room))


def _prediction(
    spec: JobSpec, p: Problem, goal: Target, o: Tilted, first: float, second: float
) -> tuple[Prediction, float]:
    """The minimiser of the tilted objective has at most ||b||^2/(2 Lambda) more of the regularised sum
    than the best w has; noise on it costs by the slope or by the curvature."""
    W = min(p.W, o.slope * p.X2 / spec.ridge if spec.ridge else _MARGIN / p.X2)
    bent, off = p.smoothness * p.X2**2 + spec.ridge, second * sqrt(p.d)
    tilted = p.d * first**2 / (2 * o.strong * p.n)
    bias = max(0.0, o.strong / p.n - spec.ridge) * W**2 / 2
    blurred = min(o.slope * p.X2 * off, bent / 2 * off**2)
    if goal.delta > 0:
        papers_noise = 2 * sqrt(2 * (log(2) - log(goal.delta)) + goal.epsilon) / goal.epsilon
    else:
        papers_noise = 2 * sqrt(p.d + 1) / goal.epsilon
    prediction = Prediction(
        theorem="a linear term of norm B costs B^2/(2 n Lambda), a ridge Lambda/n - ridge half of "
        "itself times ||w||^2 (to ||w|| = 10/X2 where no bound is known)",
        excess_risk=rounded(tilted + bias + blurred),
        noise_squared=rounded(p.d * first**2),
        paper_noise=rounded(o.slope * p.X2 * papers_noise / p.n),
        our_noise=rounded(first / p.n),
    )
    return prediction, blurred


ALGORITHM = Algorithm(
    name=NAME,
    title="Objective perturbation: the minimiser of a randomly tilted objective",
    paper=papers.OBJECTIVE,
    algorithm="1",
    theorem="2",
    problem="smooth convex losses of one margin over an l2 ball or all of R^d; bounded rows",
    cost="one noisy minimiser over all rows: the price of two releases, the second a small one",
    needs=Needs(
        sets=BALL_OR_ALL,
        margins="one",
        smooth=True,
        bounded_rows=True,
        bounded_labels=True,
        best_over_all=True,
    ),
    parameters=Parameters,
    schedule=PerturbedMinimumSchedule,
    plan=plan,
    examples=({"loss": "logistic", "set": "all"},),
    places=(2, 1),
)
