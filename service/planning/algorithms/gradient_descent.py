"""Noisy full-gradient descent: the baseline that every other algorithm is compared with.

**Problem.** min over a convex set of (1/n) sum l(w; x_i, y_i) + (ridge/2) ||w||^2, l convex. W is the
set's l2 radius (10 stands in for it in the schedule where the set is all of R^d).

**Schedule.** KLL algorithm 2 with B = N: T times, release the sum of all clipped gradients plus
noise, then w <- P(w - eta (g/n + ridge w)) with eta = 1/(beta + ridge). The output is the mean of the
last half of the iterates ("some function of the iterates"). By default T balances the smooth-descent
error beta W^2/T against the noise d T 2 L^2/(rho n^2 beta): T = beta W n sqrt(rho/(2 d))/L, kept
within [10, 500]. A loss with a corner is replaced by its Moreau envelope, whose bias L^2/(2 beta)
equals the descent error at beta = L sqrt(T/2)/W; then T = rho n^2/(2 d), kept within the same bounds.

A network is taken too, as noisy gradient descent is elsewhere, with no bound on its risk: its
gradients are clipped (by default to the slope's bound), T is 200 and a step is of size 10 over the
clip unless set, and the output is the mean of the last tenth of the iterates.

**Formal guarantee.** Neighbours replace one record. Step t releases s = sum of integer
contributions, each of norm at most c (`lattice`), so replacing one record moves s by at most 2c; w_t
is a function of earlier releases, so given those both neighbours evaluate the same function. T such
releases on the same rows compose adaptively: the cost is T times one. The regulariser, the step and
the average are post-processing.

**Errata repaired.** KLL Theorem 3.1 takes sensitivity G; under replacement it is 2G.
"""

from dataclasses import replace
from math import ceil, inf, isfinite, log, sqrt

from pydantic import Field

from service.errors import PlanRefused
from service.planning.assemble import assemble
from service.planning.lattice import Target, calibrate, target
from service.planning.losses import Problem, problem, require_set
from service.planning.plan import GradientDescentSchedule, Moreau, Plan, Prediction, rounded
from service.planning.releases import Repeat
from service.planning.spec import Facts, JobSpec, StepsAndClip

NAME = "gradient-descent"
SETS = ("l2_ball", "all", "l1_ball", "simplex", "box")
SMOOTHNESS_MAX = 1e12  # beyond it an envelope is the loss itself, to a float's eye
NETWORK_STEPS = 200
NETWORK_STEP = 10.0  # how far a gradient at its clip moves the weights


class Parameters(StepsAndClip):
    step_size: float | None = Field(
        default=None, ge=1e-9, le=1e9, description="Of every step; by default from the smoothness."
    )


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Plan:
    require_set(NAME, spec, SETS)
    p, goal = problem(spec, facts), target(spec, facts)
    if spec.model.kind != "linear":
        return _network(spec, facts, parameters, p, goal)
    n, d, W = p.n, p.d, reach(p, facts)
    clip = clip_bound(parameters, p, facts)
    L = clip * (p.X2 if p.rowwise else 1.0)
    if p.is_smooth:
        balanced = p.beta * W * n * sqrt(goal.rho / (2 * d)) / L
    else:
        balanced = goal.rho * n**2 / (2 * d)
    steps = parameters.steps or min(500, max(10, ceil(balanced)))
    smoothing, bias = None, 0.0
    if not p.is_smooth:
        smoothness = p.lipschitz * sqrt(steps / 2) / (W * (p.X2 if p.rowwise else 1.0))
        smoothness = min(smoothness, SMOOTHNESS_MAX)
        p, smoothing = replace(p, smoothness=smoothness), Moreau(smoothness=smoothness)
        bias = p.lipschitz**2 / (2 * smoothness)

    lattice = calibrate(goal, facts, p, clip, times=steps)
    step_size = parameters.step_size or 1 / (p.beta + spec.ridge)
    _require_steps_that_stay(spec, step_size)
    return assemble(
        spec,
        facts,
        goal,
        p,
        algorithm=NAME,
        smoothing=smoothing,
        schedule=GradientDescentSchedule(
            steps=steps,
            step_size=step_size,
            averaged=(steps + 1) // 2,
        ),
        lattice=lattice,
        release=Repeat(release=lattice.release(), times=steps),
        prediction=Prediction(
            theorem="smooth projected descent with noise: beta W^2/T + d sigma^2/beta",
            excess_risk=rounded(
                p.beta * W**2 / steps + d * lattice.variance / n**2 / p.beta + bias
            ),
            noise_squared=rounded(steps * d * lattice.variance),
            paper_noise=_paper_noise(L, steps, goal, n),
            our_noise=rounded(sqrt(lattice.variance) / n),
        ),
        gradients=steps * n,
    )


def _network(spec: JobSpec, facts: Facts, parameters: Parameters, p: Problem, goal: Target) -> Plan:
    n, clip = p.n, clip_bound(parameters, p, facts)
    L, steps = clip * p.X2, parameters.steps or NETWORK_STEPS
    lattice = calibrate(goal, facts, p, clip, times=steps)
    step_size = parameters.step_size or NETWORK_STEP / L
    _require_steps_that_stay(spec, step_size)
    noise = sqrt(lattice.variance) / n
    return assemble(
        spec,
        facts,
        goal,
        p,
        algorithm=NAME,
        schedule=GradientDescentSchedule(
            steps=steps,
            step_size=step_size,
            averaged=(steps + 9) // 10,
        ),
        lattice=lattice,
        release=Repeat(release=lattice.release(), times=steps),
        prediction=Prediction(
            theorem="none for a network; the bound on a gradient, and its noise",
            excess_risk=rounded(L + sqrt(p.d) * noise),
            noise_squared=rounded(steps * p.d * lattice.variance),
            paper_noise=_paper_noise(L, steps, goal, n),
            our_noise=rounded(noise),
        ),
        gradients=steps * n,
    )


def _require_steps_that_stay(spec: JobSpec, step_size: float) -> None:
    """A step takes w to (1 - step_size ridge) w and something bounded: where that factor is below -1
    and no set holds w, it would soon leave the floats, and the job would fail after its charge."""
    if spec.set.kind == "all" and step_size * spec.ridge > 2:
        raise PlanRefused(
            f"over all of R^d steps of {step_size:g} diverge with ridge {spec.ridge:g}; set "
            f"parameters.step_size to {1 / spec.ridge:g}, or use the set l2_ball."
        )


def _paper_noise(L: float, steps: int, goal: Target, n: int) -> float:
    """KLL Theorem 3.1 with B = N and its constant c2 = 1, per mean."""
    if goal.delta == 0:
        return 0.0
    return rounded(L * sqrt(steps * -log(goal.delta)) / (goal.epsilon * n))


def reach(p: Problem, facts: Facts) -> float:
    """How far from 0 the schedule expects the minimiser: within the set, or 10; and a centre of the
    rows is no longer than they are."""
    if not p.rowwise and facts.l2 is not None:
        return min(p.W, facts.l2)
    return p.W if isfinite(p.W) else 10.0


def clip_bound(parameters: StepsAndClip, p: Problem, facts: Facts) -> float:
    """The bound that kernels enforce: on the derivative for rows of bounded norm (which leaves a
    convex loss), on the gradient's norm for rows without one."""
    if not p.rowwise:
        return min(p.lipschitz, parameters.clip or inf)
    bound = parameters.clip if facts.l2 is None else (parameters.clip or inf) / facts.l2
    if facts.l2 is None and bound is None:
        raise PlanRefused(
            "this dataset has unbounded columns, so a record's gradient has no bound of its "
            "own; set parameters.clip to the gradient norm at which to clip."
        )
    if facts.l2 is not None:
        bound = min(p.lipschitz, bound or inf)
    if bound is None or not isfinite(bound):
        raise PlanRefused(
            "this loss's gradient has no bound of its own over all of R^d, or with a label that has "
            "none; set parameters.clip to the gradient norm at which to clip, or use the set l2_ball "
            "and a label with bounds."
        )
    return bound
