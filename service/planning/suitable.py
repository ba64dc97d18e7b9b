"""Which losses suit a dataset, for those who have not chosen one yet."""

from math import isinf

from service.errors import PlanRefused
from service.planning.losses import LOSSES
from service.planning.problem import problem
from service.planning.spec import Facts, JobSpec


def suitable_losses(facts: Facts) -> list[str]:
    """The losses that fit the label, in the order of the job spec, but those first whose gradients are
    bounded on these rows: they need no parameter that clips them."""
    bounded, others = list[str](), list[str]()
    for kind in (loss.name() for loss in LOSSES):
        spec = JobSpec.model_validate(
            {"dataset": "any", "algorithm": "any", "loss": kind, "privacy": {"epsilon": 1.0}}
        )
        try:
            found = problem(spec, facts)
        except PlanRefused:
            continue
        (others if isinf(found.lipschitz) else bounded).append(kind)
    return bounded + others
