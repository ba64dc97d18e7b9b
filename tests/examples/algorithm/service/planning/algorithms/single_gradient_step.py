"""One noisy gradient and one step: the least that a noisy sum is good for.

**Problem.** min over a convex set of F(w) = (1/n) sum l(w; x_i, y_i) + (ridge/2) ||w||^2, l convex and
beta-smooth in w. W is the set's l2 radius.

**Schedule.** w_0 is the point of the set nearest to 0. Release g, the sum of all clipped gradients at
w_0 plus noise; then w_1 = P(w_0 - eta (g/n + ridge w_0)) with eta = 1/(2 B), B = beta + ridge.

**Sensitivity.** Neighbours replace one record. The sum has integer contributions, each of norm at most
c (`lattice`), at a point that depends on no row: replacing one record moves it by at most 2c.

**Proof.** One release; the regulariser, the step and the projection are post-processing. As for the
risk: with e the noise of the mean, the descent lemma and 2 <e, v> <= ||e||^2/B + B ||v||^2 give
F(w_1) <= F(w_0) + <g/n + ridge w_0, w_1 - w_0> + B ||w_1 - w_0||^2 + ||e||^2/(2B), and w_1 minimises
the two terms in the middle over the set. Compared with the minimiser there, whose distance to w_0 is
at most 2W, and as e has mean 0: E F(w_1) - min F <= 4 B W^2 + E||e||^2/(2B).
"""

from math import sqrt
from typing import Literal

from pydantic import Field, PositiveFloat

from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Prediction, Schedule, rounded
from service.planning.lattice import calibrate, target
from service.planning.needs import WITH_A_PROJECTION, Needs
from service.planning.problem import problem
from service.planning.shared.clip import clip_bound
from service.planning.spec import Facts, JobSpec, StepsAndClip


class Parameters(StepsAndClip):
    steps: Literal[1] = Field(default=1, description="There is one.")


class SingleGradientStepSchedule(Schedule):
    """w = P(w_0 - eta (g/n + ridge w_0))."""

    kind: Literal["single_gradient_step"] = "single_gradient_step"
    step_size: PositiveFloat = Field(description="eta")

    @property
    def steps(self) -> int:
        return 1


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal = problem(spec, facts), target(spec, facts)
    lattice = calibrate(goal, facts, p, clip_bound(parameters, p, facts), times=1)
    smoothness = p.beta + spec.ridge
    noise_squared = p.d * lattice.variance
    return Draft(
        dimension=p.d,
        schedule=SingleGradientStepSchedule(step_size=1 / (2 * smoothness)),
        lattice=lattice,
        release=lattice.release(),
        prediction=Prediction(
            theorem="one step of projected descent with noise: 4 B W^2 + d sigma^2/(2 B)",
            excess_risk=rounded(
                4 * smoothness * p.W**2 + noise_squared / p.n**2 / (2 * smoothness)
            ),
            noise_squared=rounded(noise_squared),
            paper_noise=0.0,
            our_noise=rounded(sqrt(lattice.variance) / p.n),
        ),
        gradients=p.n,
    )


ALGORITHM = Algorithm(
    name="single-gradient-step",
    title="One noisy gradient step",
    paper="Beck: First-order methods in optimization (2017)",
    algorithm="one step of the projected gradient method",
    theorem="lemma 5.7",
    problem="smooth convex losses over a bounded set with a projection; rows may be unbounded",
    cost="one noisy sum over all rows: the price of a single release",
    needs=Needs(sets=tuple(s for s in WITH_A_PROJECTION if s != "all"), smooth=True),
    parameters=Parameters,
    schedule=SingleGradientStepSchedule,
    plan=plan,
    examples=({"loss": "logistic"},),
)
