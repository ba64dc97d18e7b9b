"""Output perturbation: minimise the objective as anyone would, and release the minimiser plus noise.

**Problem.** min over an l2 ball of radius W, or over all of R^d, of
(1/n) sum l(<w, x_i>, y_i) + (ridge/2) ||w||^2, l convex, rows of enforced norm X2. With ridge > 0 this
is LR-OP algorithm 1; with ridge = 0 it is algorithm 2, which adds (lambda/2) ||w||^2 of its own.

**Schedule.** A solver of T passes (shared/minimiser.py), from 0, then one noisy point, projected on
the ball of the minimisers. By default one of the first three, as shared/solvers.py predicts:

- projected descent (`DESCENT`): full gradients, eta = 2/(beta + 2 lambda), until the start is
  forgotten to a tenth of the noise;
- averaged-passes: passes over rows in one drawn order, the mean of the last ones (shared/averaged.py);
- accelerated: Nesterov's, projected; until its error adds at most a hundredth to the sensitivity;
- sgd: passes in the order of the rows, eta = min(2/(beta + 2 lambda), 1/(lambda n));
- subgradient: full subgradients, steps 2/(lambda (t+1)), weighted mean; for a few rows only.

All but the last need a smooth loss: a corner is replaced by its Moreau envelope, whose bias
L^2/(2 beta) is a quarter of what the noise costs, or more where the solver needs it smoother. With
ridge = 0, lambda balances its bias lambda W^2/2 against the noise: L E||z||, or (beta/2) E||z||^2.

**Sensitivity.** Neighbours replace one record. The released point is a function of all rows whose
l2 distance between neighbours is at most S = exact + accuracy + rounding part of the schedule.

**Proof.** In shared/minimiser.py, from: convexity and smoothness of every record's loss (its slope
is a monotone function of the margin of Lipschitz constant `curvature`, clamped to [-L0, L0], and
rows have norm at most X2), so L = L0 X2, beta = curvature X2^2, and a replaced record changes the
mean gradient by 2L/n. Softmax has the gradient q (x) x, ||q|| <= sqrt(2), and a Hessian of at most
1/2 in its margins; the geometric median's is the unit vector from x to w, shorter within reach of
its envelope's corner, so L = 1: averaged passes take these, other solvers do not. Rounding to the
lattice adds `slack_units`. One Gaussian release of l2 sensitivity S, or for delta = 0 Laplace noise
in every coordinate for l1 sensitivity sqrt(d) S. The projection is post-processing.

**Errata.** Algorithm 2 prints a factor 2 in the exponent (noise too small by sqrt 2) and
sqrt(2 epsilon/lambda) for sqrt(2 alpha/lambda). Its sensitivity 2 (L + lambda R)/(lambda n) is
loose: the regulariser cancels. Theorems 3.1 to 3.4 use solvers whose accuracy holds in expectation
only, which bounds no sensitivity; every bound here holds for each data set. Theorem 2.2b has an
inverse ratio in T."""

from service.errors import PlanRefused
from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Moreau, rounded
from service.planning.lattice import target
from service.planning.loss import SHARP
from service.planning.needs import BALL_OR_ALL, Needs
from service.planning.problem import Problem, problem
from service.planning.shared import minimiser
from service.planning.shared.minimiser import Objective, U
from service.planning.shared.point import (
    MinimiserSchedule,
    Posed,
    noise_per_sensitivity,
    release_point,
    require_scale,
)
from service.planning.shared.solvers import Solvers
from service.planning.spec import Facts, JobSpec

NAME = "output-perturbation"


class Parameters(minimiser.Passes):
    solver: minimiser.Asked | None = minimiser.solver_field()


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal = problem(spec, facts), target(spec, facts)
    require_scale(NAME, p.W, p.X2, spec.ridge)
    solver, steps = parameters.solver, parameters.steps
    k, L = noise_per_sensitivity(goal, p.d), p.G
    strong = spec.ridge or minimiser.ridge_for(L, p.beta, p.W, 1 / p.n, k)
    noise = k * 2 * L / (strong * p.n)

    def pose(within: float, *, block: int | None = None, further: float = 1.0) -> Posed:
        wanted = min(minimiser.smoothed_to(L, noise), max(within, strong))
        return _posed(spec, p, strong, None if p.is_smooth else wanted, block, further)

    price = 0.0 if p.is_smooth else L**2 / 2
    solvers = Solvers(goal, p, pose, noise, k, price, steps)
    if not spec.loss.margin:
        if solver not in (None, "averaged-passes"):
            raise PlanRefused(
                f"the solver {solver} takes losses of one margin, which {spec.loss.kind} is not; use "
                "averaged-passes."
            )
        return solvers.draft("averaged-passes")
    match solver:
        case "sgd":
            posed = pose(2 * strong * p.n, block=1)
            solution = minimiser.sgd(posed.objective, steps, noise)
        case "subgradient":
            posed = _posed(spec, p, strong, None, None, 1.0)
            off = p.lipschitz * minimiser.margin_error(p.d, posed.objective.radius, p.X2)
            solution = minimiser.subgradient(posed.objective, steps, off)
        case _:
            return solvers.draft(solver, minimiser.DESCENT, "averaged-passes", "accelerated")
    return release_point(goal, p, posed, solver, solution)


def _posed(
    spec: JobSpec, p: Problem, strong: float, beta: float | None, block: int | None, further: float
) -> Posed:
    """Corners are rounded off to this beta, if one is given."""
    L, far, smoothing = p.G, further * min(p.W, p.G / strong), None
    X2 = p.X2 if p.rowwise else 1.0  # a record's gradient, over its slope
    curvature, bias = p.smoothness, 0.0 if spec.ridge else strong * p.W**2 / 2
    if beta is not None:
        smoothing, bias = Moreau(smoothness=rounded(beta / X2**2)), bias + L**2 / (2 * beta)
        curvature = _smoothed(spec, smoothing.smoothness)
    bent, reach = curvature if curvature < SHARP else 0.0, far if p.rowwise else far + p.X2
    error = minimiser.mean_error(block or p.n, p.d, reach, X2, bent, p.lipschitz)
    if (
        not spec.loss.margin
    ):  # the slope is a vector, of an exponential or a norm with more roundings
        error += 2 * X2 * p.d * U * p.lipschitz
    objective = Objective(
        rows=p.n,
        columns=p.d,
        lipschitz=L,
        smoothness=curvature * X2**2,
        strong=strong,
        radius=min(p.W, L / strong),
        change=2 * L / p.n,
        error=error,
    )
    return Posed(
        objective,
        slope_bound=p.lipschitz,
        theorem="LR-OP Theorems 0.2 to 0.5: min(L E||z||, (beta/2) E||z||^2), biases and the solver",
        paper_sensitivity=2 * (L + (0 if spec.ridge else strong * p.W)) / (strong * p.n),
        bias=bias,
        smoothing=smoothing,
    )


def _smoothed(spec: JobSpec, smoothness: float) -> float:
    """The curvature of the loss's envelope."""
    if not spec.loss.margin:
        return smoothness
    return spec.loss.scalar().smoothed(smoothness).curvature


ALGORITHM = Algorithm(
    name=NAME,
    title="Output perturbation: the minimiser plus noise",
    paper=papers.LR_OP,
    algorithm="1 (ridge > 0) and 2 (ridge = 0)",
    theorem="0.2 to 0.5 of the supplement",
    problem="convex losses over an l2 ball or all of R^d; bounded rows",
    cost="one noisy point over all rows: the price of a single release",
    needs=Needs(
        sets=BALL_OR_ALL,
        lipschitz=True,
        bounded_rows=True,
        bounded_labels=True,
        ridge_over_all=True,
    ),
    parameters=Parameters,
    schedule=MinimiserSchedule,
    plan=plan,
    examples=(
        *minimiser.by_each_solver({"loss": "logistic", "ridge": 0.01}),
        {"loss": "softmax", "ridge": 0.01},
        {"loss": "geometric_median", "ridge": 0.01},
    ),
)
