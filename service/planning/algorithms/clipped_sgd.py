"""Noisy clipped SGD: one pass, linear time, for smooth strongly convex losses.

**Problem.** min over a convex set of F(w) = E l(w; x, y) + (ridge/2) ||w||^2 with ridge > 0 and l
smooth: mu = ridge, beta = smoothness + ridge, kappa = beta/mu. Rows may have unbounded columns.

**Schedule.** LR-HT algorithm 5 with the clipped mean oracle (its algorithm 1): T + 1 steps, each on
its own floor(n/(T+1)) rows; w <- P(w - eta_t (g/b + ridge w)); the weighted mean of the iterates,
steps and weights from `sgd_weights` (Stich 2019, Lemma 3, with a = mu/2, g = beta, b = 2). By default
T = 4 kappa log(mu beta D^2/C^2 (n + 2 rho n^2/d)) (Theorem 33 as k grows), at most n/2 - 1 and such
that the noise of one step stays below C, if n allows any.

**Formal guarantee.** Neighbours replace one record. Step t releases the sum over its batch of integer
contributions, each of norm at most c (`lattice`): replacing a record of that batch moves the sum by
at most 2c, and replacing any other leaves the step's distribution given the past unchanged. Batches
are disjoint ranges of positions, so the run costs one release. The regulariser is never clipped: it
is a function of w alone.

**Errata repaired.** The listing runs T + 1 steps on n/T rows each, more rows than there are; here
n/(T+1). Rows left over by the division are not used.
"""

from collections.abc import Iterator
from math import ceil, log, sqrt

from service.errors import PlanRefused
from service.planning.algorithms.gradient_descent import clip_bound
from service.planning.assemble import assemble
from service.planning.lattice import calibrate, target
from service.planning.losses import problem, require_set
from service.planning.plan import ClippedSgdSchedule, Plan, Prediction, rounded
from service.planning.releases import Disjoint
from service.planning.spec import Facts, JobSpec, StepsAndClip

NAME = "clipped-sgd"
SETS = ("l2_ball", "all", "l1_ball", "simplex", "box")
RIDGE_MIN = 1e-9  # below it beta/mu has no meaning, and further down no float
Parameters = StepsAndClip


def plan(spec: JobSpec, facts: Facts, parameters: StepsAndClip) -> Plan:
    require_set(NAME, spec, SETS)
    p, goal = problem(spec, facts), target(spec, facts)
    n, d, rho = p.n, p.d, goal.rho
    if spec.ridge < RIDGE_MIN:
        raise PlanRefused(
            f"{NAME} needs strong convexity: set ridge to at least {RIDGE_MIN} (for example 0.01), "
            "or use gradient-descent, which does not need it."
        )
    if not p.is_smooth:
        raise PlanRefused(
            f"{NAME} needs a smooth loss and {spec.loss.kind} has a corner; use smoothed_hinge for "
            "hinge, huber for absolute or pinball, or gradient-descent, which takes it as it is."
        )
    clip = clip_bound(parameters, p, facts)
    mu, beta = spec.ridge, p.beta + spec.ridge
    C = clip * (p.X2 if p.rowwise else 1.0)
    W = min(p.W, C / mu)  # no minimiser lies further out
    steps = parameters.steps or _default_steps(n, d, rho, mu, beta, 2 * W, C)
    if steps > n:
        raise PlanRefused(
            f"{steps} steps need at least {steps} rows and the dataset has {n}; "
            f"set parameters.steps to at most {n}."
        )
    batch = n // steps
    lattice = calibrate(goal, facts, p, clip, times=1)
    return assemble(
        spec,
        facts,
        goal,
        p,
        algorithm=NAME,
        schedule=ClippedSgdSchedule(steps=steps, batch=batch, strong_convexity=mu, smoothness=beta),
        lattice=lattice,
        release=Disjoint(parts=(lattice.release(),), copies=steps),
        prediction=Prediction(
            theorem="LR-HT Theorem 30 for bounded gradients (k to infinity)",
            excess_risk=rounded(C**2 / mu * (1 / n + d * steps / (2 * rho * n**2))),
            noise_squared=rounded(steps * d * lattice.variance),
            # LR-HT proof of Theorem 33: sigma = 2 C T/(eps n) with eps = sqrt(2 rho)
            paper_noise=rounded(2 * C / (sqrt(2 * rho) * batch)) if goal.delta > 0 else 0.0,
            our_noise=rounded(sqrt(lattice.variance) / batch),
        ),
        gradients=steps * batch,
    )


def _default_steps(n: int, d: int, rho: float, mu: float, beta: float, D: float, C: float) -> int:
    wanted = 4 * beta / mu * log(max(3.0, mu * beta * (D / C) ** 2 * (n + 2 * rho * n**2 / d)))
    quiet = n * sqrt(2 * rho) / (2 * sqrt(d))  # steps at which one step's noise equals C
    return max(2, min(ceil(wanted), n // 2, ceil(quiet)))


def sgd_weights(schedule: ClippedSgdSchedule) -> Iterator[tuple[float, float]]:
    """(step size, averaging weight) of each step: a constant first half that forgets the start,
    then steps that fall like 1/t with weights that grow like t^2 (Stich 2019, Lemma 3)."""
    a, g, T = schedule.strong_convexity / 2, schedule.smoothness, schedule.steps
    if g / a >= T:
        for t in range(T):
            yield 1 / g, (1 - a / g) ** -(t + 1)
        return
    half, kappa = -(-T // 2), 2 * g / a
    for t in range(T):
        if t < half:
            yield 1 / g, 0.0
        else:
            yield 2 / (a * (kappa + t - half)), (kappa + t - half) ** 2
