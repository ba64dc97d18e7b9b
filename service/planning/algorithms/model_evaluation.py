"""Evaluation of released models, on the rows that were held out.

**Problem.** For models that other jobs on the same dataset have published: how often they are
right, how they rank, whether their chances are calibrated, how large their errors are, for all of
the held-out rows and, where it is asked, for each category of a column.

**Schedule.** One release of tables (service/planning/scored.py): for each model a table of what is
predicted by label, one of scores by label, sums of losses or errors, as far as the job asks. Every
metric and its interval is a function of them: service/jobs/evaluated.py and intervals.py.

**Sensitivity.** Neighbours replace one record; its position stays, so it is held out in both or in
neither, and in the latter case nothing of this job depends on it. The models are public: they were
released and paid for before, and the Plan names them by their digests. tables.py adds up what a
record moves; tables share it out (squared in l2) evenly, but for two parts to scores.

**Proof.** One release over the rows [n, n + m), those that were held out; no other row is read, by
this or by a fit. What the fits cost and what this costs adds up in the account like any two jobs.
"""

from fractions import Fraction
from math import log
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from service.errors import PlanRefused
from service.planning import papers
from service.planning.algorithm import Algorithm
from service.planning.draft import Draft, Prediction, Schedule, rounded
from service.planning.evaluate import Evaluate, Metric
from service.planning.lattice import Target, target
from service.planning.needs import ANY_SET, Needs, either
from service.planning.scored import Below, Confusion, Errors, Groups, Losses, Scores
from service.planning.spec import Facts, JobSpec
from service.planning.tables import Counts, calibrate_counts

NAME = "model-evaluation"
TELLS: dict[type, tuple[Metric, ...]] = {
    Confusion: ("accuracy", "balanced_accuracy", "precision", "recall", "f1"),
    Scores: ("auc", "roc", "precision_recall", "calibration"),
    Losses: ("brier", "log_loss"),
    Errors: ("mae", "rmse", "r2"),
    Below: ("coverage",),
}

PARTS: dict[type, int] = {Scores: 2}  # of the precision: a curve adds up many cells' noise


class EvaluationSchedule(Schedule):
    """One release of tables, over the rows that were held out."""

    kind: Literal["evaluation"] = "evaluation"
    counts: Counts

    @property
    def steps(self) -> int:
        return 1

    def counted(self) -> tuple[Counts, ...]:
        return (self.counts,)

    def evaluates(self) -> bool:
        return True


class Parameters(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def plan(spec: JobSpec, facts: Facts, parameters: Parameters) -> Draft:
    goal, asked = target(spec, facts), spec.evaluate or Evaluate()
    counts = evaluation_counts(goal, spec, facts, asked, models=len(spec.named))
    lattice, m = counts.lattice, facts.held_out
    shares = (lattice.deviation(i) / table.largest for i, table in enumerate(counts.tables))
    noise = max(shares) / m
    return Draft(
        dimension=sum(lattice.sizes),
        schedule=EvaluationSchedule(counts=counts),
        lattice=lattice,
        release=lattice.release(),
        prediction=Prediction(
            theorem="the standard deviation of the noise in a share of the held-out rows, at most",
            excess_risk=rounded(noise),
            noise_squared=rounded(sum(lattice.sizes) * noise**2),
            paper_noise=0.0,
            our_noise=rounded(noise),
        ),
        gradients=m * len(lattice.sizes),
    )


def evaluation_counts(
    goal: Target, spec: JobSpec, facts: Facts, asked: Evaluate, models: int
) -> Counts:
    """The release of all tables that are asked for, each with an equal share."""
    if facts.held_out == 0:
        raise PlanRefused(
            "this dataset holds out no rows to evaluate a model on; its owner can declare one of the "
            'same people with "holdout": 0.2 and upload the rows to it.'
        )
    tables = [table for model in range(models) for table in tables_of(spec, facts, asked, model)]
    shares = [Fraction(PARTS.get(type(table), 1)) for table in tables]
    whole = sum(shares)
    stop = facts.rows + facts.held_out
    return calibrate_counts(goal, facts.rows, stop, tables, [one / whole for one in shares])


def tables_of(spec: JobSpec, facts: Facts, asked: Evaluate, model: int) -> list[Any]:
    """Those that have the metrics that are asked for, of those that label and loss have."""
    if spec.loss.kind == "phase_retrieval":
        raise PlanRefused("its model predicts the square of a margin, which is not evaluated.")
    groups = None if asked.by is None else groups_of(asked.by, facts)
    classes, chances = facts.classes or 2, spec.loss.kind in ("logistic", "softmax")
    margin = log(asked.threshold / (1 - asked.threshold))
    has: list[Any] = []
    if facts.label in ("binary", "categorical"):
        has.append(Confusion(model=model, groups=groups, classes=classes, threshold=margin))
    if facts.label == "binary":
        has.append(Scores(model=model, bins=asked.bins))
    if chances:
        has.append(Losses(model=model))
    if facts.label == "numeric":
        has.append(Errors(model=model))
    if facts.label == "numeric" and spec.loss.kind == "pinball":
        has.append(Below(model=model, groups=groups))
    known = [name for table in has for name in TELLS[type(table)]]
    if facts.label == "binary" and not chances:
        known.remove("calibration")
    if unknown := sorted(set(asked.metrics) - set(known)):
        raise PlanRefused(
            f"{either(unknown)} cannot be told for a {facts.label} label and the loss "
            f"{spec.loss.kind}; these can: {', '.join(known)}."
        )
    if facts.label == "categorical" and asked.threshold != 0.5:
        raise PlanRefused("of several classes the likeliest is predicted; leave threshold out.")
    wanted = set(asked.metrics or known)
    return [table for table in has if wanted & set(TELLS[type(table)])]


def groups_of(name: str, facts: Facts) -> Groups:
    for column in facts.described:
        if column.name == name and column.kind == "categorical" and column.position > 0:
            return Groups(column=column.position, cells=column.cells)
    raise PlanRefused(
        f"no categorical column in use is called {name[:64]!r}, and groups are the categories of one; "
        "the dataset's schema names the columns there are."
    )


ALGORITHM = Algorithm(
    name=NAME,
    title="Evaluation of released models on held-out rows",
    paper=papers.MECHANISMS,
    algorithm="the Gaussian or Laplace mechanism on counts and bounded sums",
    theorem="3.6 and A.1",
    problem="accuracy, ROC and calibration curves, losses and errors of jobs' models, by group",
    cost="one noisy vector over the held-out rows: the price of a single release",
    needs=Needs(
        sets=ANY_SET,
        margins="some",
        convexity="any",
        bounded_labels=True,
        released_model=True,
        evaluates=True,
    ),
    parameters=Parameters,
    schedule=EvaluationSchedule,
    plan=plan,
    examples=({"loss": "logistic", "of": "job_of_the_model", "evaluate": {}},),
    own_objective=True,
)
