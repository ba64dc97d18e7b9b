"""Tilted output perturbation: between the mean loss and the worst record's, the minimiser plus noise.

**Problem.** min over an l2 ball, or over all of R^d, of
(1/tilt) log((1/n) sum exp(tilt l_i(w))) + (ridge/2) ||w||^2 with l_i(w) = l(<w, x_i>, y_i) convex. As
tilt falls to 0 this is the mean loss, as it grows the largest one. LR-OP, section 4.

**Schedule.** Projected gradient descent, or acceleration, or averaged passes over single records,
as is predicted to err least (shared/solvers.py), then one noisy point. A corner of the loss is
replaced by its Moreau envelope, which changes the objective by as little as every loss.

**Sensitivity.** Neighbours replace one record. Let a <= l_i <= A over the ball and all rows, and C
= exp(tilt (A - a)). A replaced record changes the gradient by at most 2 L C/(C + n - 1), and so the
minimiser by that over the strong convexity.

**Proof.** The gradient is sum p_i grad l_i with p_i proportional to exp(tilt l_i). Let g be the
mean of the other gradients under the others' weights; with the record i the gradient is g + p_i
(grad l_i - g). So an exchange that takes p, h to p', h' changes it by ||p h - p' h' - (p - p') g||
<= L (p + p' + |p - p'|) = 2 L max(p, p'), and no weight exceeds C/(C + n - 1): `change` = 2 L C/(C
+ n - 1), never more than 2L. The Hessian is the p-mean of the losses' plus tilt times the
p-covariance of the gradients, so the objective is convex and (beta + tilt L^2)-smooth, at any w,
and the sensitivities of descent and acceleration in shared/minimiser.py apply. Rounding: a loss
errs by L0 times its margin's error and 16u of its size; a weight by tilt times that, by 4u tilt (A
- a) in the exponents and 8u per rescaling; and weights count twice, above and below the fraction.

**By record.** The tilted mean is the least value, over a level b, of a mean: that of
(exp(tilt (l_i - b)) - 1)/tilt + b, which is convex in w and b together. Let b = low + sigma v, with
all losses and so the best level in [low, low + A - a]: e_i = exp(tilt (l_i - b)) is in [1/C, C]. A
record's gradient in (w, v) is (e_i grad l_i + lambda w, sigma (1 - e_i)), so two of them differ by at
most D, D^2 = max(4 C^2 L^2, (C + 1/C)^2 L^2 + (C - 1/C)^2 sigma^2): the norm is convex in e and e'.
sigma is chosen for the least D/mu. Its Hessian is e_i tilt (grad l_i, -sigma) (grad l_i, -sigma)'
plus e_i times that of l_i plus lambda on w: at most C (tilt (L^2 + sigma^2) + beta) + lambda, and
with f = tilt/C at least the smaller eigenvalue mu of ((lambda + f L^2, -f L sigma), (-f L sigma, f
sigma^2)), which falls with the norm of grad l_i. So shared/averaged.py applies with mu for lambda,
over the ball times an interval: (w, v), and so w, moves by at most D/(mu n). Errors of e_i,
relative to it, are those of weights; that of a step in v is sigma/L times as large as in w.

**Errata.** LR-OP Propositions 4.1 and 4.2 take C/n for the largest weight and measure it by
a subgradient method accurate in expectation; here it is C/(C + n - 1), and no accuracy enters. They
ask that every loss be strongly convex, which would put the regulariser into l and its size into A;
here it stands outside the logarithm."""

from dataclasses import dataclass
from functools import cached_property
from math import exp, hypot, log, sqrt

from pydantic import Field

from service.errors import PlanRefused
from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Moreau, rounded
from service.planning.lattice import target
from service.planning.loss import Scalar
from service.planning.needs import BALL_OR_ALL, Needs
from service.planning.problem import Problem, problem
from service.planning.shared import minimiser
from service.planning.shared.minimiser import Objective, U
from service.planning.shared.point import (
    Level,
    MinimiserSchedule,
    Posed,
    noise_per_sensitivity,
    require_scale,
)
from service.planning.shared.solvers import Solvers
from service.planning.spec import Facts, JobSpec

NAME = "tilted-output-perturbation"
_HEAVY, _EXPONENT_MAX = 2.5, 20.0  # of C: where records' steps differ much, and where too much


class Parameters(minimiser.Passes):
    tilt: float = Field(
        default=1.0, ge=1e-6, le=1e6, description="tau: how much more a larger loss counts."
    )
    solver: minimiser.AskedOfMeans | None = minimiser.solver_field()


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal = problem(spec, facts), target(spec, facts)
    require_scale(NAME, p.W, p.X2, spec.ridge)
    n, L, tilt = p.n, p.G, parameters.tilt
    widest = p.W if spec.ridge == 0 else min(p.W, L / spec.ridge)
    spread = spec.loss.difference(widest * p.X2 * (1 + 1e-9), p.lipschitz)
    share = largest_share(tilt * spread, n)
    k = noise_per_sensitivity(goal, p.d)
    strong = spec.ridge or minimiser.ridge_for(L, p.beta + tilt * L**2, p.W, share, k)
    radius = min(p.W, L / strong)
    noise = k * 2 * L * share / strong
    if noise > radius >= k * 2 * L / (strong * n):
        raise PlanRefused(
            f"at tilt {tilt:g} one record may hold {share:.3g} of all weight, and the noise of norm "
            f"{noise:.3g} would drown minimisers of norm {radius:.3g}; a tilt of at most "
            f"{_useful_tilt(radius * strong / (2 * L * k), n, spread):.3g} would do here."
        )
    tilted = _Tilted(spec, p, tilt, strong, radius, spread, share, noise)
    price = 0.0 if p.is_smooth else tilted.heaviest * L**2 / 2
    solvers = Solvers(goal, p, tilted.pose, noise, k, price, parameters.steps)
    if tilt * spread > _HEAVY:
        return solvers.draft(parameters.solver, minimiser.DESCENT, "accelerated")
    return solvers.draft(parameters.solver, minimiser.DESCENT, "averaged-passes", "accelerated")


@dataclass(frozen=True)
class _Tilted:
    spec: JobSpec
    p: Problem
    tilt: float
    strong: float
    radius: float
    spread: float
    share: float
    noise: float

    @property
    def heaviest(self) -> float:
        """C."""
        return exp(min(_EXPONENT_MAX, self.tilt * self.spread)) * (1 + 2.0**-40)

    def pose(self, within: float, *, block: int | None = None, further: float = 1.0) -> Posed:
        p, L, X2, tilt, shape = self.p, self.p.G, self.p.X2, self.tilt, self.spec.loss.scalar()
        smoothing, bias = None, 0.0 if self.spec.ridge else self.strong * p.W**2 / 2
        if not p.is_smooth:
            curved = tilt * L**2 if block is None else self._curved(self.scale, 0.0)
            room = (within - curved) / (1 if block is None else self.heaviest)
            beta = min(minimiser.smoothed_to(L, self.noise), max(self.strong, room))
            smoothing, bias = Moreau(smoothness=rounded(beta / X2**2)), bias + L**2 / (2 * beta)
            shape = shape.smoothed(smoothing.smoothness)
        objective = Objective(
            rows=p.n,
            columns=p.d,
            lipschitz=L,
            smoothness=shape.curvature * X2**2 + tilt * L**2,
            strong=self.strong,
            radius=self.radius,
            change=2 * L * self.share,
            error=self._error(shape, p.n, further),
        )
        printed = min(1.0, exp(min(700.0, tilt * self.spread)) / p.n)
        return Posed(
            objective,
            slope_bound=p.lipschitz,
            theorem="LR-OP Propositions 4.1 and 4.2: as for the mean loss with n = 1/weight",
            paper_sensitivity=2 * L / self.strong * printed,
            bias=bias,
            smoothing=smoothing,
            joint=None if block is None else self._joint(shape),
            more={"tilt": tilt, "level": None if block is None else self._level(shape)},
        )

    @cached_property
    def scale(self) -> float:
        """sigma: from the largest at which D = 2 C L, as much larger as lowers D/mu."""
        C = self.heaviest
        least = self.p.G * sqrt((3 * C + 1 / C) / (C - 1 / C))
        options = [rounded(least * 2.0 ** (j / 2)) for j in range(24)]
        return min(options, key=lambda scale: self._slopes(scale) / self._strong(scale))

    def _slopes(self, scale: float) -> float:
        """D."""
        C, L = self.heaviest, self.p.G
        return max(2 * C * L, hypot((C + 1 / C) * L, (C - 1 / C) * scale))

    def _strong(self, scale: float) -> float:
        """mu."""
        flat = self.tilt / self.heaviest
        trace = self.strong + flat * (self.p.G**2 + scale**2)
        product = self.strong * flat * scale**2
        return 2 * product / (trace + sqrt(trace**2 - 4 * product)) * (1 - 2.0**-30)

    def _curved(self, scale: float, beta: float) -> float:
        """The largest curvature of a record in (w, v), where its loss has this beta."""
        return self.heaviest * (self.tilt * (self.p.G**2 + scale**2) + beta) + self.strong

    def _level(self, shape: Scalar) -> Level:
        p, scale = self.p, self.scale
        margin = self.radius * p.X2 * (1 + 1e-9)
        low = self.spec.loss.lowest(shape, margin, p.lipschitz)
        return Level(low=low, scale=scale, width=self.spread / scale)

    def _joint(self, shape: Scalar) -> Objective:
        if self.tilt * self.spread > _EXPONENT_MAX:
            raise PlanRefused(
                f"the solver averaged-passes takes a tilt of at most "
                f"{_EXPONENT_MAX / self.spread:.3g} here; use the solver accelerated."
            )
        p, C, L, scale = self.p, self.heaviest, self.p.G, self.scale
        return Objective(
            rows=p.n,
            columns=p.d,
            lipschitz=hypot(C * L, (C - 1) * scale),
            smoothness=self._curved(scale, shape.curvature * p.X2**2),
            strong=self._strong(scale),
            radius=hypot(self.radius, self.spread / scale),
            change=self._slopes(scale) / p.n,
            error=C * (1 + scale / L) * self._error(shape, 1, 1.0),
        )

    def _error(self, shape: Scalar, rows: int, further: float) -> float:
        d, L0, X2, far = self.p.d, self.p.lipschitz, self.p.X2, further * self.radius
        off, deep = minimiser.margin_error(d, far, X2), minimiser.depth(rows, d)
        loss_error = L0 * off + 16 * U * (L0 * (far * X2 + 1) + 1)
        weights = self.tilt * loss_error + 4 * U * self.tilt * further * self.spread + 8 * U * deep
        slope_error = shape.curvature * off + 8 * U * L0
        return 2 * (X2 * slope_error + self.p.G * (2 * weights + 2 * deep * U))


def largest_share(exponent: float, n: int) -> float:
    """C/(C + n - 1) for C = exp(exponent), rounded up."""
    return min(1.0, 1 / (1 + (n - 1) * exp(-exponent)) * (1 + 2.0**-40))


def _useful_tilt(share: float, n: int, spread: float) -> float:
    """The tilt at which the largest share is this, a little below."""
    odds = share * (n - 1) / max(1e-300, 1 - share)
    return 0.99 * log(max(1.0, odds)) / spread


ALGORITHM = Algorithm(
    name=NAME,
    title="Output perturbation of a tilted loss",
    paper=papers.LR_OP,
    algorithm="1 on tilted losses",
    theorem="Propositions 4.1 and 4.2",
    problem="between the mean and the largest of convex losses of one margin; bounded rows",
    cost="one noisy point over all rows: the price of a single release",
    needs=Needs(
        sets=BALL_OR_ALL,
        margins="one",
        lipschitz=True,
        bounded_rows=True,
        bounded_labels=True,
        ridge_over_all=True,
    ),
    parameters=Parameters,
    schedule=MinimiserSchedule,
    plan=plan,
    examples=minimiser.by_each_solver(
        {"loss": "logistic", "ridge": 0.1, "set": {"kind": "l2_ball", "radius": 1.0}}
    ),
    own_objective=True,
)
