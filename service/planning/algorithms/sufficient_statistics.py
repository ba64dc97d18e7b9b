"""Least squares from private first and second moments, and nothing else.

**Problem.** min over a ball, or all of R^d, of F(w) = (1/n) sum (<w, x_i> - y_i)^2/2 +
(ridge/2) ||w||^2. Rows and labels have bounds, and column 0 of the rows is the constant.

**Schedule.** First moments say where rows and labels are and how far they spread; second moments are
taken in that frame, S about the covariance of x and b about that with y. Eigenvalues of S that are
noise are levelled, as for preconditioned descent, and w = (S + m I)^-1 b, m a share of the noise's
spectral norm plus the ridge. w is shrunk towards the constant model by a factor of James and Stein's
kind, or to it where b is no longer than noise makes of nothing. Rows are read twice.

**Sensitivity.** Neighbours replace one record. Both releases: shared/moments.py.

**Proof.** Two releases of all rows: costs add. All else is post-processing.

**Errata.** Wang takes the sensitivity of the second moments to be X2^2 for neighbours that add or
remove a record; under replacement it is sqrt(2) X2^2. His ridge needs a third release, of the smallest
eigenvalue, which S has already.
"""

from dataclasses import replace
from math import sqrt
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Prediction, Schedule, rounded
from service.planning.lattice import MomentLattice, target
from service.planning.needs import BALL_OR_ALL, Needs
from service.planning.problem import problem
from service.planning.releases import Sequence
from service.planning.shared.moments import Coordinates, calibrate_moments, deviation, part_of
from service.planning.spec import Facts, JobSpec

NAME = "sufficient-statistics"
SHARE = 0.25  # of the budget, for first moments
ROW_RADIUS, DAMPING, DOUBT = 1.15, 1.0, 1.0


class SufficientStatisticsSchedule(Schedule):
    """First moments on `means`, second moments on the Plan's lattice, and least squares of these."""

    kind: Literal["sufficient_statistics"] = "sufficient_statistics"
    means: MomentLattice
    coordinates: Coordinates

    @property
    def steps(self) -> int:
        return 1

    def moment_lattices(self) -> tuple[MomentLattice, ...]:
        return (self.means,)


class Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid")

    share: float = Field(
        default=SHARE, ge=0.01, le=0.9, description="Of the budget, for first moments."
    )


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal = problem(spec, facts), target(spec, facts)
    moments = calibrate_moments(NAME, part_of(goal, 1 - parameters.share), facts, 2)
    left = replace(goal, units=goal.units - goal.cost(moments.release()))
    means = calibrate_moments(NAME, left, facts, 1)
    noise = deviation(moments) * moments.step * moments.diagonal / p.n / 4095**2  # of a white entry
    return Draft(
        dimension=p.d,
        schedule=SufficientStatisticsSchedule(
            means=means,
            coordinates=Coordinates(
                row_radius=ROW_RADIUS,
                damping=DAMPING,
                effective=float(p.d),
                white_radius=1.0,
                doubt=DOUBT,
            ),
        ),
        lattice=moments,
        release=Sequence(parts=(means.release(), moments.release())),
        prediction=Prediction(
            theorem="none: the variance of b in white coordinates, where S is known",
            excess_risk=rounded((p.d * noise) ** 2),
            noise_squared=rounded(2 * (p.d * noise) ** 2),
            paper_noise=rounded(sqrt(2) / sqrt(2 * goal.rho) / p.n),
            our_noise=rounded(noise),
        ),
        gradients=2 * p.n,
    )


ALGORITHM = Algorithm(
    name=NAME,
    title="Least squares from private moments",
    paper=papers.ADASSP,
    algorithm="2 (AdaSSP)",
    theorem="3",
    problem="the squared loss on bounded rows and labels, over a ball or all of R^d",
    cost="first and second moments, once each; costs add",
    needs=Needs(
        sets=BALL_OR_ALL,
        margins="one",
        parabola=True,
        bounded_rows=True,
        bounded_labels=True,
        best_over_all=True,
    ),
    parameters=Parameters,
    schedule=SufficientStatisticsSchedule,
    plan=plan,
    examples=({"loss": "squared", "set": "all"},),
)
