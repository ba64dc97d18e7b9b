"""Adversarial output perturbation: weights that stand up to moved rows, the minimiser plus noise.

**Problem.** min over an l2 ball, or over all of R^d, of (1/n) sum max over v of
l(<w, x_i + v>, y_i) + (ridge/2) ||w||^2. LR-OP algorithm 3, for linear models:

- bounded (default): ||v|| <= r in l2 or in linf. With N the dual norm of w (l2, or l1), the worst v
  moves the margin by r N(w) whichever way hurts: the loss is psi(a_i(w) + r N(w)) with a_i = -y m for
  the losses that fall with y m (logistic, hinge, smoothed hinge) and a_i = |m - y| for those that are
  even in the residual (squared, absolute, Huber), psi convex and non-decreasing. |t| is smoothed to
  sqrt(t^2 + c^2), in N for l2 under the root of the whole square and for l1 in every coordinate; c is
  public and so small that its bias is a fraction of the noise's cost, where the steps allow it.
- penalised: any v, at a cost of (penalty/2) ||v||^2: the paper's smooth saddle problem, which is
  concave in v if penalty > curvature W^2; here penalty >= 4 curvature W^2.

**Schedule.** The inner maximum is solved per record, in closed form or by iteration to machine
precision, so what is left is a minimiser of a mean of records' losses: by projected descent,
averaged SGD or, for the bounded adversary, acceleration (shared/solvers.py); then one noisy point.

**Sensitivity.** Neighbours replace one record. Every record's loss is convex in w, L-Lipschitz
and beta-smooth as below. A replaced record changes the mean gradient, at any w, by at most C/n, and
the sensitivities in shared/minimiser.py and shared/averaged.py apply:

    bounded     C = L0 max(2 X2, X2 + r K)
    penalised   C = 2 L0 X2 if 2 L0 V <= X2, else L0 X2 + L0^2 V + X2^2/(4 V), for V = W/penalty

**Proof.** *Bounded.* A convex non-decreasing function of a convex function is convex. Let K bound
the gradient of N: 1 for l2, sqrt(d) for l1. The inner function t = a_i + r N has a gradient of norm
at most X2 + r K and a Hessian of at most X2^2/c (even losses) + r/c. With psi' <= L0 and psi'' <=
curvature, L = L0 (X2 + r K) and beta = curvature (X2 + r K)^2 + L0 (X2^2/c + r/c). The absolute
loss has psi'' = 0. The gradient is p (u + r g): p = psi'(t) in [0, L0], u the gradient of a_i, no
longer than X2, and g that of N, no longer than K and *the same for every record*. Two records' differ
by p u - p' u' + r (p - p') g. Its norm is convex in (p, p'), so largest at a corner of [0, L0]^2: 0 at
(0, 0), at most 2 L0 X2 at (L0, L0), where the adversaries' moves cancel, and L0 (X2 + r K) at the
others. Smoothing psi or N changes neither p's range nor that g is common.

*Penalised.* A maximum of convex functions is convex. The worst v is s w/penalty with s = l'(z) at z
= m + (||w||^2/penalty) l'(z), a contraction in z by at most 1/4, so 40 iterations reach the fixed
point to 4^-40. The gradient is s (x + s w/penalty) (envelope theorem), so L = L0 X for X = X2 + L0
W/penalty. The Hessian is H_ww + H_wv (-H_vv)^-1 H_vw, with -H_vv >= penalty - curvature W^2,
||H_wv|| <= curvature X W + L0 and ||H_ww|| <= curvature X^2: beta = curvature X^2 + (curvature X W +
L0)^2/(penalty - curvature W^2). A slope with corners is a limit of smooth ones with the same
constants, and bounds on gradients and their differences pass to the limit. Two records' gradients
differ by s x - s' x' + (s^2 - s'^2) w/penalty, where ||w||/penalty <= V: for |s| = a >= b = |s'| by at
most (a + b) X2 + (a^2 - b^2) V, which grows with a, so a = L0, and with b up to X2/(2 V).
Slopes grow with z: for residual losses L0 = curvature (W X2 + 1 + L0/(4 curvature)), clamped there.

Rounding as in minimiser.py, with the error of t, or of z (4/3 of its equation's), in place of a
margin's, and X2 + r K, or X2 + 2 L0 W/penalty, in place of X2.

**Errata.** Algorithm 3 prints 2 alpha/mu for 2 sqrt(2 alpha/mu) and takes a saddle point
that is accurate in expectation; here no accuracy enters. Its Assumption 2, concave in v, fails for
every bounded adversary of a convex loss; the closed form needs no such assumption."""

from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Literal

from pydantic import Field

from service.errors import PlanRefused
from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Moreau, rounded
from service.planning.lattice import target
from service.planning.needs import BALL_OR_ALL, Needs
from service.planning.problem import Problem, problem
from service.planning.shared import minimiser
from service.planning.shared.minimiser import Objective, U
from service.planning.shared.point import (
    BoundedAdversary,
    MinimiserSchedule,
    PenalisedAdversary,
    Posed,
    noise_per_sensitivity,
    require_scale,
)
from service.planning.shared.solvers import Solvers
from service.planning.spec import Facts, JobSpec

NAME = "adversarial-output-perturbation"
ITERATIONS = 40


class Parameters(minimiser.Passes):
    adversary: Literal["bounded", "penalised"] = Field(
        default="bounded", description="Whether moving a row is bounded or costs."
    )
    perturbation: float = Field(
        default=0.1, ge=1e-6, le=1e6, description="Bounded: how far a row may be moved."
    )
    norm: Literal["l2", "linf"] = Field(default="l2", description="Bounded: in which norm.")
    penalty: float | None = Field(
        default=None,
        gt=0,
        le=1e30,
        description="Penalised: a move v costs (penalty/2)||v||^2. Defaults to the least allowed.",
    )
    solver: minimiser.AskedOfMeans | None = minimiser.solver_field()


@dataclass(frozen=True)
class _Robust:
    """The data part under an adversary: its corners rounded off so that its beta is `within`."""

    adversary: BoundedAdversary | PenalisedAdversary
    slope_bound: float  # L0
    lipschitz: float  # L
    change: float  # C
    smoothness: float  # beta
    strong: float
    error: float
    smoothing: Moreau | None = None
    bias: float = 0.0
    price: float = 0.0  # bias of corners times beta


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal = problem(spec, facts), target(spec, facts)
    require_scale(NAME, p.W, p.X2, spec.ridge)
    k, bounded = noise_per_sensitivity(goal, p.d), parameters.adversary == "bounded"
    make = _bounded if bounded else _penalised

    def pose(within: float, *, block: int | None = None, further: float = 1.0) -> Posed:
        robust = make(spec, k, p, parameters, _Solver(within, block or p.n, further))
        L, strong = robust.lipschitz, robust.strong
        return Posed(
            Objective(
                rows=p.n,
                columns=p.d,
                lipschitz=L,
                smoothness=robust.smoothness,
                strong=strong,
                radius=min(p.W, L / strong),
                change=robust.change / p.n,
                error=robust.error,
            ),
            slope_bound=robust.slope_bound,
            theorem="LR-OP Theorem 4.1: as for the mean loss with the adversary's constants",
            paper_sensitivity=2 * L / (strong * p.n),
            bias=robust.bias + (0 if spec.ridge else strong * p.W**2 / 2),
            smoothing=robust.smoothing,
            more={"adversary": robust.adversary},
        )

    robust = make(spec, k, p, parameters, _Solver(0.0, p.n, 1.0))
    noise = k * robust.change / (robust.strong * p.n)
    solvers = Solvers(goal, p, pose, noise, k, robust.price, parameters.steps)
    if bounded:
        return solvers.draft(parameters.solver, minimiser.DESCENT, "averaged-passes", "accelerated")
    if parameters.solver == "accelerated":
        raise PlanRefused(
            "the solver accelerated looks beyond the set, where a penalised adversary's problem need "
            "not be concave; use the solver averaged-passes."
        )
    return solvers.draft(parameters.solver, minimiser.DESCENT, "averaged-passes")


@dataclass(frozen=True)
class _Solver:
    """What a solver asks of an objective: see `Pose`."""

    within: float
    block: int
    further: float


def _bounded(
    spec: JobSpec, k: float, p: Problem, parameters: Parameters, solver: _Solver
) -> _Robust:
    n, d, X2, r, shape = p.n, p.d, p.X2, parameters.perturbation, spec.loss.scalar()
    even = spec.loss.even
    if not even and not spec.loss.one_sided:
        raise PlanRefused(
            f"{NAME} takes losses that fall with the margin or are even in the residual, and "
            f"{spec.loss.kind} is neither; use absolute or huber."
        )
    K = sqrt(d) if parameters.norm == "linf" else 1.0
    corner_max = 1 / (1 + r * K**2)  # then all corners together add at most 1 to a residual
    L0 = p.lipschitz
    if even:
        L0 = shape.high if isfinite(shape.high) else p.W * X2 + 1 + r * K * p.W + 1
    size = X2 + r * K
    L, change = L0 * size, L0 * max(2 * X2, size)
    sharp = not p.is_smooth and not even  # the hinge; the absolute loss has no corner left
    curvature = 0.0 if even and not p.is_smooth else shape.curvature
    strong = spec.ridge or minimiser.ridge_for(
        L,
        (1e30 if sharp else curvature) * size**2 + L0 * r / corner_max,
        p.W,
        change / (2 * L * n),
        k,
    )
    radius = min(p.W, L / strong)
    noise = k * change / (strong * n)
    within = max(strong, solver.within / 2, solver.within - (0.0 if sharp else curvature * size**2))
    if sharp:  # half of it is the corner's
        within /= 2
    smoothing, bias = None, 0.0
    if sharp:
        beta = min(minimiser.smoothed_to(L, noise), within)
        smoothing, bias = Moreau(smoothness=rounded(beta / size**2)), L0 * L0 * size**2 / (2 * beta)
        curvature = shape.smoothed(smoothing.smoothness).curvature
    bend = L0 * (r + (X2**2 if even else 0.0))  # over the corner: its part of beta
    weight = L0 * (r * K**2 + (1 if even else 0))  # times the corner: its bias
    corner = rounded(min(corner_max, max(L * noise / 4 / weight, bend / within)) * (1 - 1e-5))
    bias += weight * corner

    far = solver.further * radius
    t_error = (d + 10) * U * (far * X2 + r * (K * far + K**2 * corner) + 1)
    slope = (curvature + (L0 / corner if even else 0.0)) * t_error + 16 * U * L0
    deep = minimiser.depth(solver.block, d) + d + 10
    return _Robust(
        adversary=BoundedAdversary(norm=parameters.norm, reach=r, corner=corner),
        slope_bound=L0,
        lipschitz=L,
        change=change,
        smoothness=curvature * size**2 + bend / corner,
        strong=strong,
        error=2 * size * (slope + deep * U * L0),
        smoothing=smoothing,
        bias=bias,
        price=2 * (weight * bend + (L0 * L0 * size**2 / 2 if sharp else 0.0)),
    )


def _penalised(
    spec: JobSpec, k: float, p: Problem, parameters: Parameters, solver: _Solver
) -> _Robust:
    d, X2, W, shape = p.d, p.X2, p.W, spec.loss.scalar()
    c = shape.curvature
    if not p.is_smooth:
        raise PlanRefused(
            f"a penalised adversary needs a smooth loss and {spec.loss.kind} has a corner; use "
            "smoothed_hinge for hinge, huber for absolute or pinball, or the adversary bounded."
        )
    if not isfinite(W):
        raise PlanRefused("a penalised adversary needs a bound on w; use the set l2_ball.")
    least = 4 * c * W**2
    penalty = parameters.penalty or least
    if penalty < least:
        raise PlanRefused(
            f"with a penalty of {penalty:g} the adversary's problem need not be concave; set "
            f"parameters.penalty to at least {least * (1 + 1e-6):.7g}, or use a smaller set."
        )
    L0 = p.lipschitz
    if shape.argument == "residual":
        L0 = min(max(-shape.low, shape.high), 4 / 3 * c * (W * X2 + 1))
    V = W / penalty
    X = X2 + L0 * V
    L, change = L0 * X, 2 * L0 * X2
    if 2 * L0 * V > X2:
        change = L0 * X + X2**2 / (4 * V)
    beta = c * X**2 + (c * X * W + L0) ** 2 / (penalty - c * W**2)
    strong = spec.ridge or minimiser.ridge_for(L, beta, W, change / (2 * L * p.n), k)
    z_error = 4 / 3 * (minimiser.margin_error(d, W, X2) + 24 * U * (W * X2 + L0 * W**2 / penalty))
    slope = c * (z_error + 4.0**-ITERATIONS * L0 * W**2 / penalty) + 8 * U * L0
    deep = minimiser.depth(solver.block, d) + d + 10
    return _Robust(
        adversary=PenalisedAdversary(penalty=penalty),
        slope_bound=L0,
        lipschitz=L,
        change=change,
        smoothness=beta,
        strong=strong,
        error=2 * (X + L0 * V) * (slope + deep * U * L0),
    )


ALGORITHM = Algorithm(
    name=NAME,
    title="Output perturbation under an adversary who moves rows",
    paper=papers.LR_OP,
    algorithm="3",
    theorem="4.1",
    problem="convex losses of one margin, each at its worst over moves of its bounded row",
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
    examples=minimiser.by_each_solver({"loss": "logistic", "ridge": 0.01}),
    own_objective=True,
)
