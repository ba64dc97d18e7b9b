"""The best constant, and nothing that columns might tell: what is left where noise hides all else.

**Problem.** min over a ball, or all of R^d, of the mean loss, for losses whose best constant follows
from the mean of labels: those of y m, and the squared one. Labels have bounds, and column 0 of the
rows is the constant.

**Schedule.** One release: the sum of labels, with noise. For the squared loss an interval that most
labels lie in is chosen first where that is cheap (shared/label_range.py), and labels are clipped to
it and stretched. The mean is estimated by its expectation given what was released, if every mean
within the bounds is as likely as another before; so with little privacy it is that mean, and with
hardly any the middle of the bounds. All weights but the constant's are 0.

All of the budget goes into one number. A model needs d of them, and worse: of the budget of
preconditioned descent about a tenth tells the mean of labels. So where d/(n sqrt(2 rho)) is not small
and labels are rare, or fill a small part of their range, that method may end below the constant.

**Sensitivity.** Neighbours replace one record: shared/moments.py, labels alone; and of the choice
shared/label_range.py.

**Proof.** A choice, if there is one, and one release of all rows: costs add. All else is
post-processing. As for the risk: no constant is worse than the best one by more than the loss of
margin 0, which bounds what there is to lose, and the variance of the mean is put on top.

**Errata.** None: there is no paper.
"""

from dataclasses import replace
from math import sqrt
from typing import Literal

from pydantic import BaseModel, ConfigDict

from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, LabelRange, Prediction, Schedule, rounded
from service.planning.lattice import target
from service.planning.needs import BALL_OR_ALL, Needs
from service.planning.problem import problem
from service.planning.releases import Sequence
from service.planning.shared.label_range import label_range
from service.planning.shared.moments import calibrate_moments
from service.planning.spec import Facts, JobSpec

NAME = "best-constant"
SHARES, OFF = (0.2, 0.35, 0.55, 0.7), 6


class BestConstantSchedule(Schedule):
    """The sum of labels on the Plan's lattice, and the constant that follows."""

    kind: Literal["best_constant"] = "best_constant"
    labels: LabelRange | None

    @property
    def steps(self) -> int:
        return 1

    def label_range(self) -> LabelRange | None:
        return self.labels


class Parameters(BaseModel):
    """There are none."""

    model_config = ConfigDict(extra="forbid")


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    p, goal, loss = problem(spec, facts), target(spec, facts), spec.loss.scalar()
    labels = None
    if loss.argument == "residual" and facts.label == "numeric":
        labels = label_range(goal, facts.rows, SHARES, OFF)
    chosen = () if labels is None else (labels.release(),)
    left = replace(goal, units=goal.units - sum(goal.cost(each) for each in chosen))
    lattice = calibrate_moments(NAME, left, facts, 0)
    variance = lattice.variance_of(lattice.step / lattice.label_units) / p.n**2
    return Draft(
        dimension=p.d,
        schedule=BestConstantSchedule(labels=labels),
        lattice=lattice,
        release=Sequence(parts=(*chosen, lattice.release())),
        prediction=Prediction(
            theorem="none: the loss of margin 0, and the variance of a mean",
            excess_risk=rounded(spec.loss.idle(facts.classes) + loss.curvature * variance / 2),
            noise_squared=rounded(variance),
            paper_noise=0.0,
            our_noise=rounded(sqrt(variance)),
        ),
        gradients=p.n,
    )


ALGORITHM = Algorithm(
    name=NAME,
    title="The best constant",
    paper="none",
    algorithm="none",
    theorem="none",
    problem="what no column tells: losses whose best constant is a function of the mean of labels",
    cost="one noisy sum of labels",
    needs=Needs(
        sets=BALL_OR_ALL,
        margins="one",
        mean_tells=True,
        bounded_rows=True,
        bounded_labels=True,
        best_over_all=True,
    ),
    parameters=Parameters,
    schedule=BestConstantSchedule,
    plan=plan,
    examples=({"loss": "logistic", "set": "all"},),
    constant=True,
)
