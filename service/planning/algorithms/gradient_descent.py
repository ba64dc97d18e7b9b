"""Noisy full-gradient descent: the baseline that every other algorithm is compared with.

**Problem.** min over ||w||_2 <= W of (1/n) sum l(<w, x_i>, y_i) + (ridge/2) ||w||^2, l convex.

**Schedule.** KLL algorithm 2 with B = N: T times, release the sum of all clipped gradients plus
noise, then w <- P(w - eta (g/n + ridge w)) with eta = 1/(beta X2^2 + ridge). The output is the mean
of the last half of the iterates ("some function of the iterates"). By default T balances the
smooth-descent error beta W^2/T against the noise d T 2 L^2/(rho n^2 beta):
T = beta W n sqrt(rho/(2 d))/L, kept within [10, 500].

**Formal guarantee.** Neighbours replace one record. Step t releases s = sum of integer
contributions, each of norm at most c (`lattice`), so replacing one record moves s by at most 2c; w_t
is a function of earlier releases, so given those both neighbours evaluate the same function. T such
releases on the same rows compose adaptively: the cost is T times one. The regulariser, the step and
the average are post-processing.

**Errata repaired.** KLL Theorem 3.1 takes sensitivity G; under replacement it is 2G.
"""

from math import ceil, log, sqrt

from service.errors import PlanRefused
from service.planning.assemble import assemble
from service.planning.lattice import calibrate, target
from service.planning.losses import Constants, constants
from service.planning.plan import GradientDescentSchedule, Plan, Prediction, rounded
from service.planning.releases import Repeat
from service.planning.spec import Facts, JobSpec, StepsAndClip

NAME = "gradient-descent"
Parameters = StepsAndClip


def plan(spec: JobSpec, facts: Facts, parameters: StepsAndClip) -> Plan:
    W, n, d = spec.set.radius, facts.rows, facts.columns
    c = constants(spec.loss, facts, W)
    clip = clip_bound(parameters, c, facts)
    X2 = facts.l2 or 1.0
    L, beta = clip * X2, c.smoothness * X2**2
    goal = target(spec, facts)
    balanced = ceil(beta * W * n * sqrt(goal.rho / (2 * d)) / L)
    steps = parameters.steps or min(500, max(10, balanced))

    lattice = calibrate(goal, facts, clip, times=steps)
    # KLL Theorem 3.1 with B = N and its constant c2 = 1, per mean
    paper = L * sqrt(steps * -log(goal.delta)) / (goal.epsilon * n) if goal.delta > 0 else 0.0
    return assemble(
        spec,
        facts,
        goal,
        algorithm=NAME,
        schedule=GradientDescentSchedule(
            steps=steps, step_size=1 / (beta + spec.ridge), averaged=(steps + 1) // 2
        ),
        lattice=lattice,
        release=Repeat(release=lattice.release(), times=steps),
        prediction=Prediction(
            theorem="smooth projected descent with noise: beta W^2/T + d sigma^2/beta",
            excess_risk=rounded(beta * W**2 / steps + d * lattice.variance / n**2 / beta),
            noise_squared=rounded(steps * d * lattice.variance),
            paper_noise=rounded(paper),
            our_noise=rounded(lattice.noise_scale / n),
        ),
        gradients=steps * n,
    )


def clip_bound(parameters: StepsAndClip, c: Constants, facts: Facts) -> float:
    """The bound that kernels enforce: on the scalar derivative for rows of bounded norm (which
    leaves a convex loss), on the gradient's norm for rows without one."""
    if facts.l2 is None:
        if parameters.clip is None:
            raise PlanRefused(
                "this dataset has unbounded columns, so a record's gradient has no bound of its "
                "own; set parameters.clip to the gradient norm at which to clip."
            )
        return parameters.clip
    return min(c.lipschitz, (parameters.clip or float("inf")) / facts.l2)
