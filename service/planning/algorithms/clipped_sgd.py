"""Noisy clipped SGD: one pass, linear time, for smooth strongly convex losses.

**Problem.** min over a convex set of F(w) = E l(w; x, y) + (ridge/2) ||w||^2 with ridge > 0 and l
smooth: mu = ridge, beta = smoothness + ridge, kappa = beta/mu. Columns and labels may be unbounded.

**Schedule.** LR-HT algorithm 5 with the clipped mean oracle (its algorithm 1): T + 1 steps, each on
its own floor(n/(T+1)) rows; w <- P(w - eta_t (g/b + ridge w)); the weighted mean of the iterates,
steps and weights from `sgd_weights` (Stich 2019, Lemma 3, with a = mu/2, g = beta, b = 2). With
epsilon^2 = 2 rho, Theorem 33 has T = 4 kappa log(mu beta D^2/r^2 (n + (2 rho n^2/d)^((k-1)/k))) and
C = r z^(1/k), z = sqrt(2 rho) n/sqrt(d T); here T is at most n/2 - 1 and such that the noise of one
step stays below C, if n allows any; and n/batch, where `batch` is asked for. Moments, and a clip that
is chosen: heavy_tails.py.

**Formal guarantee.** Neighbours replace one record. Step t releases the sum over its batch of integer
contributions, each of norm at most c (`lattice`): replacing a record of that batch moves the sum by
at most 2c, and replacing any other leaves the step's distribution given the past unchanged. Batches
are disjoint ranges of positions, so the run costs one release (and the choice of a private clip,
which reads all rows, before it). The regulariser is never clipped: it is a function of w alone.

**Errata repaired.** The listing runs T + 1 steps on n/T rows each, more rows than there are; here
n/(T+1). Rows left over by the division are not used.
"""

from collections.abc import Iterator
from math import ceil, exp, log, sqrt

from service.errors import PlanRefused
from service.planning.assemble import assemble
from service.planning.heavy_tails import OnePass, clipping, rows_that_drown, tails
from service.planning.lattice import calibrate, target
from service.planning.losses import Problem, problem
from service.planning.plan import ClippedSgdSchedule, Plan, Prediction, rounded
from service.planning.releases import Disjoint
from service.planning.requirements import require_set
from service.planning.spec import Facts, JobSpec

NAME = "clipped-sgd"
SETS = ("l2_ball", "all", "l1_ball", "simplex", "box")
RIDGE_MIN = 1e-9  # below it beta/mu has no meaning, and further down no float
Parameters = OnePass


def plan(spec: JobSpec, facts: Facts, parameters: OnePass) -> Plan:
    require_set(NAME, spec, SETS)
    p, goal = problem(spec, facts), target(spec, facts)
    n, d, rho = p.n, p.d, goal.rho
    if spec.ridge < RIDGE_MIN:
        raise PlanRefused(
            f"{NAME} needs strong convexity: set ridge to at least {RIDGE_MIN} (for example 0.01), "
            "or use gradient-descent, which does not need it."
        )
    require_smooth(NAME, spec, p)
    known = tails(NAME, parameters, p, facts)
    mu, beta = spec.ridge, p.beta + spec.ridge
    D = 2 * min(p.W, known.r / mu)  # no minimiser lies further out
    growth = mu * beta * (D / known.r) ** 2 * (n + (2 * rho * n**2 / d) ** known.power)
    wanted = ceil(4 * beta / mu * log(max(3.0, growth)))
    quiet = quiet_steps(n, d, rho)
    steps, batch = steps_and_batch(parameters, max(2, min(wanted, n // 2, quiet)), n)
    clip = clipping(known, parameters, p, facts, goal, rows_that_drown(goal, n, d, steps))
    C, goal_of_sums = clip.C, clip.goal
    lattice = calibrate(goal_of_sums, facts, p, clip.bound, times=1)
    variance = d * lattice.variance / batch**2 + known.r**2 / batch
    return assemble(
        spec,
        facts,
        goal,
        p,
        algorithm=NAME,
        schedule=ClippedSgdSchedule(steps=steps, batch=batch, strong_convexity=mu, smoothness=beta),
        lattice=lattice,
        private_clip=clip.choice,
        release=clip.paid(Disjoint(parts=(lattice.release(),), copies=steps)),
        prediction=Prediction(
            theorem=clip.describe("LR-HT Proposition 31 without its constants"),
            excess_risk=rounded(
                beta * D**2 * exp(-steps * mu / (4 * beta))
                + variance / (mu * steps)
                + known.bias(C) ** 2 / mu
            ),
            noise_squared=rounded(steps * d * lattice.variance),
            # LR-HT proof of Theorem 33: sigma = 2 C T/(eps n) with eps = sqrt(2 rho)
            paper_noise=rounded(2 * C / (sqrt(2 * rho) * batch)) if goal.delta > 0 else 0.0,
            our_noise=rounded(sqrt(lattice.variance) / batch),
        ),
        gradients=steps * batch,
    )


def require_smooth(name: str, spec: JobSpec, p: Problem) -> None:
    if not p.is_smooth:
        raise PlanRefused(
            f"{name} needs a smooth loss and {spec.loss.kind} has a corner; use smoothed_hinge for "
            "hinge, huber for absolute or pinball, or gradient-descent, which takes it as it is."
        )


def quiet_steps(n: int, d: int, rho: float) -> int:
    """Steps on disjoint batches at which one step's noise is as long as the clip."""
    return ceil(n * sqrt(2 * rho) / (2 * sqrt(d)))


def steps_and_batch(parameters: OnePass, steps: int, n: int) -> tuple[int, int]:
    """How many disjoint batches of how many rows: those asked for, or else so many steps."""
    rows = parameters.batch or 1
    if rows > n:
        raise PlanRefused(
            f"a batch of {rows} rows is more than the dataset's {n}; "
            f"set parameters.batch to at most {n}."
        )
    if parameters.batch is not None:
        steps = min(steps, n // rows)
    steps = parameters.steps or steps
    if steps * rows > n:
        raise PlanRefused(
            f"{steps} steps need at least {steps * rows} rows and the dataset has {n}; "
            f"set parameters.steps to at most {n // rows}."
        )
    return steps, parameters.batch or n // steps


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
