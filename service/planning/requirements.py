"""What an algorithm asks of a job, and the words with which it declines."""

from service.errors import PlanRefused
from service.planning.loss import Scalar
from service.planning.spec import Facts, JobSpec


def require_set(name: str, spec: JobSpec, kinds: tuple[str, ...]) -> None:
    if spec.set.kind not in kinds:
        raise PlanRefused(
            f"{name} does not run over the set {spec.set.kind}; it runs over: {', '.join(kinds)}."
        )


def require_rowwise_margin(name: str, spec: JobSpec) -> Scalar:
    """For algorithms that hold for generalized linear losses only."""
    if not spec.loss.margin:
        raise PlanRefused(
            f"{name} needs a loss of one margin <w, x>, which {spec.loss.kind} is not; "
            "gradient-descent takes it with a linear model."
        )
    return spec.loss.scalar()


def require_row_bound(name: str, facts: Facts) -> float:
    """The enforced l2 bound on rows, for algorithms whose sensitivity rests on it and on labels in
    [-1, 1]."""
    if facts.label == "unbounded":
        raise PlanRefused(
            f"{name} rests on a bound on every label and this dataset's has none; use "
            "gradient-descent, accelerated-sgd or localized-subgradient, or declare bounds for it."
        )
    if facts.l2 is None:
        raise PlanRefused(
            f"{name} rests on a bound on every row and this dataset has unbounded columns; "
            "use gradient-descent or clipped-sgd, or declare bounds for every column."
        )
    return facts.l2
