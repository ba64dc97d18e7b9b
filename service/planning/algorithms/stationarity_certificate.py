"""Stationarity certificate: how near a released model is to a stationary point, measured on the data.

**Problem.** For w, the model that another job on the same dataset has published: the mean gradient
of F(w) = (1/n) sum l(w; x_i, y_i) + (ridge/2) ||w||^2, and from it the Frank-Wolfe gap max over v
in the set of <grad F, w - v> and the length of the projected gradient (w - P(w - step grad
F))/step. With `radius` > 0 the gradient is the mean over `points` points of the ball of that radius
about w: an element of the Goldstein subdifferential, so its length bounds from above how far w is
from Goldstein stationarity.

**Schedule.** One release: the sum over all rows (and points) of clipped gradients, plus noise.
Points are drawn uniformly from the ball without looking at data. Gap and lengths are functions of
the release; noise z in the mean moves the lengths by at most ||z|| and the gap by at most ||z||
times the largest ||w - v||, and the certificate states a bound on ||z|| that holds with probability
0.95: for Gaussian noise s (sqrt(d) + sqrt(2 log 20)) by concentration, for Laplace noise of scale
b, whose squares have variance 20 b^4, b sqrt(2 d + 20 sqrt(d)) by Chebyshev's inequality. Noise
makes lengths too large on average, so a small number is trustworthy and a large one may be noise.
Gradients are clipped as the lattice says: beyond the loss's own bound that changes nothing.

**Sensitivity.** Neighbours replace one record. w is public: it was released and paid for
before, and the Plan names it by its digest. A record adds at each of K points an integer vector of
norm at most c (`lattice`), K c together, so replacing it moves the sum by at most 2 K c. One
release over all rows.
"""

from math import sqrt

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from service.errors import PlanRefused
from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.certificate import CONFIDENCE, CertificateSchedule, noise_norm
from service.planning.draft import Draft, Prediction, rounded
from service.planning.lattice import calibrate, target
from service.planning.needs import ANY_SET, Needs
from service.planning.problem import problem
from service.planning.shared.clip import clip_bound
from service.planning.spec import Facts, JobSpec, StepsAndClip

NAME = "stationarity-certificate"
POINTS_BY_DEFAULT = 16
_SUM_MAX = 2**62  # of a sum's entries


class Parameters(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    clip: float | None = Field(
        default=None,
        ge=1e-9,
        le=1e9,
        description="Bound on one record's gradient norm. Defaults to the loss's Lipschitz constant; "
        "required where a column is unbounded.",
    )
    radius: float = Field(
        default=0.0, ge=0, le=1e9, description="Of the ball about w, for Goldstein stationarity."
    )
    points: PositiveInt | None = Field(
        default=None, le=64, description="Of that ball; each is a pass over the rows."
    )
    step: float = Field(default=1.0, ge=1e-9, le=1e9, description="Of the projected gradient.")


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal = problem(spec, facts), target(spec, facts)
    n, d = p.n, p.d
    if parameters.points is not None and parameters.radius == 0:
        raise PlanRefused(
            "parameters.points are drawn from a ball about the model; set parameters.radius above 0 "
            "too, or leave points out."
        )
    if spec.set.listed is not None and len(spec.set.listed[0]) != d:
        raise PlanRefused(
            f"every vertex needs {d} entries, one per weight of the model with the intercept first, "
            f"and these have {len(spec.set.listed[0])}."
        )
    points = parameters.points or (POINTS_BY_DEFAULT if parameters.radius > 0 else 1)
    bound = clip_bound(StepsAndClip(clip=parameters.clip), p, facts)
    lattice = calibrate(goal, facts, p, bound, times=1, points=points)
    entry = lattice.contribution_units
    if lattice.derivative_units is not None:
        entry = lattice.derivative_units * (facts.linf_units or 0)
    if n * points * entry > _SUM_MAX:
        raise PlanRefused(
            f"{n} rows at {points} points each may leave 64-bit sums; "
            f"set parameters.points to at most {_SUM_MAX // (n * entry)}."
        )
    noise = noise_norm(lattice, d) / (n * points)
    return Draft(
        dimension=p.d,
        schedule=CertificateSchedule(points=points, radius=parameters.radius, step=parameters.step),
        lattice=lattice,
        release=lattice.release(),
        prediction=Prediction(
            theorem=f"what noise alone adds to the gradient's length, with probability {CONFIDENCE}",
            excess_risk=rounded(noise),
            noise_squared=rounded(d * lattice.variance),
            paper_noise=0.0,
            our_noise=rounded(sqrt(lattice.variance) / (n * points)),
        ),
        gradients=points * n,
    )


ALGORITHM = Algorithm(
    name=NAME,
    title="A certificate: how stationary a released model is on the data",
    paper=papers.BGM,
    algorithm="the measures of sections 4 and 5",
    theorem="definition 18",
    problem="the gradient, Frank-Wolfe gap and Goldstein stationarity of a job's model",
    cost="one noisy sum over all rows: the price of a single release",
    needs=Needs(sets=ANY_SET, margins="some", convexity="any", released_model=True),
    parameters=Parameters,
    schedule=CertificateSchedule,
    plan=plan,
    examples=({"loss": "logistic", "of": "job_of_the_model"},),
    own_objective=True,
)
