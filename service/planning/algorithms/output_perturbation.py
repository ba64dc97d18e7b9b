"""Output perturbation: minimise the objective as anyone would, and release the minimiser plus noise.

**Problem.** min over an l2 ball of radius W, or over all of R^d, of
(1/n) sum l(<w, x_i>, y_i) + (ridge/2) ||w||^2, l convex, rows of enforced norm X2. With ridge > 0 this
is LR-OP algorithm 1; with ridge = 0 it is algorithm 2, which adds (lambda/2) ||w||^2 of its own.

**Schedule.** A solver of T steps (shared/minimiser.py), from 0, then one noisy point,
projected on the ball of the minimisers:

- projected descent (`DESCENT`, the default): full gradients, eta = 2/(beta + 2 lambda); by default
  until the start is forgotten to a tenth of the noise, at most 2000 steps;
- accelerated: Nesterov's, where the ball is not active (W >= L/lambda); until its error adds at most
  a hundredth to the sensitivity;
- sgd: passes in the order of the rows, eta = min(2/(beta + 2 lambda), 1/(lambda n));
- subgradient: full subgradients, steps 2/(lambda (t+1)), weighted mean; for a few rows only.

All but the last need a smooth loss: a corner is replaced by its Moreau envelope, whose bias
L^2/(2 beta) is a quarter of what the noise costs, or more where the steps would not suffice. With
ridge = 0, lambda balances its bias lambda W^2/2 against the noise: L E||z||, or (beta/2) E||z||^2.

**Sensitivity.** Neighbours replace one record. The released point is a function of all rows whose
l2 distance between neighbours is at most S = exact + accuracy + rounding part of the schedule.

**Proof.** In shared/minimiser.py, from: convexity and smoothness of every record's loss (its slope
is a monotone function of the margin of Lipschitz constant `curvature`, clamped to [-L0, L0], and
rows have norm at most X2), so L = L0 X2, beta = curvature X2^2, and a replaced record changes the
mean gradient by 2L/n. Rounding to the lattice adds `slack_units`. One Gaussian release of l2
sensitivity S, or for delta = 0 Laplace noise in every coordinate for l1 sensitivity sqrt(d) S. The
projection is post-processing.

**Errata.** Algorithm 2 prints a factor 2 in the exponent (noise too small by sqrt 2) and
sqrt(2 epsilon/lambda) for sqrt(2 alpha/lambda). Its sensitivity 2 (L + lambda R)/(lambda n) is
loose: the regulariser cancels. Theorems 3.1 to 3.4 use solvers whose accuracy holds in expectation
only, which bounds no sensitivity; every bound here holds for each data set. Theorem 2.2b has an
inverse ratio in T."""

from pydantic import Field

from service.errors import PlanRefused
from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Moreau, rounded
from service.planning.lattice import target
from service.planning.needs import BALL_OR_ALL, Needs
from service.planning.problem import problem
from service.planning.shared import minimiser
from service.planning.shared.minimiser import Objective, Solution
from service.planning.shared.point import (
    Costs,
    MinimiserSchedule,
    noise_per_sensitivity,
    release_point,
    require_scale,
)
from service.planning.spec import Facts, JobSpec

NAME = "output-perturbation"


class Parameters(minimiser.Passes):
    solver: minimiser.Solver = Field(
        default=minimiser.DESCENT, description="How the minimiser is computed."
    )


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal, shape = problem(spec, facts), target(spec, facts), spec.loss.scalar()
    X2 = p.X2
    require_scale(NAME, p.W, X2, spec.ridge)
    n, d, L0, L = p.n, p.d, p.lipschitz, p.G
    solver, steps = parameters.solver, parameters.steps

    k = noise_per_sensitivity(goal, d)
    strong = spec.ridge or minimiser.ridge_for(L, p.beta, p.W, 1 / n, k)
    radius, exact = min(p.W, L / strong), 2 * L / (strong * n)
    noise = k * exact
    if solver == "accelerated" and radius < L / strong:
        raise PlanRefused(
            f"the solver accelerated does not project, and minimisers here may have norm "
            f"{L / strong:.3g}, beyond the set's {radius:.3g}: set ridge to at least "
            f"{L / p.W:.3g}, or use the solver {minimiser.DESCENT}."
        )
    smoothing, bias = None, 0.0
    if not p.is_smooth and solver != "subgradient":
        beta = minimiser.smoothed_to(L, noise)
        if solver == minimiser.DESCENT:
            beta = min(beta, minimiser.reachable(strong, radius, noise, steps))
        elif solver == "sgd":
            beta = min(beta, 2 * strong * n)
        smoothing, bias = Moreau(smoothness=rounded(beta / X2**2)), L**2 / (2 * beta)
        shape = shape.smoothed(smoothing.smoothness)
    if spec.ridge == 0:
        bias += strong * p.W**2 / 2

    reach = minimiser.accelerated_radius(L, strong) if solver == "accelerated" else radius
    curvature = 0.0 if solver == "subgradient" else shape.curvature
    objective = Objective(
        rows=n,
        columns=d,
        lipschitz=L,
        smoothness=shape.curvature * X2**2,
        strong=strong,
        radius=reach,
        change=2 * L / n,
        error=minimiser.mean_error(1 if solver == "sgd" else n, d, reach, X2, curvature, L0),
    )
    solution: Solution
    match solver:
        case minimiser.DESCENT:
            solution = minimiser.descent(objective, steps, noise)
        case "sgd":
            solution = minimiser.sgd(objective, steps, noise)
        case "accelerated":
            solution = minimiser.accelerated(objective, steps)
        case "subgradient":
            off = L0 * minimiser.margin_error(d, radius, X2)
            solution = minimiser.subgradient(objective, steps, off)
    return release_point(
        goal,
        p,
        objective=objective,
        solver=solver,
        solution=solution,
        slope_bound=L0,
        smoothing=smoothing,
        costs=Costs(
            theorem="LR-OP Theorems 0.2 to 0.5: min(L E||z||, (beta/2) E||z||^2) and biases",
            paper_sensitivity=2 * (L + (0 if spec.ridge else strong * p.W)) / (strong * n),
            bias=bias,
        ),
    )


ALGORITHM = Algorithm(
    name=NAME,
    title="Output perturbation: the minimiser plus noise",
    paper=papers.LR_OP,
    algorithm="1 (ridge > 0) and 2 (ridge = 0)",
    theorem="0.2 to 0.5 of the supplement",
    problem="convex losses of one margin over an l2 ball or all of R^d; bounded rows",
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
    examples=({"loss": "logistic", "ridge": 0.01},),
)
